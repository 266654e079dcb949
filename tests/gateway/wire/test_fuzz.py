"""Bytes from anywhere: refused by name or read, in bounded memory, at a cost that grows with them.

`HYPOTHESIS_PROFILE=thorough` looks 25 times longer.
"""

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadFraming, GatewayError
from gateway.wire.bodies import BodyReader
from gateway.wire.chunks import SIZE_LINE_BYTES, ChunkReader
from gateway.wire.events import EventScanner
from gateway.wire.heads import RequestHead, ResponseHead
from gateway.wire.lines import REQUEST_NAMES, RESPONSE_NAMES, LineMemo
from tests.gateway.wire.crooked import CUTS, crooked, cut
from tests.gateway.wire.depth import looks
from tests.gateway.wire.test_heads import read

# Whole messages as clients and instances send them; damage makes the rest.
REQUESTS: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: application/json\r\n"
    b"Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
    b"User-Agent: OpenAI/Python 2.1.0\r\n"
    b"Authorization: Bearer sk-x\r\nX-Stainless-Lang: python\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/x HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: g\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAAB\r\nContent-Length: 2\r\n\r\n{}",
    b"GET http://g:80/x?y HTTP/1.1\r\nHost: other\r\nTE: trailers\r\nForwarded: for=1.2\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nConnection: Keep-Alive\r\nUser-Agent: ApacheBench/2.3\r\n\r\n",
    b"POST /u HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    b"4;name=value\r\nWiki\r\n5\r\npedia\r\n0\r\nExpires: never\r\n\r\n",
)
RESPONSES: Final = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    b'10\r\ndata: {"id":1}\n\n\r\n0\r\n\r\n',
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nX-Sluicegate-Refused: full\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nuntil the end",
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n",
)
ANY_BYTES: Final = st.one_of(
    st.binary(max_size=200),
    crooked(st.sampled_from([*REQUESTS, *RESPONSES]), slips_max=6),
    st.builds(bytes.__add__, st.sampled_from(REQUESTS), st.binary(max_size=80)),
)
CHUNKY: Final = st.one_of(
    st.binary(max_size=120),
    st.text('0159afAFgx;="\r\n\t :-_', max_size=60).map(str.encode),
    crooked(st.just(b"4;n=v\r\nWiki\r\n5\r\npedia\r\n0\r\nExpires: never\r\n\r\n"), slips_max=6),
)
EVENTFUL: Final = st.one_of(
    st.binary(max_size=120),
    st.text('data:event error{"}[DONE]\r\n ', max_size=120).map(str.encode),
    crooked(st.just(b'event: error\r\ndata: {"error": {"code": 5}}\r\n\r\n'), slips_max=6),
)


@looks(4)
@given(ANY_BYTES)
def test_heads_are_read_or_refused_and_nothing_is_made_up(raw: bytes) -> None:
    request = RequestHead(LineMemo(REQUEST_NAMES), {})
    response = ResponseHead(LineMemo(RESPONSE_NAMES), {})
    for head in (raw, raw.partition(b"\r\n\r\n")[0]):
        lines = head.split(b"\r\n")
        for reader in (request, response):
            try:
                reader.read(head)
            except GatewayError:
                continue
            assert [line for line in reader.kept if line not in lines] == []
            assert len(reader.kept) < len(lines)


@looks(4)
@given(CHUNKY, CUTS, st.booleans())
def test_chunks_are_walked_or_refused_and_nothing_is_made_up(
    raw: bytes, cuts: list[int], collects: bool
) -> None:
    reader = ChunkReader(collects)
    given_bytes = 0
    for piece in cut(raw, cuts):
        if reader.done:
            break
        try:
            used = reader.feed(piece)
        except BadFraming:
            break
        given_bytes += used
        assert 0 <= reader.kept <= used <= len(piece)
        assert used == len(piece) or reader.done
        content = sum(map(len, reader.payload or ()))
        assert content <= min(given_bytes, reader.size)
        assert (reader.payload is None) == (not collects)


@looks(2)
@given(CHUNKY, CUTS)
def test_a_body_that_streams_and_one_that_is_collected_are_the_same(
    raw: bytes, cuts: list[int]
) -> None:
    head = read(b"POST / HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked")
    streams, collects = BodyReader(), BodyReader()
    streams.begin(head, False, 50)
    collects.begin(head, True, 50)
    for piece in cut(raw, cuts):
        ends = [_fed(reader, piece) for reader in (streams, collects)]
        assert ends[0] == ends[1]
        assert (streams.size, streams.done) == (collects.size, collects.done)
        if not isinstance(ends[0], int) or streams.done:
            return


def _fed(reader: BodyReader, piece: bytes) -> int | str:
    try:
        return reader.feed(piece)
    except GatewayError as exc:
        return exc.refusal.code


