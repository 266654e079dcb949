"""The last answer on a connection is whole, whatever its client has sent behind the request.

Closing a socket with input that was not read resets it, and the client loses what was on the way.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.gateway.dataplane.rig import Rig, get, ok
from tests.gateway.dataplane.sockets import Peer, Street, on_uvloop, street
from tests.gateway.plain import BOUNDS, TIMEOUTS, route, table, target, version

HEAD_MAX: Final = 1000  # of the input behind a request so much is kept; the rest is left unread
SHORT_HEADS: Final = replace(BOUNDS, head_max_bytes=HEAD_MAX)
SURPLUS: Final = b"G" * 4 * HEAD_MAX
BODY: Final = b"x" * (1 << 20)  # more than goes out at once
COUNTED: Final = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(BODY)
UNCOUNTED: Final = b"HTTP/1.1 200 OK\r\n\r\n"

End = Callable[[Street, Peer], Awaitable[None]]


async def nothing_more(met: Street, instance: Peer) -> None:
    """Its length says where it ends."""


async def our_own_end(met: Street, instance: Peer) -> None:
    met.plane.closing = True


async def its_close(met: Street, instance: Peer) -> None:
    instance.finish()


CASES: Final[dict[str, tuple[bytes, bytes, End]]] = {
    "the client says close": (get(b"/x", b"connection: close"), COUNTED, nothing_more),
    "HTTP/1.0": (b"GET /x HTTP/1.0\r\nhost: g\r\n\r\n", COUNTED, nothing_more),
    "an answer without a length": (get(), UNCOUNTED, its_close),
}


@pytest.mark.parametrize("case", CASES)
@on_uvloop
async def test_an_answer_is_whole_in_front_of_a_close_with_unread_input(case: str) -> None:
    request, head, end = CASES[case]
    async with street(bounds=SHORT_HEADS) as met:
        client, instance = await met.asked(request)
        client.send(SURPLUS)
        instance.send(head)
        await client.until(b"\r\n\r\n")  # the loop came round: the gateway reads no more
        client.send(SURPLUS)
        await instance.send_all(BODY)
        await end(met, instance)
        assert await client.rest() == BODY
        assert met.rig.outcomes() == {"served": 1}


@on_uvloop
async def test_a_closing_worker_s_answer_is_whole_in_front_of_unread_input() -> None:
    async with street(bounds=SHORT_HEADS) as met:
        client, instance = await met.asked(get())
        met.plane.closing = True
        client.send(SURPLUS)
        instance.send(b"HTTP/1.1 103 Hints\r\n\r\n")
        await client.until(b"\r\n\r\n")
        client.send(SURPLUS)
        instance.send(ok(b"fine"))
        assert (await client.rest()).endswith(b"\r\n\r\nfine")


@on_uvloop
async def test_a_refusal_is_whole_in_front_of_a_close_with_unread_input() -> None:
    """The instance is lost while more than a head is held behind a request that is the last."""
    async with street(bounds=SHORT_HEADS) as met:
        client, instance = await met.asked(get(b"/x", b"connection: close"))
        client.send(SURPLUS)
        instance.send(b"HTTP/1.1 103 Hints\r\n\r\n")
        await client.until(b"\r\n\r\n")
        client.send(SURPLUS)
        instance.leave("reset")
        answer = await client.rest()
        assert b" 502 " in answer
        assert b"connection: close\r\n" in answer


async def test_a_client_that_goes_on_after_its_last_answer_has_its_time_and_no_more() -> None:
    times = replace(TIMEOUTS, client_idle_s=5)
    rig = Rig(table(1, route(version(target(1, 1))), bounds=SHORT_HEADS, timeouts=times))
    client, instance = await rig.asked(get(b"/x", b"connection: close"))
    client.feed(SURPLUS)
    instance.feed(ok())
    assert client.out.endswith(b"fine")
    for _ in range(8):
        if not client.closed and client.reading:
            client.feed(SURPLUS)
            rig.later(1)
    assert client.closed
    assert client.protocol.pending == b""
    assert rig.outcomes() == {"served": 1}
    rig.close()
