"""Workers wake each other: on the real loop, and with nothing else that would wake them."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.dataplane.bells import Bells
from gateway.records import Outcome
from gateway.state.ledger import Ledger
from tests.gateway.dataplane.rig import ok, post, status_of
from tests.gateway.dataplane.sockets import Street, on_uvloop, street

MODEL = 1  # its section


@asynccontextmanager
async def neighbours(limit: int = 1) -> AsyncIterator[tuple[Street, Ledger, list[int]]]:
    """A worker in row 0 and the ledger of another one in row 1, with the bells of both."""
    bells = [os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2)]
    async with street(limit=limit) as met:
        other = Ledger(met.rig.segment, 1)
        met.plane.ledger.look_around()
        Bells(met.plane, met.rig.segment, 0, bells)
        try:
            yield met, other, bells
        finally:
            met.plane.loop.remove_reader(bells[0])
            for bell in bells:
                os.close(bell)


async def read_by_now(met: Street) -> None:
    """Whoever has sent something before this has been read; it waits for room."""
    behind = await met.client()
    behind.send(b"GET /v1/models HTTP/1.1\r\nhost: g\r\n\r\n")
    await behind.answer()
    assert met.plane.waitroom.size == 1


def rung(bell: int) -> int:
    """How often, since it was asked for last."""
    with suppress(BlockingIOError):
        return os.eventfd_read(bell)
    return 0


@on_uvloop
async def test_who_waits_here_goes_when_another_worker_gives_room_back() -> None:
    async with neighbours() as (met, other, bells):
        lease = other.open(1, MODEL, 1, b"", met.rig.now)
        client = await met.client()
        client.send(post())
        await read_by_now(met)
        other.settle(lease, Outcome.SERVED, met.rig.now, 0)
        os.eventfd_write(bells[0], 1)
        instance = await met.dialled()
        await instance.until(b'{"model":"m"}')
        assert rung(bells[0]) == 0  # it was heard
        instance.send(ok())
        assert status_of(await client.answer()) == 200


@pytest.mark.parametrize(("waits", "held", "times"), [(1, 0, 1), (0, 0, 0), (1, 2, 0)])
@on_uvloop
async def test_a_bell_is_rung_where_somebody_waits_and_there_is_room(
    waits: int, held: int, times: int
) -> None:
    """`held`: by the other worker, of two that the instance takes."""
    async with neighbours(limit=2) as (met, other, bells):
        client, instance = await met.asked(post())
        for _ in range(waits):
            other.wait_began(MODEL)
        leases = [other.open(1, MODEL, 1, b"", met.rig.now) for _ in range(held)]
        instance.send(ok())
        assert status_of(await client.answer()) == 200
        assert [rung(bell) for bell in bells] == [0, times]
        for lease in leases:
            other.settle(lease, Outcome.SERVED, met.rig.now, 0)
        for _ in range(waits):
            other.wait_ended(MODEL, 0)


@on_uvloop
async def test_room_that_somebody_here_takes_is_told_to_nobody() -> None:
    async with neighbours() as (met, other, bells):
        first, instance = await met.asked(post())
        second = await met.client()
        second.send(post())
        await read_by_now(met)
        other.wait_began(MODEL)
        instance.send(ok())
        await first.answer()
        await instance.until(b'{"model":"m"}')
        assert [rung(bell) for bell in bells] == [0, 0]
        instance.send(ok())
        await second.answer()
        assert [rung(bell) for bell in bells] == [0, 1]
        other.wait_ended(MODEL, 0)


@on_uvloop
async def test_a_bell_that_nobody_hears_holds_up_nobody() -> None:
    async with neighbours() as (met, other, bells):
        other.wait_began(MODEL)
        os.eventfd_write(bells[1], 2**64 - 2)  # as many as it can count
        client, instance = await met.asked(post())
        for again in (True, False):
            instance.send(ok())
            assert status_of(await client.answer()) == 200
            if again:
                client.send(post())
                await instance.until(b"\r\n\r\n")
        other.wait_ended(MODEL, 0)