@looks(4)
@given(EVENTFUL, CUTS)
def test_events_are_judged_alike_wherever_they_are_cut(raw: bytes, cuts: list[int]) -> None:
    whole, pieces, within = EventScanner(), EventScanner(), EventScanner()
    whole.feed(raw)
    for piece in cut(raw, cuts):
        pieces.feed(piece)
        within.look(b"\n" + piece + b"x", 1, 1 + len(piece))
    for scanner in (whole, pieces, within):
        scanner.finish()
        assert (scanner.answered, scanner.failed) == (whole.answered, whole.failed)


# --- memory ---

PIECE: Final = 4096
ENDLESS: Final[dict[str, tuple[bytes, bytes]]] = {
    # what it begins with, what then never ends
    "one large chunk": (b"fffffff\r\n", b"x" * PIECE),
    "small chunks": (b"", b"1\r\nx\r\n" * 20),
    "extensions": (b"", b"1;" + b"a" * 2000 + b"\r\nx\r\n"),
    "an extension": (b"1;", b"a" * PIECE),
    "an extension in drops": (b"1;", b"a"),
    "a trailer": (b"0\r\nx: ", b"a" * PIECE),
    "trailers": (b"0\r\n", b"x: 1\r\n" * 600),
    "zeros": (b"", b"0" * PIECE),
}
HELD_BYTES: Final = 2 * SIZE_LINE_BYTES + PIECE  # a line, its joining, and a piece


def held_after(feed: Callable[[bytes], Any], first: bytes, again: bytes, times: int) -> int:
    """Bytes that are kept more than before, once all of it has been fed or refused."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        try:
            feed(first)
            for _ in range(times):
                feed(bytes(bytearray(again)))  # a new object each time, as from a socket
        except BadFraming:
            pass
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_body_is_held_in_little_memory(name: str) -> None:
    reader = ChunkReader(False)
    assert held_after(reader.feed, *ENDLESS[name], times=500) < HELD_BYTES


@pytest.mark.parametrize("piece", [b"data: x", b"x" * PIECE, b"data: 1\n\n" * 100, b"\r", b"\n"])
def test_an_endless_stream_is_watched_in_little_memory(piece: bytes) -> None:
    scanner = EventScanner()
    assert held_after(scanner.feed, b"data: ", piece, times=500) < HELD_BYTES


# --- cost ---


def steps(call: Callable[[], object]) -> int:
    """Lines of our own code that ran; none where it is compiled."""
    count = 0

    def line(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def begins(frame: FrameType, event: str, argument: object) -> Any:
        return line if "/gateway/wire/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(begins)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def walk(pieces: list[bytes]) -> None:
    reader = ChunkReader(True)
    for piece in pieces:
        reader.feed(piece)


def watch(pieces: list[bytes]) -> None:
    scanner = EventScanner()
    for piece in pieces:
        scanner.feed(piece)


def heads(n: int) -> Iterator[Callable[[], object]]:
    line = b"GET / HTTP/1.1\r\nhost: g\r\n"
    yield lambda: read(line + b"\r\n".join(b"x-%d: y" % k for k in range(n)))
    yield lambda: read(line + b"connection: " + b"a, " * n)
    yield lambda: read(line + b"\r\n".join(b"connection: a%d" % k for k in range(n)))
    yield lambda: read(line + b"\r\n".join(b"x-forwarded-for: %d" % k for k in range(n)))
    yield lambda: read(line + b"x: " + b" " * n)
    yield lambda: read(b"GET /" + b"a?" * n + b" HTTP/1.1\r\nhost: g")


def bodies(n: int) -> Iterator[Callable[[], object]]:
    chunk = b"1;a=b\r\nx\r\n"
    yield lambda: walk([b"1\r\nx\r\n" * n])
    yield lambda: walk([chunk * n])
    yield lambda: walk(cut(chunk * n, [-1]))
    yield lambda: walk([b"%x\r\n" % n, *[b"x"] * n])
    yield lambda: walk([b"0\r\n", *[b"x: 1\r\n"] * n])
    yield lambda: watch([b"data: 1\n\n" * n])
    yield lambda: watch(cut(b"data: 1\r\n\r\n" * n, [-1]))
    yield lambda: watch([b"x"] * n)
    yield lambda: watch([b"\r\n"] * n)


@pytest.mark.parametrize("kind", [heads, bodies])
def test_twice_the_bytes_cost_twice_the_steps(
    kind: Callable[[int], Iterator[Callable[[], object]]],
) -> None:
    for once, twice in zip(kind(100), kind(200), strict=True):
        assert steps(twice) <= 2 * steps(once) + 20  # 20: what does not grow
