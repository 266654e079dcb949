"""What is kept of a request, and of many requests."""

import re
from collections import Counter
from random import Random
from typing import Any, Final

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.samples import (
    BUCKET_NAMES,
    PLAIN,
    Filler,
    Reservoir,
    bucket_of,
    characters_of,
    redacted,
)

SECRET: Final = "sesame-7f3a-open"
CHAT: Final[dict[str, Any]] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": f"You know {SECRET}."},
        {"role": "user", "name": SECRET, "content": [
            {"type": "text", "text": SECRET},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SECRET}"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": SECRET, "type": "function",
             "function": {"name": SECRET, "arguments": f'{{"city":"{SECRET}"}}'}},
        ]},
        {"role": "tool", "tool_call_id": SECRET, "content": SECRET},
    ],
    "tools": [{"type": "function", "function": {
        "name": SECRET, "description": SECRET,
        "parameters": {"type": "object", "properties": {SECRET: {"enum": [SECRET]}}},
    }}],
    "tool_choice": {"type": "function", "function": {"name": SECRET}},
    "response_format": {"type": "json_schema", "json_schema": {"name": SECRET, "schema": {
        "type": "object", "description": SECRET}}},
    "stop": [SECRET],
    "user": SECRET,
    "metadata": {SECRET: SECRET},
    "logit_bias": {"50256": -100},
    "account": 4155550123,
    SECRET: 1,
    "temperature": 0.5,
    "max_tokens": 16,
    "stream": True,
    "stream_options": {"include_usage": True, SECRET: 1},
    "reasoning_effort": "low",
}  # fmt: skip


def harmless(document: dict[str, Any], start: int = 3) -> dict[str, Any]:
    return redacted(document, "m", Filler(start))


@pytest.mark.parametrize(
    ("characters", "bucket"),
    [(0, "<100"), (399, "<100"), (400, "<500"), (1999, "<500"), (2000, "<2000"), (8000, "longer")],
)
def test_a_bucket_holds_a_length(characters: int, bucket: str) -> None:
    assert bucket_of(characters) == bucket
    assert bucket in BUCKET_NAMES


def test_text_is_what_the_prompt_says_wherever_it_stands() -> None:
    assert characters_of({"prompt": "abcde", "user": "not this"}) == 5
    assert characters_of({"prompt": [1, 2, 3]}) == 12
    assert characters_of({"input": ["abc", "de"]}) == 5
    parts = [{"type": "text", "text": "abc"}, {"type": "image_url", "image_url": {"url": "x" * 99}}]
    assert characters_of({"messages": [{"role": "user", "content": parts}]}) == 3


def test_nothing_that_a_client_says_stays_and_all_that_shapes_the_request_does() -> None:
    kept = harmless(CHAT)
    assert SECRET not in orjson.dumps(kept).decode()
    assert "4155550123" not in orjson.dumps(kept).decode()
    roles = [message["role"] for message in kept["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    assert len(kept["messages"][0]["content"]) == len(CHAT["messages"][0]["content"])
    assert kept["messages"][1]["content"] == [
        {"type": "text", "text": kept["messages"][1]["content"][0]["text"]}
    ]
    call = kept["messages"][2]["tool_calls"][0]
    assert call["id"] == kept["messages"][3]["tool_call_id"]
    assert orjson.loads(call["function"]["arguments"])
    name = kept["tools"][0]["function"]["name"]
    assert call["function"]["name"] == name == kept["tool_choice"]["function"]["name"]
    plain = {"temperature": 0.5, "max_tokens": 16, "stream": True, "reasoning_effort": "low"}
    assert {key: kept[key] for key in plain} == plain
    assert kept["stream_options"] == {"include_usage": True}
    gone = {"stop", "user", "metadata", "logit_bias", "account", SECRET}
    assert not gone & kept.keys()


INNER: Final = "content role name type text id function arguments parameters schema json_schema"
OUTER: Final = "messages prompt input suffix tools tool_choice response_format stop stream_options"
KEYS = st.sampled_from(INNER.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
UNSAID = re.compile("[\ue000-\ue0ff]")  # what no filler holds, in the place of all that is secret


def marked(value: Any) -> Any:
    """The document with every text in it made of characters that filler never has."""
    if isinstance(value, str):
        return "\ue000" * len(value)
    if isinstance(value, list):
        return [marked(one) for one in value]
    return {k: marked(v) for k, v in value.items()} if isinstance(value, dict) else value


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(OUTER.split()), JSON), st.integers(0, 1 << 16))
def test_whatever_the_document_is_no_character_of_its_texts_is_kept(
    document: dict[str, Any], start: int
) -> None:
    kept = orjson.dumps(redacted(marked(document), "m", Filler(start))).decode()
    assert not UNSAID.search(kept)


@given(st.text(), st.integers(0, 1 << 16))
def test_filler_is_as_long_as_what_was_said_and_as_wide(said: str, start: int) -> None:
    filler = Filler(start).text(said)
    assert len(filler) == len(said)
    wide = re.compile("[\u4e00-\u9fff]")
    assert len(wide.findall(filler)) >= len(wide.findall(said))


@given(st.text(min_size=1, max_size=2000), st.integers(0, 1 << 16))
def test_a_redacted_prompt_is_in_the_bucket_of_its_own(prompt: str, start: int) -> None:
    document = {"prompt": prompt, "messages": [{"role": "user", "content": prompt}]}
    assert characters_of(harmless(document, start)) == characters_of(document)


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        ({"type": "json_object"}, {"response_format": {"type": "json_object"}}),
        ({"type": "grammar", "grammar": SECRET}, {}),
        ({"type": [SECRET]}, {}),
        ({}, {}),
    ],
)
def test_a_format_that_filler_cannot_have_is_left_out(
    wanted: dict[str, Any], kept: dict[str, Any]
) -> None:
    assert harmless({"response_format": wanted}) == kept


