"""Answers that were cut: a client can always tell."""

from typing import Final

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.dataplane.rig import Rig, code_of, get, ok, post, status_of
from tests.gateway.dataplane.sockets import on_uvloop, street
from tests.gateway.plain import route, table, target, version
from tests.gateway.wire.crooked import CUTS, cut
from tests.gateway.wire.depth import looks

EVENTS_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
RESPONSES: Final = {
    "chunks": EVENTS_HEAD + b"9\r\ndata: 1\n\n\r\n9;a=b\r\ndata: 2\n\n\r\n0\r\n\r\n",
    "chunks and trailers": EVENTS_HEAD + b"9\r\ndata: 1\n\n\r\n0\r\nX-Sum: 1\r\n\r\n",
    "a length": ok(b'{"choices": []}', b"content-type: application/json"),
    "interim, then a length": b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + ok(b"fine"),
}


def whole(said: bytes, asked: bytes) -> bool:
    """Whether a client that reads all of this until the close takes the answer for complete."""
    reads = h11.Connection(h11.CLIENT)
    reads.send(h11.Request(method=asked.split(b" ")[0], target="/", headers=[("host", "g")]))
    reads.send(h11.EndOfMessage())
    reads.receive_data(said)
    reads.receive_data(b"")
    try:
        while not isinstance(event := reads.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.ConnectionClosed) or event is h11.NEED_DATA:
                return False
    except h11.RemoteProtocolError:
        return False
    return True


@looks(2)
@given(st.sampled_from(sorted(RESPONSES)), st.integers(0, 300), CUTS, st.booleans())
async def test_no_part_of_an_answer_looks_like_a_whole_one(
    kind: str, end: int, cuts: list[int], in_order: bool
) -> None:
    """Wherever it is cut, and however its connection ends (RFC 9112 8): what the client was sent
    is what the instance sent, nothing is made up at its end, and it does not parse as complete."""
    response = RESPONSES[kind]
    rig = Rig(table(1, route(version(target(1, 1)))))
    client, instance = await rig.asked(post())
    part = response[: end % len(response)]
    for piece in cut(part, cuts):
        if not instance.closed:
            instance.feed(piece)
    if in_order:
        instance.feed_eof()
    else:
        instance.end(ConnectionResetError())
    assert client.closed or b"\r\nx-sluicegate-error: instance_reset\r\n" in client.out
    if b"x-sluicegate-error" not in client.out:
        assert not whole(client.out, b"POST")
        assert client.out.count(b"data: ") <= part.count(b"data: ")
        assert not client.out.endswith(b"0\r\n\r\n")
        assert b"[DONE]" not in client.out
        assert b"error" not in client.out
    assert rig.outcomes() in ({"truncated": 1}, {"reset": 1})
    rig.check()
    rig.close()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("kind", RESPONSES)
@on_uvloop
async def test_a_client_sees_the_cut_of_its_connection(kind: str, how: str) -> None:
    async with street() as met:
        client, instance = await met.asked(post())
        part = RESPONSES[kind][:-4]
        instance.send(part)
        mark = part[-3:] if how == "close" else b"\r\n\r\n"
        if how == "reset":  # which may overtake what was sent before it
            await client.until(mark)
        instance.leave(how)
        await client.end()
        assert not whole(client.received, b"POST")
        assert met.rig.outcomes() == {"truncated": 1}
        assert met.in_flight() == 0


@pytest.mark.parametrize("old", [False, True], ids=["HTTP/1.1", "HTTP/1.0"])
@on_uvloop
async def test_a_body_that_ends_with_its_connection_is_reset_when_it_is_cut(old: bool) -> None:
    """A close would be its proper end: only a reset tells (RFC 9112 8)."""
    async with street() as met:
        request = b"GET / HTTP/1.0\r\n\r\n" if old else get()
        client, instance = await met.asked(request)
        head = EVENTS_HEAD if old else b"HTTP/1.1 200 OK\r\n\r\n"
        instance.send(head + (b"9\r\ndata: 1\n\n\r\n" if old else b"data: 1\n\n"))
        await client.until(b"data: 1\n\n")
        instance.leave("reset")
        assert await client.end() == "reset"
        assert met.rig.outcomes() == {"truncated": 1}


@on_uvloop
async def test_a_body_that_ends_with_its_connection_ends_in_order_with_it() -> None:
    async with street() as met:
        client, instance = await met.asked(get())
        instance.send(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        instance.leave()
        assert (await client.rest()).endswith(b"\r\n\r\nall of it")
        assert met.rig.outcomes() == {"served": 1}


@pytest.mark.parametrize("minor", [b"0", b"1"])
@pytest.mark.parametrize("broken", [b"zz\r\n", b"9\r\ndata: 1\n\nXX", b"1\nx\n"])
async def test_an_answer_broken_in_the_read_of_its_head_is_a_502(
    broken: bytes, minor: bytes
) -> None:
    """Nothing of it has been sent, so the client need not be cut: it can be told."""
    rig = Rig(table(1, route(version(target(1, 1)))))
    client, instance = await rig.asked(
        b"GET /x HTTP/1.%s\r\nhost: g\r\nconnection: keep-alive\r\n\r\n" % minor
    )
    instance.feed(EVENTS_HEAD + broken)
    assert instance.closed == "aborted"
    assert (status_of(client.out), code_of(client.out)) == (502, "instance_bad_framing")
    assert client.out.count(b"HTTP/1.1 ") == 1
    assert rig.outcomes() == {"instance_error": 1}
    assert not client.closed
    client.take()
    client.feed(get())
    await rig.dialled()
    rig.busy(client).feed(ok(b"next"))
    assert client.out.endswith(b"\r\n\r\nnext")
    rig.check()
    rig.close()


async def test_an_answer_broken_behind_its_head_is_cut() -> None:
    rig = Rig(table(1, route(version(target(1, 1)))))
    client, instance = await rig.asked(get())
    instance.feed(EVENTS_HEAD)
    instance.feed(b"zz\r\n")
    assert client.closed
    assert client.out.count(b"HTTP/1.1 ") == 1
    assert not whole(client.out, get())
    rig.close()
