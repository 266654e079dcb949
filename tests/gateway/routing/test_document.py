"""Long bodies are read as orjson reads them, without being built."""

import gc
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.routing.document import (
    CONTAINERS_MAX,
    LONG,
    SHORTEN_FROM,
    STEPS,
    model_named,
    prompt_prefix,
    read_document,
    shortened,
)

# --- JSON of any shape, as text: hypothesis chooses the spelling too. <3*ab> stands for ababab ---

BLANK = st.sampled_from(["", "", "", " ", "\r\n\t ", "<300* >"])
# What a reader that only looks for quotes and brackets might fall over.
BITS = st.sampled_from(
    [
        *(r"\"", r"\\", r"\\\"", r"\n", r"\u006d", r"\ud83d\ude00", r"\u4f60", r"\\u0022"),
        *("{", "}", "[", "]", ",", ":", "a", r"\"model\": \"inner\"", "}],", r"\"}],\""),
        *("é", "你", "😀"),
    ]
)
SHORT = st.lists(BITS, max_size=6).map("".join)
SIZES = st.sampled_from([LONG - 40, LONG, LONG + 7, 2 * LONG])
RUN = st.builds(lambda size, bit: f"<{size // len(bit)}*{bit}>", SIZES, BITS)
TEXT = st.one_of(SHORT, st.builds("{}{}{}".format, SHORT, RUN, SHORT)).map('"{}"'.format)
NAMES = ["model", r"mod\u0065l", r"\u006dodel", r"\u006D\u006f\u0064\u0065\u006c", "Model"]
KEYS = st.one_of(
    st.sampled_from([*NAMES, "messages", "prompt", "input", "n"]).map('"{}"'.format), TEXT
)
NUMBERS = st.sampled_from(["0", "-1", "1.5e3", "true", "false", "null", "12345"])
LONG_LIST = st.builds(
    lambda size, one, blank: f"[<{size // 2}*{one},{blank}>0]",
    SIZES,
    st.one_of(NUMBERS, st.just("{}")),
    st.sampled_from(["", " "]),
)
LEAVES = st.one_of(TEXT, NUMBERS, LONG_LIST)


def joined(blank: str, brackets: str, parts: list[str]) -> str:
    return brackets[0] + blank + f"{blank},{blank}".join(parts) + blank + brackets[1]


