"""Tokens to text, and the documents in OpenAI's and vLLM's shapes."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.answers import (
    Assembly,
    Chunks,
    Heading,
    Piece,
    Usage,
    joined,
    model_card,
    whole,
)
from backends.engines.base import Finish, Scores, Token
from backends.logprobs import Candidate, Scored
from backends.openai.requests import Kind
from tests.backends.rig import END, ByteDetokenizer, ByteText, PlainScanner

CHAT = Heading(Kind.CHAT, "chatcmpl-1", 1700000000, "m", "7")
TEXT = Heading(Kind.TEXT, "cmpl-1", 1700000000, "m", "7")
HI = Piece("hi", (104, 105), Finish.STOP)
SCORES = Scores(-0.5, ((97, -0.5), (195, -2.0)))


def assembly(*stops: str) -> Assembly:
    spell = ByteText().token_bytes
    return Assembly(ByteDetokenizer(), PlainScanner(stops), frozenset({END}), spell)


def run(made: Assembly, ids: list[int], finish: Finish) -> list[Piece]:
    tokens = [Token(id_, None, SCORES) for id_ in ids[:-1]] + [Token(ids[-1], finish, SCORES)]
    pieces: list[Piece] = []
    for token in tokens:
        pieces.append(made.push(token))
        if pieces[-1].finish is not None:
            break
    return pieces


def only_choice(document: dict[str, object]) -> dict[str, Any]:
    (choice,) = cast(list[dict[str, Any]], document["choices"])
    return choice


def test_the_token_that_ends_an_answer_is_counted_but_is_no_text() -> None:
    made = assembly()
    pieces = run(made, [*b"hi", END], Finish.STOP)
    assert [piece.text for piece in pieces] == ["h", "i", ""]
    assert (pieces[-1].ids, pieces[-1].finish) == ((END,), Finish.STOP)
    assert made.completion_tokens == 3


def test_a_character_comes_whole_with_its_last_token() -> None:
    pieces = run(assembly(), list("é!".encode()), Finish.LENGTH)
    assert [piece.text for piece in pieces] == ["", "é", "!"]


def test_an_answer_cut_inside_a_character_says_so() -> None:
    pieces = run(assembly(), list("é".encode())[:1], Finish.LENGTH)
    assert pieces[-1].text == "\ufffd"


def test_a_stop_string_ends_the_answer_before_it_and_across_tokens() -> None:
    made = assembly("END")
    pieces = run(made, list(b"so END it"), Finish.LENGTH)
    assert "".join(piece.text for piece in pieces) == "so "
    assert pieces[-1].finish is Finish.STOP
    assert made.completion_tokens == len("so END")


def test_what_might_have_become_a_stop_string_is_sent_at_the_end() -> None:
    pieces = run(assembly("END"), list(b"the EN"), Finish.LENGTH)
    assert "".join(piece.text for piece in pieces) == "the EN"
    assert pieces[-1].finish is Finish.LENGTH


@given(st.text("aé€", min_size=1, max_size=12), st.lists(st.text("aé", min_size=1, max_size=3)))
def test_an_answer_is_its_text_up_to_the_first_stop_string(text: str, stops: list[str]) -> None:
    # Tokens are bytes and the character that completes a stop string may complete only one at once,
    # so the first one to be whole decides; among those that end there the longest begins first.
    ends = [text.index(stop) + len(stop) for stop in stops if stop in text]
    first = min(ends, default=None)
    if first is None:
        expected = text
    else:
        done = [stop for stop in stops if text[:first].endswith(stop)]
        expected = text[: first - max(map(len, done))]
    pieces = run(assembly(*stops), list(text.encode()), Finish.LENGTH)
    assert "".join(piece.text for piece in pieces) == expected
    # Scores cover the text and not what ended it; they come with the text that they belong to.
    sent = ""
    for piece in pieces:
        sent += piece.text
        assert all(scored.offset < len(sent) for scored in piece.scored)
    scored = [each for piece in pieces for each in piece.scored]
    spelt = b"".join(each.drawn.spelling for each in scored)
    assert spelt.startswith(expected.encode())
    assert len(spelt) == len(expected.encode())
    starts = [len(expected.encode()[:n].decode(errors="ignore")) for n in range(len(spelt))]
    assert [each.offset for each in scored] == starts


def test_a_score_waits_for_the_text_of_its_token() -> None:
    pieces = run(assembly("END"), list("é E!".encode()), Finish.LENGTH)
    assert [piece.text for piece in pieces] == ["", "é", " ", "", "E!"]
    offsets = [[scored.offset for scored in piece.scored] for piece in pieces]
    assert offsets == [[], [0, 0], [1], [], [2, 3]]


def test_a_character_that_was_begun_last_is_scored_too() -> None:
    (piece,) = run(assembly(), [0xC3], Finish.LENGTH)
    assert piece.scored == (
        Scored(Candidate(b"\xc3", -0.5), (Candidate(b"a", -0.5), Candidate(b"\xc3", -2.0)), 0),
    )


def test_pieces_are_joined_in_order() -> None:
    pieces = run(assembly("lo"), list(b"hello"), Finish.LENGTH)
    whole_answer = joined(pieces)
    assert (whole_answer.text, whole_answer.ids) == ("hel", tuple(b"hello"))
    assert whole_answer.finish is Finish.STOP
    assert [each.offset for each in whole_answer.scored] == [0, 1, 2]


def test_a_chat_answer_is_a_message() -> None:
    document = whole(CHAT, [HI], Usage(3, 2, 1), None, False)
    assert document["object"] == "chat.completion"
    assert only_choice(document) == {
        "index": 0,
        "logprobs": None,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": "hi"},
    }
    assert document["usage"] == {
        "prompt_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens": 2,
        "total_tokens": 5,
    }
    assert document["system_fingerprint"] == "7"


def test_ids_stand_where_vllm_puts_them() -> None:
    chat = whole(CHAT, [HI], Usage(1, 2, 0), (9,), False)
    text = whole(TEXT, [HI], Usage(1, 2, 0), (9,), False)
    assert chat["prompt_token_ids"] == only_choice(text)["prompt_token_ids"] == (9,)
    assert only_choice(chat)["token_ids"] == only_choice(text)["token_ids"] == (104, 105)
    assert "prompt_token_ids" not in whole(CHAT, [HI], Usage(1, 2, 0), None, False)


def test_a_streamed_chat_begins_with_who_speaks() -> None:
    chunks = Chunks(CHAT, include_usage=False, prompt_ids=(9,), logprobs=False)
    opening = chunks.opening(0)
    assert opening is not None
    assert only_choice(opening)["delta"] == {"role": "assistant", "content": ""}
    assert opening["prompt_token_ids"] == (9,)
    assert only_choice(chunks.piece(HI, first=True)) == {
        "index": 0,
        "logprobs": None,
        "finish_reason": "stop",
        "delta": {"content": "hi"},
        "token_ids": (104, 105),
    }


def test_a_streamed_completion_shows_its_prompt_once() -> None:
    chunks = Chunks(TEXT, include_usage=False, prompt_ids=(9,), logprobs=False)
    assert chunks.opening(0) is None
    assert only_choice(chunks.piece(HI, first=True))["prompt_token_ids"] == (9,)
    assert "prompt_token_ids" not in only_choice(chunks.piece(HI, first=False))


def test_asked_for_usage_every_chunk_has_the_field_and_the_last_one_fills_it() -> None:
    chunks = Chunks(TEXT, include_usage=True, prompt_ids=None, logprobs=False)
    assert chunks.piece(HI, first=True)["usage"] is None
    closing = chunks.closing(Usage(3, 2, 1))
    assert closing is not None
    usage = cast(dict[str, object], closing["usage"])
    assert (closing["choices"], usage["total_tokens"]) == ([], 5)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 1}


@pytest.mark.parametrize("heading", [CHAT, TEXT])
def test_usage_is_not_mentioned_unless_asked_for(heading: Heading) -> None:
    chunks = Chunks(heading, include_usage=False, prompt_ids=None, logprobs=False)
    assert chunks.closing(Usage(3, 2, 1)) is None
    assert "usage" not in chunks.piece(HI, first=True)


SECOND = Piece("é", (195, 169), Finish.LENGTH, (Scored(Candidate(b"\xc3", -1.0), (), 0),), 1)


def test_several_answers_to_one_prompt_are_told_apart_by_their_index() -> None:
    for heading in (CHAT, TEXT):
        document = whole(heading, [HI, SECOND], Usage(3, 4, 0), None, False)
        choices = cast(list[dict[str, Any]], document["choices"])
        assert [(each["index"], each["finish_reason"]) for each in choices] == [
            (0, "stop"),
            (1, "length"),
        ]
        chunks = Chunks(heading, include_usage=False, prompt_ids=None, logprobs=False)
        assert only_choice(chunks.piece(SECOND, first=True))["index"] == 1
    opening = Chunks(CHAT, False, None, False).opening(1)
    assert opening is not None
    assert only_choice(opening)["index"] == 1


def test_logprobs_stand_where_openai_puts_them() -> None:
    chat = only_choice(whole(CHAT, [SECOND], Usage(1, 2, 0), None, True))["logprobs"]
    text = only_choice(whole(TEXT, [SECOND], Usage(1, 2, 0), None, True))["logprobs"]
    assert [entry["bytes"] for entry in chat["content"]] == [[0xC3]]
    assert (text["tokens"], text["text_offset"]) == (["bytes:\\xc3"], [0])
    chunks = Chunks(CHAT, include_usage=False, prompt_ids=None, logprobs=True)
    assert only_choice(chunks.piece(SECOND, first=True))["logprobs"] == chat
    opening = chunks.opening(0)
    assert opening is not None
    assert only_choice(opening)["logprobs"] is None


def test_logprobs_are_null_unless_asked_for() -> None:
    for heading in (CHAT, TEXT):
        assert (
            only_choice(whole(heading, [SECOND], Usage(1, 2, 0), None, False))["logprobs"] is None
        )
        chunks = Chunks(heading, include_usage=False, prompt_ids=None, logprobs=False)
        assert only_choice(chunks.piece(SECOND, first=True))["logprobs"] is None


def test_a_model_card_says_how_long_the_context_is() -> None:
    assert model_card("m", "7", 1700000000, 1024)["max_model_len"] == 1024
