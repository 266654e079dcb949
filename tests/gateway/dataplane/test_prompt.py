"""Nothing is held back: each event is at the client before the next one is made."""

import socket
from typing import Any, Final

import pytest

from tests.gateway.dataplane.rig import ok, post
from tests.gateway.dataplane.sockets import on_uvloop, street

CHUNKED_HEAD: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
EVENTS: Final = b"content-type: text/event-stream\r\n"
EVENT: Final = b"9\r\ndata: %d\n\n\r\n"


@pytest.mark.parametrize("kind", [EVENTS, b"content-type: application/x-ndjson\r\n"])
@on_uvloop
async def test_each_event_arrives_before_the_next_is_sent(kind: bytes) -> None:
    """In lock step: a buffer anywhere on the way would wait for what never comes. The head goes
    out before the first event, too, and so do comments and single bytes."""
    async with street() as met:
        client, instance = await met.asked(post())
        instance.send(CHUNKED_HEAD + kind + b"\r\n")
        assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        for piece in (EVENT % 1, b"8\r\n: ping\n\n\r\n", EVENT % 2, b"1", b"\r\n", b"x", b"\r\n"):
            instance.send(piece)
            assert await client.exactly(len(piece)) == piece
        instance.send(b"0\r\n\r\n")
        assert await client.exactly(5) == b"0\r\n\r\n"
        assert met.rig.outcomes() == {"served": 1}


@on_uvloop
async def test_each_part_of_an_upload_arrives_before_the_next_is_sent() -> None:
    async with street() as met:
        head = b"POST /u HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
        client, instance = await met.asked(head)
        for piece in (b"3\r\nabc\r\n", b"1", b"\r\n", b"x", b"\r\n", b"0\r\n\r\n"):
            client.send(piece)
            assert await instance.exactly(len(piece)) == piece


@on_uvloop
async def test_small_writes_leave_at_once_on_both_sides() -> None:
    """Or the kernel waits 40 to 200 ms for an acknowledgement before it sends the next token."""
    async with street() as met:
        client, instance = await met.asked(post())
        instance.send(ok())
        await client.answer()
        (ours,) = met.plane.clients
        theirs: Any = met.plane.pool.checkout(1, met.plane.now)
        for transport in (ours.transport, theirs.transport):
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        theirs.abandon()
