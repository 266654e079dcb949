"""Requests that wait for room: in order, bounded, and told by each new table."""

from dataclasses import replace

from gateway.records import Outcome
from gateway.state.ledger import Ledger
from tests.gateway.dataplane.exchanges import attempts, two
from tests.gateway.dataplane.rig import FakeTransport, Rig, code_of, get, ok, post
from tests.gateway.plain import BOUNDS, route, table, target, version


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


# --- instances that are fuller than we count ---


async def refused(rig: Rig, client: FakeTransport, times: int) -> None:
    """As many instances in turn say that they have no room."""
    for _ in range(times):
        rig.busy(client).feed(ok(b"", b"x-sluicegate-refused: full", status=b"503 Busy"))
        await rig.dialled()


async def asked_again(rig: Rig, seconds: float) -> None:
    """The beat of a worker, so much later."""
    rig.later(seconds)
    rig.plane.waitroom.wake_all()
    await rig.dialled()


async def test_who_is_refused_by_all_for_want_of_room_waits_and_is_served() -> None:
    """The client before may have left a moment ago, which the instance has not noticed yet."""
    rig = Rig(table(1, two()))
    client, _ = await rig.asked(post())
    await refused(rig, client, 2)
    await asked_again(rig, 0.05)
    assert (client.out, rig.plane.waitroom.size) == (b"", 1)
    await asked_again(rig, 0.05)
    await refused(rig, client, 1)
    await asked_again(rig, 0.1)
    rig.busy(client).feed(ok(b"fine"))
    assert client.out.endswith(b"fine")
    assert rig.outcomes() == {"served": 1}
    assert attempts(rig) == {"refused": 3, "served": 1}
    rig.check()
    rig.close()


async def test_a_request_that_was_refused_for_want_of_room_goes_first_when_there_is_some() -> None:
    """Room by our count, which a lease given back makes, is not asked for by those behind it."""
    rig = Rig(table(1, route(version(target(1, 1, limit=2)))))
    other, held = await rig.asked(get(b"/other"))
    first, _ = await rig.asked(get(b"/first"))
    second = rig.client()
    second.feed(get(b"/second"))
    await refused(rig, first, 1)
    held.feed(ok())
    assert other.out.endswith(b"fine")
    assert rig.plane.waitroom.size == 2
    await asked_again(rig, 0.1)
    assert rig.plane.waitroom.size == 0
    assert b"GET /first" in rig.busy(first).out
    rig.busy(first).feed(ok())
    rig.busy(second).feed(ok())
    rig.check()
    rig.close()


async def test_the_patience_of_the_queue_begins_with_the_first_refusal() -> None:
    rig = Rig(table(1, route(version(target(1, 1)), queue_timeout_s=5)))
    client, _ = await rig.asked(post())
    for _ in range(4):
        await refused(rig, client, 1)
        await asked_again(rig, 1)
    await refused(rig, client, 1)
    rig.later(0.5)
    assert client.out == b""
    rig.later(1)
    assert code_of(client.out) == "saturated"
    assert rig.outcomes() == {"saturated": 1}
    rig.check()
    rig.close()


async def test_where_nobody_may_wait_a_full_instance_is_told_at_once() -> None:
    rig = Rig(table(1, route(version(target(1, 1)), queue_max=0)))
    client, _ = await rig.asked(post())
    await refused(rig, client, 1)
    assert code_of(client.out) == "saturated"
    assert b"retry-after: " in client.out
    rig.check()
    rig.close()


async def test_refusals_for_want_of_room_leave_a_request_its_replays() -> None:
    """The instance did nothing, so nothing was sent twice."""
    rig = Rig(table(1, two(), bounds=replace(BOUNDS, replays_max=1)))
    client, _ = await rig.asked(post())
    for _ in range(3):
        await refused(rig, client, 2)
        await asked_again(rig, 0.1)
    assert client.out == b""
    rig.busy(client).feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 Busy"))
    await rig.dialled()
    rig.busy(client).feed(ok(b"fine"))
    assert client.out.endswith(b"fine")
    rig.check()
    rig.close()


async def test_no_more_full_instances_are_asked_in_a_row_than_a_request_has_replays() -> None:
    many = version(*(target(slot, slot) for slot in range(1, 7)))
    rig = Rig(table(1, route(many), bounds=replace(BOUNDS, replays_max=2)))
    client, _ = await rig.asked(post())
    await refused(rig, client, 3)
    assert rig.plane.waitroom.size == 1
    await asked_again(rig, 0.1)
    rig.busy(client).feed(ok())
    rig.check()
    rig.close()


async def test_the_next_request_of_a_client_has_a_patience_of_its_own() -> None:
    rig = Rig(table(1, route(version(target(1, 1)), queue_timeout_s=5)))
    client, _ = await rig.asked(post())
    await refused(rig, client, 1)
    await asked_again(rig, 4)
    rig.busy(client).feed(ok(b"fine"))
    client.take()
    await asked_again(rig, 4)
    client.feed(post())
    await rig.dialled()
    await refused(rig, client, 1)
    rig.later(4)
    assert client.out == b""
    await asked_again(rig, 0.1)
    rig.busy(client).feed(ok(b"fine"))
    assert client.out.endswith(b"fine")
    rig.check()
    rig.close()
