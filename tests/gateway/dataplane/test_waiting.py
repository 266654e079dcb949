"""Requests that wait for room: in order, bounded, and told by each new table."""

from dataclasses import replace

from gateway.records import Outcome
from gateway.state.ledger import Ledger
from tests.gateway.dataplane.rig import Rig, code_of, get, ok, post
from tests.gateway.plain import route, table, target, version


async def test_those_who_wait_go_in_order_as_room_comes() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)))))
    first, instance = await rig.asked(post())
    waiting = [rig.client() for _ in range(3)]
    for client in waiting:
        client.feed(post())
        rig.check()
    assert rig.segment.waiting(1) == 3
    for client in [first, *waiting]:
        assert client.out == b""
        instance.feed(ok())
        assert client.out.endswith(b"fine")
        rig.check()
    assert len(rig.loop.instances) == 1  # each took the connection that was just given back
    rig.close()


async def test_nobody_overtakes_those_who_wait() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)))))
    elsewhere = Ledger(rig.segment, 1)  # another worker, which tells nobody here
    lease = elsewhere.open(1, 1, 1, b"", rig.now)
    first, second = rig.client(), rig.client()
    first.feed(get(b"/first"))
    elsewhere.settle(lease, Outcome.SERVED, rig.now, 0)
    second.feed(get(b"/second"))
    rig.plane.waitroom.wake_all()
    await rig.dialled()
    assert rig.busy(first).out.startswith(b"GET /first")
    assert rig.plane.waitroom.size == 1
    rig.busy(first).feed(ok())
    assert rig.busy(second).out.endswith(b"\r\n\r\n")
    rig.busy(second).feed(ok())
    rig.close()


async def test_who_waits_for_a_version_that_lost_its_weight_draws_again() -> None:
    full = version(target(1, 1, limit=1), name="1")
    rig = Rig(table(1, route(full)))
    await rig.asked(get())
    waiting = rig.client()
    waiting.feed(get())
    free = version(target(2, 2), name="2")
    rig.publish(table(2, route(replace(full, weight=0), free)))
    await rig.dialled()
    rig.busy(waiting).feed(ok())
    assert b"x-model-version: 2" in waiting.out
    rig.check()
    rig.close()


async def test_a_queue_that_is_full_refuses_and_one_that_is_slow_too() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)), queue_max=1, queue_timeout_s=5)))
    await rig.asked(post())
    waiting, refused = rig.client(), rig.client()
    waiting.feed(post())
    refused.feed(post())
    assert code_of(refused.out) == "saturated"
    rig.later(6)
    assert code_of(waiting.out) == "saturated"
    rig.check()
    rig.close()


async def test_a_new_table_refuses_at_once_who_waits_for_nothing() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)))))
    await rig.asked(post())
    waiting = rig.client()
    waiting.feed(post())
    rig.publish(table(2, route(version())))
    assert code_of(waiting.out) == "no_ready_instance"
    assert rig.segment.waiting(1) == 0
    rig.check()
    rig.close()


async def test_a_new_table_with_room_serves_who_waits() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)))))
    await rig.asked(post())
    waiting = rig.client()
    waiting.feed(post())
    rig.publish(table(2, route(version(target(1, 1, limit=1), target(2, 2)))))
    await rig.dialled()
    rig.busy(waiting).feed(ok())
    assert waiting.out.endswith(b"fine")
    rig.check()
    rig.close()


async def test_a_saturated_version_is_not_relieved_by_another() -> None:
    full = version(target(1, 1, limit=1), name="1", weight=50)
    free = version(target(2, 2, limit=50), name="2", weight=50)
    rig = Rig(table(1, route(full, free)))
    clients = [rig.client() for _ in range(20)]
    for client in clients:
        client.feed(post())
    await rig.dialled()
    assert 8 <= rig.segment.in_flight(2) <= 12
    assert rig.segment.in_flight(1) == 1
    assert rig.plane.waitroom.size == 19 - rig.segment.in_flight(2)
    rig.close()
