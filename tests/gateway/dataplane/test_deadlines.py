"""Limits of time that an exchange has, and what its client is told."""

from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest

from tests.gateway.dataplane.exchanges import CHUNKED_HEAD, chunk, two
from tests.gateway.dataplane.rig import Rig, get, ok, post
from tests.gateway.plain import TIMEOUTS, route, table, version


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, two()))
    yield made
    made.check()
    made.close()


@pytest.mark.parametrize(
    ("seconds", "response", "outcome"),
    [
        (601, b"", "timed_out"),
        (121, CHUNKED_HEAD + chunk(b"a"), "timed_out"),
        (119, CHUNKED_HEAD + chunk(b"a"), ""),
        (599, b"", ""),
    ],
)
async def test_an_instance_has_its_limits(
    rig: Rig, seconds: float, response: bytes, outcome: str
) -> None:
    client, instance = await rig.asked(post())
    if response:
        instance.feed(response)
    rig.later(seconds)
    assert rig.outcomes() == ({outcome: 1} if outcome else {})
    assert bool(instance.closed) == bool(outcome)
    client.end()


async def test_a_dial_that_takes_too_long_is_tried_elsewhere(rig: Rig) -> None:
    rig.loop.stuck = {1}
    clients = [rig.client() for _ in range(4)]
    for client in clients:
        client.feed(get())
    await rig.dialled()
    rig.later(3)
    await rig.dialled()
    assert {message.slot for message in rig.suspected} == {1}
    for client in clients:
        if client.protocol.exchange.claim.held:
            rig.busy(client).feed(ok())
    rig.check()


async def test_the_whole_exchange_can_be_limited() -> None:
    rig = Rig(table(1, two(), timeouts=replace(TIMEOUTS, total_s=30)))
    client, instance = await rig.asked(post())
    instance.feed(CHUNKED_HEAD)
    for _ in range(30):
        instance.feed(chunk(b"a"))
        rig.later(1)
    assert client.closed
    assert rig.outcomes() == {"timed_out": 1}
    rig.close()


async def test_a_client_that_never_reads_is_cut_and_the_instance_not_blamed(rig: Rig) -> None:
    client, instance = await rig.asked(post())
    instance.feed(CHUNKED_HEAD + chunk(b"a"))
    client.protocol.pause_writing()
    rig.later(122)
    assert instance.closed == "aborted"
    assert rig.outcomes() == {"client_gone": 1}


async def test_a_503_lists_the_instances() -> None:
    rig = Rig(table(1, route(version())))
    client = rig.client()
    client.feed(post())
    body = orjson.loads(client.out.partition(b"\r\n\r\n")[2])
    assert body["error"]["instances"] == []
    assert body["error"]["model"] == "m"
    rig.close()
