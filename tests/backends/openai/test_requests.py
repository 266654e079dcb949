"""Bodies as clients write them, and as they should not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engines.base import Sampling
from backends.errors import RequestInvalid
from backends.openai.prompts import Chat, Message
from backends.openai.requests import (
    TOKENS_DEFAULT,
    Kind,
    Request,
    choices_of,
    model_of,
    parse,
)
from backends.openai.unoffered import UNOFFERED

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


@pytest.mark.parametrize(("stop", "read"), [(None, ()), ("x", ("x",)), (["x", "yz"], ("x", "yz"))])
def test_stop_is_nothing_a_string_or_several(stop: object, read: tuple[str, ...]) -> None:
    assert chat(stop=stop).stops == read


def test_one_answer_unless_more_are_asked_for() -> None:
    assert chat().choices == 1
    assert chat(n=3).choices == choices_of({"n": 3}) == 3


def test_the_best_of_as_many_as_are_returned_are_all_of_them() -> None:
    assert text(n=2, best_of=2).choices == 2
    assert text(best_of=1).choices == 1


def test_chats_ask_for_logprobs_by_a_flag_and_completions_by_a_count() -> None:
    assert [chat().logprobs, text().logprobs, chat(logprobs=False).logprobs] == [None] * 3
    assert chat(logprobs=True).logprobs == text(logprobs=0).logprobs == 0
    assert chat(logprobs=True, top_logprobs=20).logprobs == text(logprobs=20).logprobs == 20


def test_usage_is_streamed_only_if_asked_for() -> None:
    assert chat(stream=True, stream_options={"include_usage": True}).include_usage
    assert not chat(stream=True, stream_options={}).include_usage


def test_null_is_the_same_as_saying_nothing() -> None:
    names = "max_tokens max_completion_tokens temperature top_p top_k seed stop stream n best_of "
    names += "stream_options logprobs top_logprobs logit_bias frequency_penalty presence_penalty "
    names += "user " + " ".join(UNOFFERED)
    assert chat(**dict.fromkeys(names.split())) == chat()
    assert text(**dict.fromkeys(names.split())) == text()


def test_unknown_and_harmless_fields_are_ignored() -> None:
    assert chat(user="u", metadata={"a": [1]}, store=True, garbage={"x": 1}) == chat()


WRONG: list[tuple[str, Kind, dict[str, Any]]] = [
    ("max_tokens", Kind.TEXT, {"max_tokens": 0}),
    ("max_tokens", Kind.TEXT, {"max_tokens": 1.5}),
    ("max_tokens", Kind.TEXT, {"max_tokens": True}),
    ("max_tokens", Kind.TEXT, {"max_tokens": 1.2e29}),
    ("max_completion_tokens", Kind.CHAT, {"max_completion_tokens": -1}),
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
    ("n", Kind.CHAT, {"n": 0}),
    ("n", Kind.CHAT, {"n": 129}),
    ("n", Kind.CHAT, {"n": True}),
    ("n", Kind.CHAT, {"n": "2"}),
    ("n", Kind.CHAT, {"n": 2.0}),
    ("best_of", Kind.TEXT, {"best_of": 3}),
    ("best_of", Kind.TEXT, {"n": 2, "best_of": 1}),
    ("best_of", Kind.TEXT, {"best_of": "1"}),
    ("logprobs", Kind.CHAT, {"logprobs": 5}),
    ("logprobs", Kind.TEXT, {"logprobs": True}),
    ("logprobs", Kind.TEXT, {"logprobs": 21}),
    ("logprobs", Kind.TEXT, {"logprobs": -1}),
    ("top_logprobs", Kind.CHAT, {"logprobs": True, "top_logprobs": 21}),
    ("top_logprobs", Kind.CHAT, {"logprobs": True, "top_logprobs": -1}),
    ("top_logprobs", Kind.CHAT, {"logprobs": True, "top_logprobs": True}),
    ("top_logprobs", Kind.CHAT, {"top_logprobs": 2}),
    ("messages.0", Kind.CHAT, {"messages": ["hello"]}),
    ("prompt", Kind.TEXT, {"prompt": []}),
    ("temperature", Kind.CHAT, {"temperature": 2.1}),
    ("logit_bias.x", Kind.CHAT, {"logit_bias": {"x": 1}}),
    ("echo", Kind.TEXT, {"echo": True}),
]


@pytest.mark.parametrize(("path", "kind", "fields"), WRONG)
def test_a_mistake_is_named_with_its_path(path: str, kind: Kind, fields: dict[str, Any]) -> None:
    whole = {"model": "m", "messages": HELLO, "prompt": "hello"} | fields
    found = mistake(kind, whole)
    assert found.path == path
    assert str(found).startswith(f"{path}: ")


def test_a_mistake_shows_what_was_written_but_not_all_of_it() -> None:
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


# Few letters: what matters is the shape, and drawing from all of Unicode takes seconds to set up.
words = st.text("ab", max_size=3)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
KNOWN = sorted(
    {name for _, _, fields in WRONG for name in fields} | {"model", "ignore_eos"} | {*UNOFFERED}
)


@given(st.sampled_from(Kind), st.dictionaries(st.sampled_from(KNOWN), json))
def test_any_json_is_a_request_or_a_mistake(kind: Kind, body: dict[str, object]) -> None:
    try:
        request = parse(kind, body, DEFAULTS)
    except RequestInvalid:
        return
    assert 1 <= request.choices <= 128
    assert request.logprobs is None or 0 <= request.logprobs <= 20
    assert request.max_tokens is None or request.max_tokens >= 1
    assert len(request.stops) <= 4
