"""Conversations, texts and token ids as clients write them, and as they should not."""

from typing import Any

import pytest

from backends.errors import RequestInvalid
from backends.openai.prompts import Chat, Message, parse_chat, parse_prompt

HELLO = {"role": "user", "content": "hello"}


@pytest.mark.parametrize(
    ("prompt", "read"),
    [
        ("hello", "hello"),
        ("", ""),
        (["hello"], "hello"),
        ([1, 2, 3], (1, 2, 3)),
        ([[1, 2, 3]], (1, 2, 3)),
    ],
)
def test_a_prompt_is_text_or_ids_alone_or_in_a_list_of_one(prompt: object, read: object) -> None:
    assert parse_prompt({"prompt": prompt}) == read


def test_text_parts_are_joined_and_developers_are_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    read = parse_chat({"messages": [{"role": "developer", "content": parts}, HELLO]})
    assert read == Chat((Message("system", "a\nb"), Message("user", "hello")))


def test_an_assistants_turn_may_be_without_content() -> None:
    turn: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    read = parse_chat({"messages": [HELLO, turn]})
    assert read == Chat((Message("user", "hello"), Message("assistant", "")))


WRONG_CHATS: list[tuple[str, Any]] = [
    ("messages", None),
    ("messages", []),
    ("messages", "hello"),
    ("messages.0", ["hello"]),
    ("messages.0.role", [{"role": "king", "content": ""}]),
    ("messages.0.role", [{"role": ["user"], "content": ""}]),
    ("messages.1.content", [HELLO, {"role": "user", "content": 5}]),
    ("messages.0.content", [{"role": "user"}]),
    ("messages.0.content.0", [{"role": "user", "content": ["a"]}]),
    ("messages.0.content.0.type", [{"role": "user", "content": [{"type": "image_url"}]}]),
    ("messages.0.content.0.text", [{"role": "user", "content": [{"type": "text"}]}]),
]


@pytest.mark.parametrize(("path", "messages"), WRONG_CHATS)
def test_a_mistake_in_a_chat_is_named_with_its_path(path: str, messages: object) -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse_chat({"messages": messages})
    assert caught.value.path == path


WRONG_PROMPTS: list[tuple[str, Any]] = [
    ("prompt", None),
    ("prompt", []),
    ("prompt", {}),
    ("prompt", ["a", "b"]),
    ("prompt.0", [[]]),
    ("prompt.1", [1, "2"]),
    ("prompt.1", [1, -2]),
    ("prompt.0.0", [[True]]),
    ("prompt.0", [2**40]),
    ("prompt.0", [1e300]),
]


@pytest.mark.parametrize(("path", "prompt"), WRONG_PROMPTS)
def test_a_mistake_in_a_prompt_is_named_with_its_path(path: str, prompt: object) -> None:
    with pytest.raises(RequestInvalid) as caught:
        parse_prompt({"prompt": prompt})
    assert caught.value.path == path