def array_of(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(joined, BLANK, st.just("[]"), st.lists(values, max_size=4))


def object_of(values: st.SearchStrategy[str], size: int = 4) -> st.SearchStrategy[str]:
    member = st.builds("{}{}:{}{}".format, KEYS, BLANK, BLANK, values)
    return st.builds(joined, BLANK, st.just("{}"), st.lists(member, max_size=size))


VALUES = st.recursive(LEAVES, lambda inner: array_of(inner) | object_of(inner), max_leaves=6)
OBJECTS = object_of(VALUES, 6)


def expanded(pattern: str) -> bytes:
    run = re.compile(r"<(\d+)\*([^>]*)>")
    return run.sub(lambda found: found[2] * int(found[1]), pattern).encode()


def padded(pattern: str, at_front: bool) -> bytes:
    """The document, made long enough to be shortened."""
    member = f'"pad":"<{SHORTEN_FROM}*p>"'
    if ":" not in pattern:
        return expanded(f"{{{member}}}")
    if at_front:
        return expanded(f"{{{member},{pattern[1:]}")
    return expanded(f"{pattern[:-1]},{member}}}")


def begins(short: Any, whole: Any) -> bool:
    """Whether the one is the other, but for ends of long texts and lists."""
    if isinstance(whole, dict):
        pairs = zip(short.items(), whole.items(), strict=True)
        return all(begins(k, kk) and begins(v, vv) for (k, v), (kk, vv) in pairs)
    if isinstance(whole, list) and len(short) == len(whole):
        return all(map(begins, short, whole))
    if isinstance(whole, str | list):
        return bool(short == whole[: len(short)] and (len(short) == len(whole) or len(short) > 50))
    return bool(short == whole and type(short) is type(whole))


@given(OBJECTS, st.booleans())
@example('{"model": "<9000*m>"}', True)
@example('{"model": ["a"], "model": "b"}', False)
def test_a_model_and_a_prompt_are_read_as_orjson_reads_them(pattern: str, front: bool) -> None:
    body = padded(pattern, front)
    whole = orjson.loads(body)
    document = read_document(body)
    assert model_or_none(document) == model_or_none(whole)
    assert prompt_prefix(document) == prompt_prefix(whole)


def model_or_none(document: dict[str, Any]) -> str | None:
    try:
        return model_named(document)
    except GatewayError:
        return None


def without_long_keys(value: Any) -> bool:
    """Cut keys may fall together: then fewer are left, which `begins` does not follow."""
    if isinstance(value, dict):
        return all(len(k) < 300 and without_long_keys(v) for k, v in value.items())
    return all(map(without_long_keys, value)) if isinstance(value, list) else True


@given(OBJECTS, st.booleans())
@example('{"n": [<6000*1,>[<6000*1,>1]]}', True)
@example(r'{"n":"<40*\\>\" ","b":[<9000*1,>1],"c":"<40*\\>\" "}', True)
def test_what_is_shortened_is_the_document_but_for_long_ends(pattern: str, front: bool) -> None:
    body = padded(pattern, front)
    whole = orjson.loads(body)
    short = orjson.loads(shortened(body))
    assert not without_long_keys(whole) or begins(short, whole)


@pytest.mark.parametrize("one", [r"\ud83d\ude00", r"\u4f60", r"\n", "😀", "你", "é"])
def test_a_long_text_is_cut_between_two_characters_wherever_they_begin(one: str) -> None:
    for offset in range(len(one.encode())):
        short = shortened(expanded(f'{{"n":"<{offset}*a><9000*{one}>"}}'))
        assert len(short) < LONG
        text = orjson.loads(short)["n"]
        assert text == "a" * offset + orjson.loads(f'"{one}"') * (len(text) - offset)


# --- bodies that are not what they should be ---


TOKENS = re.compile(rb'"((?:[^"\\]|\\.)*+)"|[\[{]|[\]}]|[^]["{}\s]+', re.DOTALL)


def top_level(body: bytes) -> list[tuple[bytes, bytes]]:
    """Pairs of texts, as spelled, between which stands one colon, one bracket deep: by a reader
    that knows quotes, backslashes and brackets, and goes from one token to the next."""
    found: list[tuple[bytes, bytes]] = []
    depth = 0
    before, between = b"", b""
    for token in TOKENS.finditer(body):
        if token[1] is not None:
            if depth == 1 and between == b":":
                found.append((before, token[1]))
            before, between = token[1], b""
        else:
            depth += (token[0] in (b"[", b"{")) - (token[0] in (b"]", b"}"))
            between += token[0][:9]
    return found


WRONG = st.sampled_from([b"", b'"', b"\\", b"]", b"}", b"[", b"{", b",", b"\xff", b"\n"])
GONE = st.sampled_from([0, 0, 1, 2, LONG, 100 * LONG])


def damaged(pattern: str, front: bool, where: float, gone: int, wrong: bytes) -> bytes:
    """The document with something wrong in place of `gone` of its bytes."""
    body = padded(pattern, front)
    at = int(len(body) * where)
    return body[:at] + wrong + body[at + gone :]


DAMAGE = (OBJECTS, st.booleans(), st.floats(0, 1), GONE, WRONG)


@given(*DAMAGE)
def test_no_mistake_makes_a_model_of_what_is_not_at_the_top(
    pattern: str, front: bool, where: float, gone: int, wrong: bytes
) -> None:
    body = damaged(pattern, front, where, gone, wrong)
    with suppress(GatewayError):
        model = model_named(read_document(body))
        check_is_at_the_top(model, body)


def check_is_at_the_top(model: str, body: bytes) -> None:
    at_top = {said(value) for key, value in top_level(body) if said(key) == "model"}
    assert not model or model in at_top


def said(text: bytes) -> str | None:
    try:
        return str(orjson.loads(b'"%s"' % text))
    except orjson.JSONDecodeError:
        return None


@given(*DAMAGE, st.sampled_from(["NaN", r'"\ud800"', r'"<3000*\udc00>\ud800x"', r'"<3000*\\>"']))
def test_a_reader_that_takes_more_than_orjson_sees_the_same_model(
    pattern: str, front: bool, where: float, gone: int, wrong: bytes, odd: str
) -> None:
    """An instance may be lenient; it must not find another model than the one we routed by."""
    body = expanded(f'{{"odd":{odd},') + damaged(pattern, front, where, gone, wrong)[1:]
    try:
        model = model_named(read_document(body))
        lenient = json.loads(body, strict=False)
    except (GatewayError, ValueError):
        return
    assert lenient.get("model", "") == model


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 5}', b'{"model": null}', b"\xff"])
@pytest.mark.parametrize("size", [0, 2 * SHORTEN_FROM])
def test_a_body_that_cannot_name_a_model_is_a_bad_request(body: bytes, size: int) -> None:
    with pytest.raises(GatewayError) as caught:
        model_named(read_document(body + b" " * size))
    assert caught.value.refusal.code == "bad_request"


@pytest.mark.parametrize("wrong", ["[", "]", "{", "}"])
def test_a_bracket_too_many_in_a_long_list_is_not_overlooked(wrong: str) -> None:
    with pytest.raises(GatewayError):
        read_document(expanded(f'{{"n":[<20000*1,>{wrong}<20000*1,>1],"model":"m"}}'))


def test_a_mistake_is_told_at_its_place_in_the_body_as_sent() -> None:
    body = b'{"prompt": "%s", "n": 01}' % (b"x" * SHORTEN_FROM)
    with pytest.raises(GatewayError, match=re.escape(f"(char {SHORTEN_FROM + 20})")):
        read_document(body)


