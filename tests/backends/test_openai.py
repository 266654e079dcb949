"""Bodies as clients write them, and as they should not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engines.base import Sampling
from backends.errors import RequestInvalid
from backends.openai import (
    TOKENS_DEFAULT,
    Chat,
    Kind,
    Message,
    Request,
    model_of,
    parse,
    parse_defaults,
)

DEFAULTS = Sampling(temperature=1.0)
HELLO = [{"role": "user", "content": "hello"}]


def chat(**fields: Any) -> Request:
    return parse(Kind.CHAT, {"model": "m", "messages": HELLO} | fields, DEFAULTS)


def text(**fields: Any) -> Request:
    return parse(Kind.TEXT, {"model": "m", "prompt": "hello"} | fields, DEFAULTS)


def mistake(kind: Kind, body: object) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as caught:
        parse(kind, body, DEFAULTS)
    return caught.value


def test_a_bare_chat_gets_openais_defaults() -> None:
    request = chat()
    assert request.prompt == Chat((Message("user", "hello"),))
    assert request.max_tokens is None
    assert request.sampling == Sampling(temperature=1.0, top_p=1.0, seed=None)
    assert (request.stream, request.include_usage, request.return_token_ids) == (False,) * 3


def test_completions_are_short_unless_told() -> None:
    assert text().max_tokens == TOKENS_DEFAULT
    assert text(max_tokens=300).max_tokens == 300


def test_the_newer_name_of_the_token_limit_wins() -> None:
    assert chat(max_tokens=5, max_completion_tokens=7).max_tokens == 7


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
    assert text(prompt=prompt).prompt == read


def test_text_parts_are_joined_and_developers_are_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = chat(messages=[{"role": "developer", "content": parts}, *HELLO])
    assert request.prompt == Chat((Message("system", "a\nb"), Message("user", "hello")))


def test_an_assistants_turn_may_be_without_content() -> None:
    request = chat(messages=[*HELLO, {"role": "assistant", "content": None, "tool_calls": []}])
    assert request.prompt == Chat((Message("user", "hello"), Message("assistant", "")))


@pytest.mark.parametrize(("stop", "read"), [(None, ()), ("x", ("x",)), (["x", "yz"], ("x", "yz"))])
def test_stop_is_nothing_a_string_or_several(stop: object, read: tuple[str, ...]) -> None:
    assert chat(stop=stop).stops == read


def test_a_negative_seed_is_as_good_as_any() -> None:
    seeds = {chat(seed=seed).sampling.seed for seed in (-1, 0, 1, 2**64 - 2)}
    assert seeds == {2**64 - 1, 0, 1, 2**64 - 2}


def test_top_k_minus_one_means_all() -> None:
    assert chat(top_k=-1).sampling.top_k == 0


def test_usage_is_streamed_only_if_asked_for() -> None:
    assert chat(stream=True, stream_options={"include_usage": True}).include_usage
    assert not chat(stream=True, stream_options={}).include_usage


def test_null_is_the_same_as_saying_nothing() -> None:
    names = "max_tokens temperature top_p seed stop stream stream_options n logprobs tools user"
    assert chat(**dict.fromkeys(names.split())) == chat()


def test_unknown_and_harmless_fields_are_ignored() -> None:
    assert chat(user="u", metadata={"a": [1]}, frequency_penalty=0.3, garbage={"x": 1}) == chat()


WRONG: list[tuple[str, Kind, dict[str, Any]]] = [
    ("messages", Kind.CHAT, {"messages": []}),
    ("messages", Kind.CHAT, {"messages": "hello"}),
    ("messages.0", Kind.CHAT, {"messages": ["hello"]}),
    ("messages.0.role", Kind.CHAT, {"messages": [{"role": "king", "content": ""}]}),
    ("messages.0.role", Kind.CHAT, {"messages": [{"role": ["user"], "content": ""}]}),
    ("messages.1.content", Kind.CHAT, {"messages": [*HELLO, {"role": "user", "content": 5}]}),
    ("messages.0.content", Kind.CHAT, {"messages": [{"role": "user"}]}),
    ("messages.0.content.0", Kind.CHAT, {"messages": [{"role": "user", "content": ["a"]}]}),
    (
        "messages.0.content.0.type",
        Kind.CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    ),
    (
        "messages.0.content.0.text",
        Kind.CHAT,
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    ),
    ("prompt", Kind.TEXT, {"prompt": None}),
    ("prompt", Kind.TEXT, {"prompt": []}),
    ("prompt", Kind.TEXT, {"prompt": ["a", "b"]}),
    ("prompt.0", Kind.TEXT, {"prompt": [[]]}),
    ("prompt.1", Kind.TEXT, {"prompt": [1, "2"]}),
    ("prompt.1", Kind.TEXT, {"prompt": [1, -2]}),
    ("prompt.0.0", Kind.TEXT, {"prompt": [[True]]}),
    ("prompt.0", Kind.TEXT, {"prompt": [2**40]}),
    ("max_tokens", Kind.TEXT, {"max_tokens": 0}),
    ("max_tokens", Kind.TEXT, {"max_tokens": 1.5}),
    ("max_tokens", Kind.TEXT, {"max_tokens": True}),
    ("max_tokens", Kind.TEXT, {"max_tokens": 1.2e29}),
    ("max_completion_tokens", Kind.CHAT, {"max_completion_tokens": -1}),
    ("temperature", Kind.CHAT, {"temperature": 2.1}),
    ("temperature", Kind.CHAT, {"temperature": "hot"}),
    ("temperature", Kind.CHAT, {"temperature": True}),
    ("top_p", Kind.CHAT, {"top_p": 0}),
    ("top_p", Kind.CHAT, {"top_p": 1.1}),
    ("top_k", Kind.CHAT, {"top_k": -2}),
    ("seed", Kind.CHAT, {"seed": 2**64}),
    ("seed", Kind.CHAT, {"seed": "x"}),
    ("stop", Kind.CHAT, {"stop": 5}),
    ("stop", Kind.CHAT, {"stop": ""}),
    ("stop", Kind.CHAT, {"stop": ["a"] * 5}),
    ("stop.1", Kind.CHAT, {"stop": ["a", ""]}),
    ("stop.0", Kind.CHAT, {"stop": ["a" * 2000]}),
    ("stream", Kind.CHAT, {"stream": "yes"}),
    ("stream_options", Kind.CHAT, {"stream_options": {"include_usage": True}}),
    ("stream_options", Kind.CHAT, {"stream": True, "stream_options": 1}),
    (
        "stream_options.include_usage",
        Kind.CHAT,
        {"stream": True, "stream_options": {"include_usage": 1}},
    ),
    ("return_token_ids", Kind.TEXT, {"return_token_ids": 1}),
    ("n", Kind.CHAT, {"n": 2}),
    ("n", Kind.CHAT, {"n": True}),
    ("best_of", Kind.TEXT, {"best_of": 3}),
    ("logprobs", Kind.CHAT, {"logprobs": True}),
    ("logprobs", Kind.TEXT, {"logprobs": 0}),
    ("echo", Kind.TEXT, {"echo": True}),
    ("suffix", Kind.TEXT, {"suffix": "end"}),
    ("response_format", Kind.CHAT, {"response_format": {"type": "json_object"}}),
    ("tool_choice", Kind.CHAT, {"tool_choice": "required"}),
]


@pytest.mark.parametrize(("path", "kind", "fields"), WRONG)
def test_a_mistake_is_named_with_its_path(path: str, kind: Kind, fields: dict[str, Any]) -> None:
    whole = {"model": "m", "messages": HELLO, "prompt": "hello"} | fields
    found = mistake(kind, whole)
    assert found.path == path
    assert str(found).startswith(f"{path}: ")


def test_a_mistake_shows_what_was_written_but_not_all_of_it() -> None:
    assert str(mistake(Kind.CHAT, {"messages": HELLO, "n": 3})) == (
        "n: 3 is not offered by this server"
    )
    long = str(mistake(Kind.CHAT, {"messages": HELLO, "temperature": "x" * 10_000}))
    assert long == f"temperature: must be a number from 0 to 2, not {'x' * 40!r}..."


@pytest.mark.parametrize("body", [None, [], "x", 5, True])
def test_a_body_that_is_no_object_has_no_path(body: object) -> None:
    assert mistake(Kind.CHAT, body).path == ""
    with pytest.raises(RequestInvalid, match="the body must be a JSON object"):
        model_of(body)


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": ""}, {"model": ["m"]}])
def test_a_body_must_name_its_model(body: object) -> None:
    with pytest.raises(RequestInvalid, match=r"^model: must be the name of a model"):
        model_of(body)


def test_a_snapshot_may_set_its_own_sampling() -> None:
    config = {"temperature": 0.2, "top_p": 0.9, "top_k": 20, "eos_token_id": [2], "do_sample": True}
    assert parse_defaults(config) == Sampling(temperature=0.2, top_p=0.9, top_k=20)
    assert parse_defaults({}) == DEFAULTS
    quiet = parse(Kind.CHAT, {"messages": HELLO}, parse_defaults(config))
    assert quiet.sampling.temperature == 0.2
    assert parse(Kind.CHAT, {"messages": HELLO, "temperature": 0}, DEFAULTS).sampling == Sampling()


# Few letters: what matters is the shape, and drawing from all of Unicode takes seconds to set up.
words = st.text("ab", max_size=3)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
KNOWN = sorted({name for _, _, fields in WRONG for name in fields} | {"model", "ignore_eos"})


@given(st.sampled_from(Kind), st.dictionaries(st.sampled_from(KNOWN), json))
def test_any_json_is_a_request_or_a_mistake(kind: Kind, body: dict[str, object]) -> None:
    try:
        request = parse(kind, body, DEFAULTS)
    except RequestInvalid:
        return
    assert 0 <= request.sampling.temperature <= 2
    assert 0 < request.sampling.top_p <= 1
    assert request.max_tokens is None or request.max_tokens >= 1
    assert len(request.stops) <= 4