def test_a_message_of_pictures_only_is_still_a_message() -> None:
    picture = {"type": "image_url", "image_url": {"url": SECRET}}
    (message,) = harmless({"messages": [{"role": "user", "content": [picture]}]})["messages"]
    assert message == {"role": "user", "content": ""}


def test_token_ids_become_as_many_others() -> None:
    ids = harmless({"prompt": [5000, 6000, 7000]})["prompt"]
    assert len(ids) == 3
    assert not {5000, 6000, 7000} & set(ids)
    assert [len(one) for one in harmless({"prompt": [[1, 2], [3]]})["prompt"]] == [2, 1]


def test_prompts_that_began_alike_do_not_all_begin_alike_afterwards() -> None:
    """An instance would find them in its cache, and be measured by that."""
    prompt = {"prompt": "x" * 50}
    assert len({harmless(prompt, start)["prompt"] for start in range(0, 500, 50)}) > 5


def test_parameters_that_stay_are_numbers_and_truths_only() -> None:
    given_ = dict.fromkeys(PLAIN, "words")
    assert harmless(dict(given_)) == {}
    assert harmless(dict.fromkeys(PLAIN, 1)) == dict.fromkeys(PLAIN, 1)


# --- the reservoir ---

ADDED = st.lists(st.tuples(st.sampled_from([*BUCKET_NAMES, "other"]), st.integers(1, 60)))


@given(ADDED, st.integers(1, 5), st.integers(20, 200), st.integers(0, 99))
def test_a_file_is_bounded_and_no_bucket_holds_more_than_its_share(
    added: list[tuple[str, int]], per_bucket: int, max_bytes: int, seed: int
) -> None:
    kept = Reservoir(Random(seed))
    for number, (bucket, length) in enumerate(added):
        line = (b"%s %d " % (bucket.encode(), number)).ljust(length, b".") + b"\n"
        taken = kept.add(bucket, line, per_bucket, max_bytes)
        assert taken == (bucket in BUCKET_NAMES and len(line) <= max_bytes)
        content = kept.file()
        assert len(content) == kept.size() <= max_bytes
        if taken:
            assert content.endswith(line)  # the new one is always there, and last
        lines = content.splitlines()
        held = Counter(one.split()[0].decode() for one in lines)
        assert all(count <= per_bucket for count in held.values())
        numbers = [int(one.split()[1].rstrip(b".")) for one in lines]
        assert numbers == sorted(numbers)


def test_old_samples_make_room_in_the_end() -> None:
    kept = Reservoir(Random(1))
    for number in range(400):
        kept.add("<100", b"%d\n" % number, 8, 4096)
    numbers = [int(line) for line in kept.file().splitlines()]
    assert len(numbers) == 8
    assert min(numbers) > 300


def test_bounds_that_shrank_hold_with_the_next_sample() -> None:
    kept = Reservoir(Random(1))
    for bucket in BUCKET_NAMES * 5:
        kept.add(bucket, b"x\n", 5, 4096)
    kept.add("<100", b"y\n", 2, 4096)
    assert len(kept.file().splitlines()) == 2 * len(BUCKET_NAMES)
