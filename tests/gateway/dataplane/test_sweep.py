"""What happens by the clock."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.state.shared import BODIES_BYTES, POOLED
from tests.gateway.dataplane.rig import NS, Rig, get, ok, post
from tests.gateway.plain import TIMEOUTS, route, table, target, version


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1)))))
    yield made
    made.close()


async def test_a_new_instance_s_share_grows_without_a_new_table(rig: Rig) -> None:
    rig.now += 100 * NS  # the other one is old
    fresh = replace(target(2, 2), ready_since_ns=rig.now)
    rig.publish(table(2, route(version(target(1, 1), fresh), slow_start_s=10)))
    plan = rig.plane.cell.read().routes["m"].shares[0]
    assert plan.total < 1.1
    rig.later(5)
    assert 1.4 < plan.total < 1.6
    rig.later(6)
    assert plan.total == 2.0
    assert rig.plane.cell.read().ramping() == []  # and it is not looked at any more


async def test_the_row_shows_what_is_pooled_and_held(rig: Rig) -> None:
    _, instance = await rig.asked(get())
    instance.feed(ok())
    holding = rig.client()
    holding.feed(post(b"x" * 40)[:-10])
    rig.later(1)
    head = rig.segment.head(0)
    assert (head[POOLED], head[BODIES_BYTES]) == (1, 30)


async def test_an_upload_that_waits_for_the_client_is_not_the_instance_s_fault(rig: Rig) -> None:
    _, instance = await rig.asked(b"POST /x HTTP/1.1\r\nhost: g\r\ncontent-length: 999\r\n\r\n1")
    patient = replace(TIMEOUTS, client_body_idle_s=0)
    rig.publish(table(2, route(version(target(1, 1))), timeouts=patient))
    rig.later(300)
    assert rig.outcomes() == {}
    instance.protocol.pause_writing()  # now it is the instance that does not read
    rig.later(125)
    assert rig.outcomes() == {"timed_out": 1}


async def test_the_date_is_of_this_second(rig: Rig) -> None:
    rig.now += NS
    rig.later(1)
    assert rig.plane.date.startswith(b"date: ")
    assert b" 1970 " not in rig.plane.date
