"""A request without an instance is listed as that, so that it has a name when its worker dies."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.errors import GatewayError
from gateway.records import Stage
from gateway.state.shared import LeaseRecord
from tests.gateway.dataplane.rig import FakeTransport, Rig, code_of, ok, post, status_of
from tests.gateway.plain import BOUNDS, route, table, target, version

ONE_PLACE = route(version(target(1, 1, limit=1)))
MINE = post(b'{"model":"m"}', b"x-request-id: mine")


def listed(rig: Rig) -> list[LeaseRecord]:
    return [one for one in rig.segment.leases(0) if one.stage == Stage.UNPLACED]


async def waiting(rig: Rig) -> tuple[FakeTransport, FakeTransport]:
    """A client that waits for the only place, and the instance that is busy there."""
    _, instance = await rig.asked(post())
    client = rig.client()
    client.feed(MINE)
    rig.check()
    return client, instance


async def test_who_waits_for_room_is_listed_until_it_has_its_instance() -> None:
    rig = Rig(table(1, ONE_PLACE))
    client, instance = await waiting(rig)
    (one,) = listed(rig)
    assert (one.client_request_id, one.slot, one.section) == ("mine", -1, 1)
    assert one.request_id == client.protocol.exchange.number
    instance.feed(ok())
    assert listed(rig) == []
    assert [lease.client_request_id for lease in rig.segment.leases(0)] == ["mine"]
    instance.feed(ok())
    rig.check()
    assert rig.outcomes() == {"served": 2}
    rig.close()


async def test_a_body_that_still_comes_is_listed_until_it_is_here() -> None:
    rig = Rig(table(1, ONE_PLACE))
    client = rig.client()
    client.feed(MINE[:-5])
    (one,) = listed(rig)
    assert one.client_request_id == "mine"
    client.feed(MINE[-5:-3])
    rig.check()
    client.feed(MINE[-3:])
    await rig.dialled()
    assert listed(rig) == []
    rig.busy(client).feed(ok())
    rig.check()
    assert status_of(client.out) == 200
    rig.close()


async def test_a_body_that_is_here_and_has_to_wait_is_listed_once() -> None:
    rig = Rig(table(1, ONE_PLACE))
    _, instance = await rig.asked(post())
    client = rig.client()
    client.feed(MINE[:-5])
    client.feed(MINE[-5:])
    assert len(listed(rig)) == 1
    instance.feed(ok())
    rig.check()
    assert listed(rig) == []
    rig.close()


ENDS: list[Callable[[Rig, FakeTransport], object]] = [
    lambda rig, client: client.feed_eof(),
    lambda rig, client: client.end(ConnectionResetError()),
    lambda rig, client: rig.later(40),  # longer than it may wait
    lambda rig, client: rig.publish(table(2, route(version()))),
    lambda rig, client: client.protocol.exchange.cut(GatewayError("cut", "by an operator")),
]


@pytest.mark.parametrize("end", ENDS, ids=["leaves", "reset", "too late", "no instance", "cut"])
@pytest.mark.parametrize("whole", [True, False], ids=["waits", "sends"])
async def test_whatever_ends_it_it_is_listed_no_longer(
    end: Callable[[Rig, FakeTransport], object], whole: bool
) -> None:
    rig = Rig(table(1, ONE_PLACE))
    await rig.asked(post())
    client = rig.client()
    client.feed(MINE if whole else MINE[:-5])
    assert len(listed(rig)) == 1
    end(rig, client)
    if not whole:
        client.end()
    assert listed(rig) == []
    rig.check()
    rig.close()


async def test_a_body_that_becomes_too_long_is_listed_no_longer() -> None:
    rig = Rig(table(1, ONE_PLACE, bounds=replace(BOUNDS, route_body_max_bytes=50)))
    client = rig.client()
    client.feed(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n")
    assert len(listed(rig)) == 1
    client.feed(b"40\r\n" + b"x" * 64 + b"\r\n")
    assert code_of(client.out) == "body_too_large"
    assert listed(rig) == []
    rig.check()
    rig.close()


async def test_where_every_record_is_held_a_request_waits_unlisted_and_is_served() -> None:
    rig = Rig(table(1, ONE_PLACE), leases=1)
    client, instance = await waiting(rig)
    assert listed(rig) == []
    instance.feed(ok())
    instance.feed(ok())
    assert status_of(client.out) == 200
    rig.check()
    rig.close()


async def test_a_listed_request_has_the_record_that_its_lease_needs() -> None:
    rig = Rig(table(1, ONE_PLACE), leases=2)
    client, instance = await waiting(rig)
    assert rig.ledger.free == []
    instance.feed(ok())  # its own record is free now, and so would any be
    other = rig.client()
    other.feed(MINE[:-5])
    assert rig.ledger.free == []
    instance.feed(ok())
    assert status_of(client.out) == 200
    third = rig.client()
    third.feed(MINE[:-5])  # both records are listed bodies
    other.feed(MINE[-5:])
    await rig.dialled()
    rig.busy(other).feed(ok())
    assert status_of(other.out) == 200
    rig.check()
    rig.close()
