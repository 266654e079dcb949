"""A client that says it will send no more: it has left, or it listens still, as configured.

Either way it is never kept waiting, and nothing is held for it.
"""

from dataclasses import replace
from typing import Final

import pytest

from tests.gateway.dataplane.rig import Rig, get, ok, post, status_of
from tests.gateway.dataplane.sockets import on_uvloop, street
from tests.gateway.plain import BOUNDS, route, table, target, version

SERVES: Final = replace(BOUNDS, half_close="serve")
EVENTS: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b"9\r\ndata: 1\n\n\r\n"
)


@pytest.mark.parametrize("begun", [b"", EVENTS], ids=["waiting", "streaming"])
@on_uvloop
async def test_with_abort_it_has_left_and_the_instance_s_work_ends(begun: bytes) -> None:
    """What a device computes for nobody costs more than a client that closes half is worth."""
    async with street(bounds=BOUNDS) as met:
        client, instance = await met.asked(post())
        if begun:
            instance.send(begun)
            await client.until(b"data: 1\n\n")
        client.finish()
        await instance.end()
        await client.end()
        assert b"0\r\n\r\n" not in client.received  # never a clean end of a cut answer
        assert met.rig.outcomes() == {"client_gone": 1}
        assert met.in_flight() == 0


@pytest.mark.parametrize("begun", [b"", EVENTS], ids=["waiting", "streaming"])
@on_uvloop
async def test_with_serve_it_is_answered_and_then_closed(begun: bytes) -> None:
    async with street(bounds=SERVES) as met:
        client, instance = await met.asked(post())
        client.finish()
        if begun:
            instance.send(begun + b"0\r\n\r\n")
            assert (await client.rest()).endswith(b"data: 1\n\n\r\n0\r\n\r\n")
        else:
            instance.send(ok(b"fine"))
            assert (await client.rest()).endswith(b"\r\n\r\nfine")
        assert met.rig.outcomes() == {"served": 1}
        assert met.in_flight() == 0


@on_uvloop
async def test_with_serve_requests_sent_before_the_end_are_all_answered() -> None:
    async with street(bounds=SERVES) as met:
        client, instance = await met.asked(get(b"/1") + get(b"/2"))
        client.finish()
        instance.send(ok(b"one"))
        assert (await client.answer()).endswith(b"one")
        assert (await instance.until(b"\r\n\r\n")).startswith(b"GET /2 ")
        instance.send(ok(b"two"))
        assert (await client.rest()).endswith(b"two")
        assert met.rig.outcomes() == {"served": 2}


@pytest.mark.parametrize("bounds", [BOUNDS, SERVES], ids=["abort", "serve"])
@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"POST /u HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\nhalf"],
    ids=["nothing", "half a head", "half a body"],
)
@on_uvloop
async def test_an_end_before_a_whole_request_is_one_at_once(bounds: object, sent: bytes) -> None:
    """RFC 9112 8: an incomplete request is not acted on as if it were one."""
    async with street(bounds=bounds) as met:  # type: ignore[arg-type]
        client = await met.client()
        if sent:
            client.send(sent)
        instance = await met.dialled() if b"POST" in sent else None
        if instance is not None:
            await instance.until(b"half")
        client.finish()
        await client.end()
        assert client.received == b"" or status_of(client.received) == 400
        if instance is not None:
            await instance.end()
        assert met.in_flight() == 0
        assert not met.waits_to_be_accepted()


# --- pipelined, with answers of our own among them ---

HERE: Final = get(b"/v1/models")


def serving() -> Rig:
    return Rig(table(1, route(version(target(1, 1))), bounds=SERVES))


async def test_with_serve_answers_of_our_own_behind_an_instance_s_go_out_too() -> None:
    """The first of them found the end of the client's side, and closed in front of the others."""
    rig = serving()
    client, instance = await rig.asked(get() + HERE * 3)
    client.feed_eof()
    instance.feed(ok())
    assert client.out.count(b"HTTP/1.1 200 OK") == 4
    assert client.closed == "closed"
    assert rig.outcomes() == {"served": 1, "answered": 3}
    rig.close()


@pytest.mark.parametrize("behind", [0, 3])
async def test_with_serve_a_client_that_reads_slowly_is_answered_and_then_closed(
    behind: int,
) -> None:
    """With the last byte written to one that does not read, nothing closed it afterwards."""
    rig = serving()
    client, instance = await rig.asked(get() + HERE * behind)
    client.feed_eof()
    client.full = True
    instance.feed(ok())
    for _ in range(behind):
        assert not client.is_closing()
        client.full = True
        client.protocol.resume_writing()
    assert not client.is_closing()
    client.protocol.resume_writing()
    assert client.closed == "closed"
    assert client.out.count(b"HTTP/1.1 200 OK") == 1 + behind
    rig.close()


async def test_with_serve_whole_requests_behind_an_answer_that_is_not_read_are_served() -> None:
    """Between two requests, but the next ones are here already: it is no end before a request."""
    rig = serving()
    client = rig.client()
    client.full = True
    client.feed(HERE * 3)
    client.feed_eof()
    assert not client.is_closing()
    client.protocol.resume_writing()
    assert client.out.count(b"HTTP/1.1 200 OK") == 3
    assert client.closed == "closed"
    rig.close()


async def test_with_serve_half_a_request_behind_the_last_answer_is_not_waited_for() -> None:
    rig = serving()
    client, instance = await rig.asked(get() + b"GET /half HT")
    client.feed_eof()
    instance.feed(ok())
    assert client.out.count(b"HTTP/1.1 ") == 1
    assert client.closed == "closed"
    assert rig.outcomes() == {"served": 1}
    rig.close()
