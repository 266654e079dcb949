"""Who does not read holds the other side, from the first byte of a connection to its last."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.gateway.dataplane.rig import (
    FakeLoop,
    FakeTransport,
    Rig,
    get,
    ok,
    post,
    status_of,
)
from tests.gateway.plain import BOUNDS, TIMEOUTS, route, table, target, version

REPLAY_MAX: Final = 1000
UPLOAD: Final = b"POST /u HTTP/1.1\r\nhost: g\r\ncontent-length: 50000\r\n\r\n"
EVENTS_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Full(FakeLoop):
    """Every connection's first write fills it."""

    def made(self, protocol: Any) -> FakeTransport:
        transport = super().made(protocol)
        transport.full = True
        return transport


def made(limit: int = 1000) -> Rig:
    bounds = replace(BOUNDS, replay_max_bytes=REPLAY_MAX)
    return Rig(table(1, route(version(target(1, 1, limit))), bounds=bounds))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = made()
    yield rig
    rig.check()
    rig.close()


# --- an instance that does not read ---


@pytest.mark.parametrize("part", [REPLAY_MAX // 2, 2 * REPLAY_MAX], ids=["little", "much"])
async def test_an_upload_that_fills_a_new_connection_is_held_until_that_is_read(
    rig: Rig, part: int
) -> None:
    """What came during the dial filled it, and the client was let go on in the same call."""
    rig.use(Full())
    rig.loop.takes = 0
    client, instance = await rig.asked(UPLOAD + bytes(part))
    assert not client.reading
    instance.protocol.resume_writing()
    assert client.reading
    client.feed(bytes(50_000 - part))
    instance.feed(ok())
    assert status_of(client.out) == 200


async def test_an_upload_that_fills_a_pooled_connection_is_held_until_that_is_read(
    rig: Rig,
) -> None:
    client, instance = await rig.asked(get())
    instance.feed(ok())
    instance.full = True
    client.feed(UPLOAD + bytes(100))
    assert rig.busy(client) is instance
    assert not client.reading
    instance.protocol.resume_writing()
    assert client.reading


async def test_an_upload_to_an_instance_that_reads_goes_on_after_the_dial(rig: Rig) -> None:
    rig.loop.stuck = {1}
    client = rig.client()
    client.feed(UPLOAD + bytes(2 * REPLAY_MAX))
    client.feed(b"x")
    assert not client.reading  # while it is dialled
    rig.loop.shake_hands(0)
    await rig.dialled()
    assert client.reading


async def test_an_upload_is_not_held_for_the_instance_of_an_attempt_before() -> None:
    """A stall belongs to its connection: the next one has its own."""
    times = replace(TIMEOUTS, idle_s=5)
    rig = Rig(table(1, route(version(target(1, 1), target(2, 2))), timeouts=times))
    client, first = await rig.asked(UPLOAD + bytes(100))
    first.protocol.pause_writing()
    assert not client.reading
    first.feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 No"))
    await rig.dialled()
    assert rig.busy(client) is not first
    assert client.reading
    rig.later(10)  # its client's time for the next byte is longer
    assert not rig.busy(client).closed
    rig.close()


async def test_a_connection_that_is_not_read_is_not_used_again(rig: Rig) -> None:
    """It answered early, with most of a body still to be written: the next request would wait
    behind that, and nothing would hold its client."""
    client = rig.client()
    client.feed(post())
    await rig.dialled()
    instance = rig.busy(client)
    instance.protocol.pause_writing()
    instance.feed(ok(b"", status=b"429 Slow"))
    assert status_of(client.take()) == 429
    assert rig.plane.pool.size == 0
    assert instance.closed
    client.feed(post())
    await rig.dialled()
    assert rig.busy(client) is not instance


async def test_a_connection_that_is_not_read_is_not_waited_for_either(rig: Rig) -> None:
    """A mere close first writes all that is left: to one that never reads it, for ever."""
    client, instance = await rig.asked(post())
    instance.protocol.pause_writing()
    instance.feed(ok(b"", status=b"429 Slow"))
    assert status_of(client.out) == 429
    assert instance.closed == "aborted"


async def test_a_connection_that_was_read_in_the_end_is_used_again(rig: Rig) -> None:
    client, instance = await rig.asked(post())
    instance.protocol.pause_writing()
    instance.protocol.resume_writing()
    instance.feed(ok())
    assert rig.plane.pool.size == 1
    client.feed(post())
    assert rig.busy(client) is instance


# --- a client that does not read ---


def stalls(client: FakeTransport) -> None:
    client.protocol.pause_writing()


async def test_an_instance_is_not_read_for_a_client_that_stalled_before_it_was_dialled(
    rig: Rig,
) -> None:
    client = rig.client()
    client.feed(get())
    stalls(client)
    await rig.dialled()
    instance = rig.busy(client)
    assert not instance.reading
    client.protocol.resume_writing()
    assert instance.reading
    instance.feed(ok())
    assert status_of(client.out) == 200


async def test_an_instance_is_not_read_for_a_client_that_stalled_while_it_waited() -> None:
    """The pooled connection that it gets in the end comes to one that does not read."""
    rig = made(limit=1)
    first, instance = await rig.asked(get())
    client = rig.client()
    client.feed(get())
    stalls(client)
    instance.feed(ok())
    assert status_of(first.out) == 200
    assert rig.busy(client) is instance
    assert not instance.reading
    client.protocol.resume_writing()
    instance.feed(EVENTS_HEAD)
    assert status_of(client.out) == 200
    rig.check()
    rig.close()


async def test_a_connection_held_for_a_client_is_read_for_the_next(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    client.full = True
    instance.feed(ok())  # whole, and the client does not read it yet
    other = rig.client()
    other.feed(get())
    assert rig.busy(other) is instance
    assert instance.reading
