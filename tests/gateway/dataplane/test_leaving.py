"""Clients that leave: the instance's work ends at once, nobody is blamed, nothing is held."""

from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from gateway.records import BLAMES_INSTANCE, Outcome
from gateway.state.shared import ATTEMPTS
from tests.gateway.dataplane.rig import get, ok, post
from tests.gateway.dataplane.sockets import Peer, Street, on_uvloop, street

JSON_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
)
EVENTS_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAMS: Final = b'{"model":"m","stream":true}'
UPLOAD: Final = b"POST /u HTTP/1.1\r\nhost: g\r\ncontent-length: 99\r\n\r\npart"

Begin = Callable[[Street], Awaitable[tuple[Peer, Peer]]]


async def before_a_plain_answer(met: Street) -> tuple[Peer, Peer]:
    return await met.asked(post())


async def before_a_stream(met: Street) -> tuple[Peer, Peer]:
    return await met.asked(post(STREAMS))


async def in_a_plain_answer(met: Street) -> tuple[Peer, Peer]:
    client, instance = await met.asked(post())
    instance.send(JSON_HEAD + b'{"half":')
    await client.until(b'{"half":')
    return client, instance


async def in_a_silent_stream(met: Street) -> tuple[Peer, Peer]:
    client, instance = await met.asked(post(STREAMS))
    instance.send(EVENTS_HEAD + b"9\r\ndata: 1\n\n\r\n")
    await client.until(b"data: 1\n\n\r\n")
    return client, instance


async def behind_a_bare_head(met: Street) -> tuple[Peer, Peer]:
    client, instance = await met.asked(post(STREAMS))
    instance.send(EVENTS_HEAD)
    await client.until(b"\r\n\r\n")
    return client, instance


async def in_an_upload(met: Street) -> tuple[Peer, Peer]:
    return await met.asked(UPLOAD)


async def with_the_next_request_sent(met: Street) -> tuple[Peer, Peer]:
    return await met.asked(get(b"/1") + get(b"/2"))


STAGES: Final[list[Begin]] = [
    before_a_plain_answer,
    before_a_stream,
    in_a_plain_answer,
    in_a_silent_stream,
    behind_a_bare_head,
    in_an_upload,
    with_the_next_request_sent,
]


def blamed(met: Street) -> int:
    """Attempts that count against an instance."""
    totals = met.rig.segment.slot_totals(1)
    return sum(totals[ATTEMPTS + outcome] for outcome in Outcome if outcome in BLAMES_INSTANCE)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("begin", STAGES)
@on_uvloop
async def test_the_instance_s_work_ends_with_its_client(begin: Begin, how: str) -> None:
    """Nothing else has to happen: no byte of the instance, no deadline. Who waits for the next
    write to notice burns a device for a whole prompt, in plain answers as in streams."""
    async with street() as met:
        client, instance = await begin(met)
        assert met.in_flight() == 1
        client.leave(how)
        assert await instance.end() in ("eof", "reset")
        assert met.in_flight() == 0
        assert met.rig.outcomes() == {"client_gone": 1}
        assert blamed(met) == 0
        assert met.rig.suspected == []
        assert met.plane.pool.size == 0  # half a response is on it
        assert met.plane.held_bytes == 0


@pytest.mark.parametrize("begin", [before_a_stream, in_a_silent_stream])
@on_uvloop
async def test_fifty_that_leave_count_as_that_and_blame_nobody(begin: Begin) -> None:
    """A canary is rolled back for its own failures, not for impatience."""
    async with street() as met:
        pairs = [await begin(met) for _ in range(50)]
        assert met.in_flight() == 50
        for client, _ in pairs:
            client.leave()
        for _, instance in pairs:
            await instance.end()
        assert met.rig.outcomes() == {"client_gone": 50}
        assert blamed(met) == 0
        assert met.rig.suspected == []
        assert met.in_flight() == 0


@pytest.mark.parametrize("how", ["close", "reset"])
@on_uvloop
async def test_a_client_that_leaves_while_it_waits_for_room_leaves_its_place(how: str) -> None:
    async with street(limit=1) as met:
        first, instance = await met.asked(get())
        client = await met.client()
        client.send(post())
        client.leave(how)
        await met.left()
        assert met.plane.waitroom.size == 0
        assert met.rig.segment.waiting(1) == 0
        assert met.rig.outcomes() == {"client_gone": 1}
        instance.send(ok())
        await first.until(b"fine")
        assert met.in_flight() == 0  # nobody took the place of one who is not there
        assert not met.waits_to_be_accepted()
