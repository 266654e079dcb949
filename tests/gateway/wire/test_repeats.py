"""Heads that differ in a few values: read at once, and read like any other."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.wire.heads import RequestHead, ResponseHead
from gateway.wire.lines import REQUEST_NAMES, RESPONSE_NAMES, LineMemo
from gateway.wire.repeats import PLACES_MAX, REPEATED_BYTES
from tests.gateway.wire.depth import looks
from tests.gateway.wire.test_heads import told

REQUEST = b"POST /v1/completions HTTP/1.1"
RESPONSE = b"HTTP/1.1 200 OK"


def request_reader() -> RequestHead:
    return RequestHead(LineMemo(REQUEST_NAMES), {})


def response_reader() -> ResponseHead:
    return ResponseHead(LineMemo(RESPONSE_NAMES), {})


def joined(*lines: bytes) -> bytes:
    return b"\r\n".join(lines)


def traced(number: int) -> bytes:
    own = b"traceparent: %d\r\nX-Request-Id: r%d\r\nX-Unique: %d" % (number, number, number)
    length = b"Content-Length: %d" % (10 * number)
    return joined(REQUEST, b"Host: g", length, own, b"Accept: a")


NAMES = st.sampled_from(
    (
        b"traceparent|X-Request-Id|x-request-id|Content-Length|X-Forwarded-For|X-Real-Ip|X-A|X-A|"
        b"Date|Connection|Transfer-Encoding|Host|Content-Encoding|Content-Type|X-Model|X_Model|"
        b"X-Session-Id|Expect|X-Sluicegate-Refused|X B|" + b"x" * 70
    ).split(b"|")
)
VALUES = st.sampled_from(
    b" 1| 2| 3|4 |\t5|| a, b| g| close| traceparent| x-a, date| chunked| gzip| identity|"
    b" 100-continue| text/event-stream| 9999999999999999| a\x00| a\rb| a\nb| +5| \xb2".split(b"|")
)
FIELDS = st.lists(st.tuples(NAMES, st.lists(VALUES, min_size=4, max_size=4)), max_size=6)


HEADS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), min_size=3, max_size=8)


@looks(4)
@given(FIELDS, st.sampled_from([b"0", b"1"]), HEADS)
@example(
    [(b"traceparent", [b" 1", b" 2", b" 3", b" a\rb"])], b"1", [(n, 9) for n in (0, 1, 2, 3, 2)]
)
@example([(b"Content-Length", [b" 1", b" 2", b" 03 ", b" +5"])], b"1", [(n, 9) for n in range(4)])
@example([(b"X-A", [b" 1", b" 2", b" 3", b" 4"])] * 2, b"1", [(n, 9) for n in range(4)])
@example([(b"X-Request-Id", [b" 1", b" 2", b"", b" 4 "])] * 2, b"1", [(n, 9) for n in range(4)])
def test_values_that_change_are_read_like_those_of_a_first_head(
    fields: list[tuple[bytes, list[bytes]]], minor: bytes, heads: list[tuple[int, int]]
) -> None:
    """Each head has the same names but for one; one that is refused does the next no harm."""
    for reader, start in (
        (request_reader, b"POST / HTTP/1.%s\r\nHost: g" % minor),
        (response_reader, b"HTTP/1.%s 200 OK" % minor),
    ):
        used = reader()
        for value, without in heads:
            lines = [name + b":" + values[value] for name, values in fields]
            head = joined(start, *lines[:without], *lines[without + 1 :])
            assert told(used, head) == told(reader(), head)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"traceparent: 3", b"X-Model: m"),
        (b"traceparent: 3", b"Content-Length: 3"),
        (b"traceparent: 3\r\n", b""),
        (b"traceparent: 3", b"traceparent: 3\r\nX-Model: m"),
        (b"traceparent: 3", b"traceparent: \x00"),
        (b"X-Request-Id: r3\r\nX-Unique: 3", b"X-Unique: 3\r\nX-Request-Id: r3"),
        (b"X-Request-Id:", b"X-Request-Id :"),
        (b"X-Unique: 3", b"X-Unique: " + b"3" * REPEATED_BYTES),
        (b"Length: 30", b"Length: +3"),
        (b"Length: 30", b"Length: "),
        (b"Length: 30", b"Length: " + b"3" * 16),
        (b"Host: g", b"Host: h"),
        (b"Host: g", b"Hose: g"),
        (b"completions", b"embeddings2"),
        (b"POST", b"HEAD"),
        (b"Accept: a", b"Accept: b"),
        (b"Accept: a", b"Connection: close"),
        (b"\r\nAccept: a", b""),
    ],
)
def test_a_head_that_differs_elsewhere_is_read_line_by_line(old: bytes, new: bytes) -> None:
    used = request_reader()
    for number in (1, 2):
        used.read(traced(number))
    head = traced(3).replace(old, new)
    assert head != traced(3)
    for again in (head, traced(4), traced(5)):
        assert told(used, again) == told(request_reader(), again)


def test_the_third_head_of_a_kind_is_not_read_line_by_line() -> None:
    head = request_reader()
    assert [seen_by_memo(head, traced(number)) for number in range(1, 5)] == [2, 2, 0, 0]
    assert (head.request_id, head.length, head.traced) == (b"r4", 40, True)
    assert head.kept == [b"traceparent: 4", b"X-Unique: 4", b"Accept: a"]
    assert head.framing == b"Content-Length: 40"


def seen_by_memo(head: RequestHead, raw: bytes) -> int:
    """How many lines the memo is asked to judge, and remembers; after it was emptied."""
    head._memo.seen.clear()
    head.read(raw)
    return len(head._memo.seen) - len({b"Host: g", b"Accept: a"} & set(head._memo.seen))


def test_values_that_are_new_each_time_fill_no_memo() -> None:
    """They would empty it again and again, and with it what all other clients share."""
    memo = LineMemo(REQUEST_NAMES)
    head = RequestHead(memo, {})
    for number in range(1, 500):
        head.read(traced(number))
    assert len(memo) <= 6  # two heads' lengths and unique lines, host and accept


def test_what_has_differed_before_may_differ_again() -> None:
    head = request_reader()
    kept = [[b"X-A: %d" % a, b"X-B: %d" % b] for a, b in ((1, 1), (2, 1), (2, 2), (3, 2), (3, 3))]
    for number, fields in enumerate(kept):
        head.read(joined(REQUEST, b"Host: g", b"X-0: 0", *fields))
        assert head.kept == [b"X-0: 0", *fields]
        names = [name for _, name, _, _ in head._places]
        assert names == [[], [b"X-A:"], [b"X-A:", b"X-B:"]][min(number, 2)]


def test_no_more_of_a_head_is_kept_than_the_bound() -> None:
    head = request_reader()
    for number, size in enumerate((1, 2, REPEATED_BYTES)):
        head.read(traced(number) + b"\r\nX-A: " + b"a" * size)
    assert (head._read, head._fixed) == (b"", b"")


def test_a_head_that_begins_otherwise_is_not_compared() -> None:
    head = request_reader()
    for number, path in enumerate((b"/a", b"/b", b"/a")):
        head.read(joined(b"GET %s HTTP/1.1" % path, b"Host: g", b"X-A: %d" % number))
        assert head._fixed == b""


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([b"Connection: x-a", b"X-A: %d"], id="named by Connection"),
        pytest.param([b"X-%c: %%d" % (65 + n) for n in range(PLACES_MAX + 1)], id="too many"),
        pytest.param([b"X-A: %d", b"X-B: " + b"b" * REPEATED_BYTES], id="too long"),
        pytest.param([b"x" * 70 + b": %d"], id="a name that is not remembered"),
        pytest.param([b"Content-Encoding: g%d"], id="a value that counts"),
        pytest.param([b"Content-Encoding: %d", b"X-Session-Id: %d"], id="values that count"),
    ],
)
def test_what_cannot_be_replaced_is_not_learned(fields: list[bytes]) -> None:
    head = request_reader()
    for number in range(3):
        lines = [field % number if b"%d" in field else field for field in fields]
        head.read(joined(REQUEST, b"Host: g", *lines))
        assert head._fixed == b""


@pytest.mark.parametrize("forget", ["let_go", "forget"])
def test_a_head_that_let_go_of_its_lines_knows_none(forget: str) -> None:
    head = request_reader()
    for number in range(3):
        head.read(traced(number))
    getattr(head, forget)()
    held = (head._read, head._fixed, head._tail, head._places, head.kept)
    assert held == (b"", b"", [], [], [])
    head.read(traced(3))
    assert head.kept == [b"traceparent: 3", b"X-Unique: 3", b"Accept: a"]


def test_a_refused_head_is_not_the_one_before_of_any() -> None:
    head = request_reader()
    for number in range(3):
        head.read(traced(number))
    with pytest.raises(GatewayError):
        head.read(joined(REQUEST, b"Host: other", b"Host: g"))
    head.read(traced(4))
    assert (head.host, head.length) == (b"g", 40)


def test_one_more_request_id_than_before_counts_as_ever() -> None:
    """The first one that is not empty, whatever was learned when there was one."""
    head = request_reader()
    ids = [b"X-Request-Id: %d" % number for number in range(6)]
    for first, second in pairwise(ids):
        head.read(joined(REQUEST, b"Host: g", first, second))
        assert head.request_id == first[14:]


def test_a_flood_of_names_does_not_make_two_ids_one() -> None:
    """Names are forgotten when there are too many: a line that nobody knows may be an id too."""
    memo = LineMemo(REQUEST_NAMES)
    head = RequestHead(memo, {})
    for number in range(4):
        lines = [b"X-Forwarded-For: 9.9.9.9", b"x-forwarded-for: %d" % number]
        head.read(joined(REQUEST, b"Host: g", *lines))
        memo._names.pop(b"X-Forwarded-For", None)
        assert head.forwarded_for == b"9.9.9.9, %d" % number