@given(st.text(max_size=20), st.text(max_size=20))
def test_the_last_model_of_a_body_counts(first: str, last: str) -> None:
    body = b'{"model": %s, "n": 1, "model": %s}' % (orjson.dumps(first), orjson.dumps(last))
    assert model_named(read_document(body)) == last


# --- what it costs ---


@pytest.mark.parametrize(
    "long", ['"<1000000*x>"', "[<100000*7,>7]", r'"<100000*\n你>"', r'"<9000*\ud83d\ude00>"']
)
@pytest.mark.parametrize("form", ['{"model":"m","prompt":%s}', '{"prompt":%s,"model":"m"}'])
def test_one_long_prompt_leaves_next_to_nothing_to_parse(form: str, long: str) -> None:
    assert len(shortened(expanded(form % long))) < LONG


@pytest.mark.parametrize("one", [b'"ab"', b'{"a":"b"}', b"[1,2]", rb'"\"\"\"\"\"\"\"\"\""'])
def test_a_body_of_many_small_things_is_given_up_after_a_few(one: bytes) -> None:
    class Counting(bytes):
        looks = 0

        def find(self, *args: Any) -> int:
            Counting.looks += 1
            return super().find(*args)

    body = Counting(b'{"input":[%s],"model":"m"}' % b",".join([one] * LONG))
    assert shortened(body) is body
    assert Counting.looks < 3 * STEPS


# --- affinity ---


def test_requests_that_share_a_system_prompt_share_a_prefix() -> None:
    one, two = (
        read_document(
            orjson.dumps({"messages": [{"role": "system", "content": "s" * size}, {"content": t}]})
        )
        for size, t in ((4000, "a"), (4000, "b" * SHORTEN_FROM))
    )
    assert prompt_prefix(one) == prompt_prefix(two) != b""
    assert prompt_prefix({}) == b""


def test_prompts_of_token_ids_differ_by_more_than_their_first_id() -> None:
    assert prompt_prefix({"prompt": [1, 15, 16]}) != prompt_prefix({"prompt": [1, 15, 17]})


@pytest.mark.parametrize("depth", [1, 200, 300, 900])
@pytest.mark.parametrize("field", ["prompt", "messages", "input"])
def test_what_is_nested_too_deep_to_be_written_has_no_prefix(field: str, depth: int) -> None:
    """orjson reads 1024 deep, and writes 255."""
    document = read_document(b'{"%s":%s}' % (field.encode(), b"[" * depth + b"1" + b"]" * depth))
    written = b"[" * (depth - 1) + b"1" + b"]" * (depth - 1)  # of its first
    if depth == 1:
        written = b"[1]"
    assert prompt_prefix(document) == (written if depth < 255 else b"")


# --- bodies of many small things ---


@contextmanager
def collections() -> Iterator[list[str]]:
    """The phases of collections that begin in the block."""
    seen: list[str] = []

    def look(phase: str, _: object) -> None:
        seen.append(phase)

    gc.callbacks.append(look)
    try:
        yield seen
    finally:
        gc.callbacks.remove(look)


def containers(count: int, one: bytes = b"[]") -> bytes:
    return b'{"model":"m","a":[%s]}' % b",".join([one] * count)


@pytest.mark.parametrize("one", [b"[]", b"{}"], ids=["lists", "objects"])
def test_a_body_of_too_many_containers_is_refused_and_told_what_to_do(one: bytes) -> None:
    """Building them takes the time of all requests of the worker: 15 MiB of [] stopped it for
    seconds."""
    with pytest.raises(GatewayError) as caught:
        read_document(containers(CONTAINERS_MAX, one))  # and the two around them
    assert caught.value.refusal.code == "bad_request"
    assert "x-model" in caught.value.message


def test_brackets_inside_of_a_long_text_are_no_containers() -> None:
    text = "[{" * CONTAINERS_MAX
    document = read_document(orjson.dumps({"prompt": text, "model": "m"}))
    assert model_named(document) == "m"


def test_nothing_is_collected_while_a_body_of_many_containers_is_read() -> None:
    """A document holds no cycle, and it would be looked at again and again while it grows."""
    body = containers(20_000)  # a collection is due after every 700
    assert len(body) > SHORTEN_FROM
    with collections() as seen:
        orjson.loads(body)
    assert seen  # it would be
    with collections() as seen:
        document = read_document(body)
        during = len(seen)
    assert during <= 2  # one, which begins and ends when they are let again
    assert len(document["a"]) == 20_000


@pytest.mark.parametrize("collects", [True, False])
@pytest.mark.parametrize(
    "body",
    [containers(20_000), b"[" * SHORTEN_FROM, containers(CONTAINERS_MAX)],
    ids=["read", "no JSON", "too many"],
)
def test_whether_garbage_is_collected_is_afterwards_as_before(body: bytes, collects: bool) -> None:
    gc.enable() if collects else gc.disable()
    try:
        with suppress(GatewayError):
            read_document(body)
        assert gc.isenabled() is collects
    finally:
        gc.enable()
