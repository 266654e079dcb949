"""Heads of one connection, each made from the one before: every one is read like a first one.

What a reader remembers may save it work, and nothing else: whatever moves, doubles, goes, comes, or
changes its value or its spelling, and wherever it stands, a head means what it says.
"""

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.heads import RequestHead, ResponseHead
from gateway.wire.lines import REQUEST_NAMES, RESPONSE_NAMES, LineMemo
from tests.gateway.wire.depth import looks
from tests.gateway.wire.test_heads import told

Lines = list[bytes]
Step = tuple[str, int, int, bytes]

REQUEST: Final = (
    b"POST /v1/completions HTTP/1.1",
    b"Host: g",
    b"Connection: keep-alive",
    b"X-Request-Id: 1",
    b"traceparent: 1",
    b"X-A: 1",
    b"Content-Length: 5",
    b"X-Forwarded-For: 1",
)
RESPONSE: Final = (
    b"HTTP/1.1 200 OK",
    b"Date: 1",
    b"X-Request-Id: 1",
    b"Content-Type: text/plain",
    b"X-A: 1",
    b"Content-Length: 5",
)
STARTS: Final = (
    b"POST /v1/completions HTTP/1.0",
    b"GET http://other/x HTTP/1.1",
    b"HTTP/1.1 103 Hints",
    b"HTTP/1.0 200 OK",
    b"HTTP/1.1 204 No",
)
NAMES: Final = (
    b"Content-Length|content-length|Transfer-Encoding|Connection|Host|Expect|Upgrade|X-Model|"
    b"X_Model|X-Model-Version|X-Session-Id|X-Request-Id|x-request-id|X-Forwarded-For|Forwarded|"
    b"traceparent|Date|X-A|x-a|Authorization|Content-Encoding|Content-Type|X-Sluicegate-Refused|TE"
).split(b"|")
VALUES: Final = (
    b"|1|2|03|7 |\t8| 9|5, 5|+5|-5|5\x00|5\r|5\n|\n5|\xb2|\xff|1\x7f|1\t1|9999999999999999|"
    b"chunked|x-a, date|traceparent|content-length|close|100-continue|gzip|identity|m|"
    b"text/event-stream|1\r\nX-Model: m|1\r\nContent-Length: 6|1\r\n\r\n1|1\r\n 2|: 1"
).split(b"|")
HOW: Final = ("name", "move", "double", "drop", "add", "start")
# Mostly one line changes its value, which is learned at the second head; then comes the rest.
VALUE_CHANGES: Final = st.tuples(
    st.just("value"), st.just(0), st.integers(1, 9), st.sampled_from(VALUES)
)
NUMBER_CHANGES: Final = st.tuples(
    st.just("number"), st.just(0), st.integers(1, 9), st.sampled_from(VALUES)
)
OTHER_CHANGES: Final = st.tuples(
    st.sampled_from(HOW), st.integers(1, 9), st.integers(1, 9), st.sampled_from(VALUES)
)
STEPS: Final = st.lists(
    st.one_of(NUMBER_CHANGES, NUMBER_CHANGES, VALUE_CHANGES, OTHER_CHANGES),
    min_size=3,
    max_size=12,
)
EXTRA: Final = st.lists(st.sampled_from(NAMES), max_size=3)


def changed(lines: Lines, step: Step, spot: int) -> Lines:
    """The lines after one change of this kind; at 0: where most of them are."""
    how, at, other, value = step
    at = min(at or spot, len(lines) - 1)
    name, _, old = lines[at].partition(b":")
    match how:
        case "start":
            return [STARTS[other % len(STARTS)], *lines[1:]]
        case "add":
            return [*lines[:other], NAMES[at * other % len(NAMES)] + b": " + value, *lines[other:]]
    if at == 0:
        return lines
    rest = [*lines[:at], *lines[at + 1 :]]
    match how:
        case "value":
            return [*lines[:at], name + b": " + value, *lines[at + 1 :]]
        case "number":
            return [*lines[:at], b"%s: %d" % (name, other), *lines[at + 1 :]]
        case "name":
            return [*lines[:at], NAMES[other] + b":" + old, *lines[at + 1 :]]
        case "move":
            return [*rest[:other], lines[at], *rest[other:]]
        case "double":
            return [*lines[:at], lines[at], *lines[at:]]
    return rest


def request_reader(memo: LineMemo) -> RequestHead:
    return RequestHead(memo, {})


def response_reader(memo: LineMemo) -> ResponseHead:
    return ResponseHead(memo, {})


Reader = Callable[[LineMemo], RequestHead | ResponseHead]
KINDS: Final[dict[str, tuple[Reader, tuple[bytes, ...], dict[bytes, int]]]] = {
    "request": (request_reader, REQUEST, REQUEST_NAMES),
    "response": (response_reader, RESPONSE, RESPONSE_NAMES),
}


@pytest.mark.parametrize("kind", KINDS)
@looks(20)
@given(EXTRA, st.integers(1, 9), STEPS, st.sets(st.integers(0, 12), max_size=2), st.booleans())
def test_each_head_is_read_like_the_first_of_a_connection(
    kind: str, extra: Lines, spot: int, steps: list[Step], let_go: set[int], goes_back: bool
) -> None:
    """`let_go`: after which heads the lines are forgotten, as an exchange does. `goes_back`: the
    one after a refused head is made from the last good one."""
    reader, begin, names = KINDS[kind]
    used = reader(LineMemo(names))
    lines: Lines = [*begin, *(name + b": 1" for name in extra)]
    for number, step in enumerate(steps):
        before = lines
        lines = changed(lines, step, spot)
        head = b"\r\n".join(lines)
        found = told(used, head)
        assert found == told(reader(LineMemo(names)), head)
        if isinstance(found, str) and goes_back:
            lines = before
        if number in let_go and not isinstance(found, str):
            used.forget_lines()
