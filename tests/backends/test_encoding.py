"""A prompt as token ids: where it is done, and what becomes of one that holds nothing."""

import threading
from collections.abc import Sequence

import pytest

from backends.encoding import ENCODE_ON_LOOP_MAX, encode
from backends.errors import RequestInvalid
from backends.openai.prompts import Chat, Message, Prompt
from tests.backends.rig import ByteText

EMPTY = Message("user", "")


class Watched(ByteText):
    """Notes on which thread it works; its template is no more than the contents."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def encode(self, text: str, special: bool) -> list[int]:
        self.threads.append(threading.get_ident())
        return super().encode(text, special)

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.encode("".join(each["content"] for each in messages), special=False)


@pytest.mark.parametrize(
    ("prompt", "place"), [("", "prompt"), ((), "prompt"), (Chat((EMPTY,)), "messages")]
)
async def test_nothing_is_a_mistake_in_the_field_that_holds_it(prompt: Prompt, place: str) -> None:
    """Of a chat it was told as one in `prompt`, a field that a chat has not."""
    with pytest.raises(RequestInvalid, match=f"^{place}: must hold at least one token"):
        await encode(Watched(), prompt)


@pytest.mark.parametrize(
    ("prompt", "on_loop"),
    [
        ("a" * ENCODE_ON_LOOP_MAX, True),
        ("a" * (ENCODE_ON_LOOP_MAX + 1), False),
        (Chat((Message("user", "hi"),)), True),
        (Chat((Message("user", "a" * ENCODE_ON_LOOP_MAX),)), False),
        (Chat((EMPTY,) * 1000 + (Message("user", "hi"),)), False),
    ],
    ids=["short", "long", "short chat", "long message", "many empty messages"],
)
async def test_what_takes_its_time_does_not_stop_the_loop(prompt: Prompt, on_loop: bool) -> None:
    """A template takes its time for each message: only their contents were counted."""
    text = Watched()
    await encode(text, prompt)
    assert (text.threads == [threading.get_ident()]) is on_loop
    assert len(text.threads) == 1


async def test_token_ids_are_taken_as_they_are() -> None:
    assert await encode(Watched(), (1, 2)) == (1, 2)
