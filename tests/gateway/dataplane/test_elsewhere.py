"""An attempt that failed: tried on another instance, or not."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.state.shared import REPLAYS_FAILED, REPLAYS_SERVED
from tests.gateway.dataplane.exchanges import attempts, two
from tests.gateway.dataplane.rig import Rig, code_of, get, ok, post, status_of
from tests.gateway.plain import BOUNDS, route, table, target, version


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, two()))
    yield made
    made.check()
    made.close()


async def test_a_dial_that_fails_goes_to_another_instance_and_is_reported(rig: Rig) -> None:
    rig.loop.refused = {1}
    for _ in range(6):
        client, instance = await rig.asked(post())
        instance.feed(ok())
        assert status_of(client.take()) == 200
    failed = attempts(rig)["connect_failed"]
    assert failed == len(rig.suspected) > 0
    assert {message.slot for message in rig.suspected} == {1}
    assert rig.outcomes() == {"served": 6}
    assert rig.segment.section_totals(1)[REPLAYS_SERVED] == failed


async def test_a_limit_of_our_own_machine_blames_no_instance(rig: Rig) -> None:
    rig.loop.no_descriptor = {1, 2}
    client = rig.client()
    client.feed(post())
    await rig.dialled()
    assert status_of(client.out) == 503
    assert code_of(client.out) == "leases_full"
    assert rig.suspected == []
    assert "connect_failed" not in attempts(rig)


async def test_a_client_beyond_the_descriptors_is_reset_and_the_others_stay(rig: Rig) -> None:
    rig.plane.clients_max = 1
    first, second = rig.client(), rig.client()
    assert (first.closed, second.closed) == ("", "aborted")
    second.end()
    assert list(rig.plane.clients) == [first.protocol]


async def test_a_refusal_by_the_instance_is_no_failure_and_not_shown(rig: Rig) -> None:
    client, first = await rig.asked(post())
    first.feed(ok(b"no", b"x-sluicegate-refused: draining", status=b"503 Busy"))
    await rig.dialled()
    second = rig.busy(client)
    assert second is not first
    assert second.out.endswith(b'{"model":"m"}')
    second.feed(ok(b"fine", b"x-sluicegate-refused: full"))
    assert client.out.endswith(b"fine")
    assert b"refused" not in client.out
    assert attempts(rig) == {"refused": 1, "served": 1}


async def test_when_all_refuse_the_client_is_told_to_come_back(rig: Rig) -> None:
    client, _ = await rig.asked(post())
    for _ in range(2):
        rig.busy(client).feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 Busy"))
        await rig.dialled()
    assert code_of(client.out) == "no_ready_instance"
    assert b"retry-after: " in client.out
    assert rig.outcomes() == {"no_ready_instance": 1}
    assert rig.segment.section_totals(1)[REPLAYS_FAILED] == 1


@pytest.mark.parametrize(
    ("request_", "replayable", "again"),
    [(post(), False, False), (post(), True, True), (get(), False, True)],
)
async def test_a_reset_on_a_reused_connection_is_sent_again_only_if_harmless(
    request_: bytes, replayable: bool, again: bool
) -> None:
    rig = Rig(table(1, two(replayable=replayable)))
    for _ in range(4):  # both instances have a used connection now
        _, instance = await rig.asked(get())
        instance.feed(ok())
    client, instance = await rig.asked(request_)
    assert instance.protocol.used
    instance.end()
    await rig.dialled()
    if again:
        assert rig.busy(client) is not instance
        rig.busy(client).feed(ok())
        assert client.out.endswith(b"fine")
    else:
        assert code_of(client.out) == "instance_reset"
    rig.check()
    rig.close()


async def test_a_reset_on_a_fresh_connection_is_final(rig: Rig) -> None:
    client, instance = await rig.asked(get())
    instance.end()
    assert code_of(client.out) == "instance_reset"
    assert rig.outcomes() == {"reset": 1}


async def test_replays_are_limited_per_request() -> None:
    many = [target(n, n) for n in range(1, 7)]
    rig = Rig(table(1, route(version(*many)), bounds=replace(BOUNDS, replays_max=2)))
    rig.loop.refused = set(range(1, 7))
    client = rig.client()
    client.feed(post())
    for _ in range(8):
        await rig.dialled()
    assert code_of(client.out) == "connect_failed"
    assert len({message.slot for message in rig.suspected}) == 3
    rig.check()
    rig.close()


async def test_a_spent_budget_ends_replays(rig: Rig) -> None:
    while rig.plane.budget.spend():
        pass
    rig.plane.budget.replays += 100  # more than the coming requests earn
    client, instance = await rig.asked(post())
    instance.feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 Busy"))
    assert code_of(client.out) == "no_ready_instance"


async def test_a_replay_keeps_its_version_unless_that_was_blocked() -> None:
    canary = version(target(2, 2), target(3, 3), name="2", weight=100)
    stable = version(target(1, 1), name="1", weight=0.0001)
    rig = Rig(table(1, route(stable, canary)))
    rig.plane.cell.read().routes["m"].place.position = 0.1
    client, instance = await rig.asked(post())
    instance.feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 Busy"))
    await rig.dialled()
    second = rig.busy(client)
    rig.publish(table(2, route(version(target(1, 1), name="1"), replace(canary, blocked=True))))
    second.feed(ok(b"", b"x-sluicegate-refused: draining", status=b"503 Busy"))
    await rig.dialled()
    rig.busy(client).feed(ok())
    assert b"x-model-version: 1\r\n" in client.out
    rig.close()


async def test_a_body_that_was_let_go_is_not_sent_again() -> None:
    small = replace(BOUNDS, replay_max_bytes=10)
    rig = Rig(table(1, two(replayable=True), bounds=small))
    client, instance = await rig.asked(post(b'{"model":"m","x":"' + b"x" * 100 + b'"}'))
    instance.feed(ok(b"", b"x-sluicegate-refused: full", status=b"503 Busy"))
    assert code_of(client.out) == "saturated"
    rig.close()
