"""No two parsers count our messages differently: crooked input through whole connections.

The n-th request that an instance gets is the n-th that another parser finds in the client's bytes,
or there is none; what goes on is one clean message that all parsers read in one way.
"""

import re
from contextlib import suppress
from typing import Any, Final, NamedTuple

import h11
import httptools
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.dataplane.rig import FakeTransport, Rig, ok
from tests.gateway.plain import route, table, target, version
from tests.gateway.wire.crooked import (
    CHUNKED,
    CUTS,
    REQUEST_HEADS,
    RESPONSE_HEADS,
    crooked,
    cut,
)
from tests.gateway.wire.depth import looks
from tests.gateway.wire.test_differential import origin

END: Final = b"\r\n\r\n"
CHUNKED_POST: Final = b"POST /c HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n"
SOUND: Final = st.sampled_from(
    [
        b"GET /a HTTP/1.1\r\nHost: g\r\n\r\n",
        b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"POST /b HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\n\r\nhello",
        b"DELETE /d HTTP/1.1\r\nhost: g\r\ncontent-length: 28\r\n\r\n"
        b"GET /x HTTP/1.1\r\nHost: g\r\n\r\n",
        CHUNKED_POST + b"1c;x=y\r\nGET /x HTTP/1.1\r\nHost: g\r\n\r\n\r\n0\r\nX-T: 1\r\n\r\n",
        b"\r\n\r\nHEAD /e HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n",
    ]
)
STREAMS: Final = st.lists(
    st.one_of(
        SOUND,
        SOUND,
        crooked(SOUND),
        REQUEST_HEADS.map(lambda head: head + END),
        CHUNKED.map(lambda body: CHUNKED_POST + body),
    ),
    min_size=1,
    max_size=3,
).map(b"".join)
# What names no model goes to the default one; then none is answered by ourselves and followed.
NAMES_A_MODEL: Final = re.compile(rb"/v1/completions|x-model", re.IGNORECASE)
UNNAMED: Final = STREAMS.map(lambda stream: NAMES_A_MODEL.sub(b"/x", stream))


class Request(NamedTuple):
    method: bytes
    path: bytes
    body: bytes


class _Callbacks:
    def __init__(self) -> None:
        self.parser: Any = None
        self.found: list[Request] = []

    def on_message_begin(self) -> None:
        self.target = self.body = b""

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        method: bytes = self.parser.get_method()
        self.found.append(Request(method, origin(self.target)[0], self.body))


def found_by_llhttp(stream: bytes) -> list[Request]:
    seen = _Callbacks()
    seen.parser = parser = httptools.HttpRequestParser(seen)
    with suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        parser.feed_data(stream)
    return seen.found


def found_by_h11(stream: bytes) -> list[Request]:
    reads = h11.Connection(h11.SERVER, 1 << 20)
    reads.receive_data(stream)
    found: list[Request] = []
    request: h11.Request | None = None
    body = b""
    try:
        while True:
            event = reads.next_event()
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert request is not None
                found.append(Request(request.method, origin(request.target)[0], body))
                reads.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                reads.send(h11.EndOfMessage())
                reads.start_next_cycle()
            else:
                return found
    except (h11.RemoteProtocolError, h11.LocalProtocolError):
        return found


async def relayed(rig: Rig, stream: bytes, cuts: list[int]) -> tuple[FakeTransport, list[bytes]]:
    """Everything sent and answered: the client, and each instance connection's bytes."""
    client = rig.client()
    exchange = client.protocol.exchange
    for piece in cut(stream, cuts):
        if not client.closed and client.reading:
            client.feed(piece)
        await rig.dialled()
        while exchange.complete and exchange.claim.held:
            head = exchange.request.start.method == b"HEAD"
            rig.busy(client).feed(ok(b"" if head else b"fine"))
            await rig.dialled()
    return client, [instance.out for instance in rig.loop.instances]


@looks(3)
@given(UNNAMED, CUTS)
async def test_the_nth_request_is_the_same_to_every_parser(stream: bytes, cuts: list[int]) -> None:
    rig = Rig(table(1, route(version(target(1, 1)))))
    _, sent = await relayed(rig, stream, cuts)
    ours = found_by_h11(b"".join(sent))
    for others in (found_by_llhttp(stream), found_by_h11(stream)):
        for mine, theirs in zip(ours, others, strict=False):
            assert mine == theirs
    rig.check()
    rig.close()


OF_THE_HOP = frozenset({b"connection", b"upgrade", b"te", b"keep-alive", b"expect"})


@looks(2)
@given(REQUEST_HEADS)
async def test_a_head_that_goes_on_is_clean_to_every_parser(head: bytes) -> None:
    """One framing, one host, no field of the hop behind: nothing is left for two servers to read in
    two ways."""
    rig = Rig(table(1, route(version(target(1, 1)))))
    client = rig.client()
    client.feed(head + END)
    await rig.dialled()
    if rig.loop.instances:
        (instance,) = rig.loop.instances
        lines = instance.out.partition(END)[0].split(b"\r\n")[1:]
        names = [line.partition(b":")[0].lower() for line in lines]
        assert names.count(b"host") == 1
        assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
        assert OF_THE_HOP.isdisjoint(names)
        # Some servers read a field of this kind as the one that it imitates.
        imitated = {name.replace(b"_", b"-") for name in names if b"_" in name}
        assert imitated.isdisjoint({b"host", b"content-length", b"transfer-encoding", *OF_THE_HOP})
        assert b"\r" not in b"".join(lines)
        assert b"\n" not in b"".join(lines)
        reads = h11.Connection(h11.SERVER, 1 << 20)
        if instance.out.partition(b" HTTP/1.1\r\n")[0].isascii():  # raw UTF-8 is passed on too
            reads.receive_data(instance.out)
            assert isinstance(reads.next_event(), h11.Request)
    rig.close()


@looks(2)
@given(RESPONSE_HEADS, st.sampled_from([b"", b"fine", b"4\r\nfine\r\n0\r\n\r\n"]), st.booleans())
async def test_what_a_client_gets_is_clean_or_cut(head: bytes, body: bytes, resets: bool) -> None:
    """A response that no two clients read in two ways, whatever an instance wrote."""
    rig = Rig(table(1, route(version(target(1, 1)))))
    client, instance = await rig.asked(b"GET / HTTP/1.1\r\nHost: g\r\n\r\n")
    instance.feed(head + END + body)
    if not instance.closed:
        instance.end(ConnectionResetError() if resets else None)
    reads = h11.Connection(h11.CLIENT, 1 << 20)
    reads.send(h11.Request(method="GET", target="/", headers=[("host", "g")]))
    reads.send(h11.EndOfMessage())
    reads.receive_data(client.out)
    heads = 0
    while True:
        event = reads.next_event()  # raises if it is not clean
        if isinstance(event, h11.Response | h11.InformationalResponse):
            heads += 1
            names = [bytes(name) for name, _ in event.headers]
            assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
            assert set(names).isdisjoint({b"upgrade", b"te", b"keep-alive"})
        elif isinstance(event, h11.EndOfMessage) or event is h11.NEED_DATA or event is h11.PAUSED:
            break
    assert heads or client.closed
    assert rig.segment.in_flight(1) == 0
    rig.check()
    rig.close()
