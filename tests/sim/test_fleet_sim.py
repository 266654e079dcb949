"""The control plane end to end, on a clock that costs nothing; durations are equalities."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gateway.control import (
    Denied,
    DrainInstance,
    Reload,
    SetWeights,
    StopInstance,
    UndrainInstance,
)
from gateway.fleet.drain import ENDED, Phase
from gateway.fleet.events import StopAsked
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Health
from sluicegate.v1.states import State
from tests.sim.clock import simulate
from tests.sim.fleet import CONFIG, SIGKILL, World, ready, started
from tests.sim.processes import HOP_S, now

A, B = "m-1-0", "m-1-1"


def run(scenario: Callable[[World], Coroutine[Any, Any, Any]]) -> World:
    world = World()

    async def main() -> None:
        await started(world)
        await scenario(world)
        await world.kill_control()

    simulate(main())
    return world


def ended(name: str) -> Callable[[FleetSnapshot], bool]:
    return lambda fleet: name in fleet.drains and fleet.drains[name].phase in ENDED


def drain(name: str, grace_s: float | None = None, stop: bool = False) -> DrainInstance:
    return DrainInstance(name, grace_s, stop, force=False)


# --- starting ------------------------------------------------------------------------------------


def test_one_loads_at_a_time_and_each_is_routed_a_few_hops_after_it_is_ready() -> None:
    async def main() -> tuple[float, float]:
        world = World(load_s=10.0)
        world.start_control()
        first = await world.until(lambda fleet: ready(fleet) == 1)
        second = await world.until(lambda fleet: ready(fleet) == 2)
        assert world.request(1.0) is not None
        await world.kill_control()
        return first, second

    first, second = simulate(main())
    assert first == 10.0 + 3 * HOP_S  # watch, publish, acknowledge
    assert second == first + 10.0 + HOP_S  # the second starts with the first's READY


def test_before_anything_is_ready_a_request_is_refused_with_standings_and_never_sent() -> None:
    async def main() -> World:
        world = World(load_s=10.0)
        world.start_control()
        await world.until(lambda fleet: fleet.serving)
        await asyncio.sleep(1.0)
        assert world.request(1.0) is None
        (route,) = world.fleet.table.routes if world.fleet.table else ()
        assert [standing.instance for standing in route.standings] == [A, B]
        await world.kill_control()
        return world

    assert simulate(main()).outcomes == {}


# --- drains --------------------------------------------------------------------------------------


def test_an_idle_instance_is_held_out_after_the_hops_that_evidence_needs() -> None:
    async def scenario(world: World) -> None:
        began = now()
        await world.ask(drain(A))
        assert now() - began == HOP_S  # the store
        done = await world.until(ended(A))
        # table and ack, TellSent and Sent, then TellEmpty, Empty and the gRPC answer side by side
        assert done - began == 7 * HOP_S
        assert world.instances[A].state is State.DRAINING
        assert world.instances[A].alive

    run(scenario)


def test_a_drain_ends_with_the_last_stream_and_loses_nothing() -> None:
    async def scenario(world: World) -> None:
        began = now()
        accepted = {world.request(seconds) for seconds in (5.0, 5.0, 20.0, 20.0)}
        await world.ask(drain(A))
        assert await world.until(ended(A)) - began == 20.0 + HOP_S
        await asyncio.sleep(1.0)
        assert set(world.outcomes.values()) == {"served"}
        world.check({one for one in accepted if one})
        assert world.fleet.drains[A].phase is Phase.DONE

    run(scenario)


def test_what_outlasts_the_grace_is_cut_and_named() -> None:
    async def scenario(world: World) -> None:
        requests = [world.request(100.0) for _ in range(4)]
        asked = now()
        await world.ask(drain(A, grace_s=7.0))
        done = await world.until(ended(A))
        assert done - asked == 7.0 + 3 * HOP_S  # store, cut, answer
        lost = {one.request.request_id for one in world.fleet.drains[A].lost}
        assert len(lost) == 2
        assert {request for request in requests if world.outcomes.get(request or 0)} == lost
        assert world.named == dict.fromkeys(lost, "drain deadline")
        assert world.fleet.drains[A].phase is Phase.CUT

    run(scenario)


def test_a_second_drain_is_the_first_with_its_own_deadline() -> None:
    async def scenario(world: World) -> None:
        for _ in range(4):
            world.request(100.0)
        await world.ask(drain(A, grace_s=20.0))
        deadline = world.fleet.drains[A].deadline
        await asyncio.sleep(5.0)
        receipt = await world.ask(drain(A, grace_s=500.0))
        assert world.fleet.drains[A].deadline == deadline
        assert receipt.changes == (f"{A} is drained already: waiting",)

    run(scenario)


def test_undrained_in_the_middle_it_serves_again_and_its_streams_go_on() -> None:
    async def scenario(world: World) -> None:
        for _ in range(4):
            world.request(50.0)
        await world.ask(drain(A))
        await asyncio.sleep(5.0)
        assert ready(world.fleet) == 1
        await world.ask(UndrainInstance(A))
        await world.until(lambda fleet: ready(fleet) == 2)
        assert world.instances[A].state is State.READY
        await asyncio.sleep(60.0)
        assert list(world.outcomes.values()) == ["served"] * 4

    run(scenario)


def test_the_last_routable_instance_needs_force() -> None:
    async def scenario(world: World) -> None:
        await world.ask(drain(A))
        with pytest.raises(Denied, match="last routable") as denied:
            await world.ask(drain(B))
        assert denied.value.code == "last_routable"
        await world.ask(DrainInstance(B, None, stop=False, force=True))
        await world.until(ended(B))

    run(scenario)


def test_a_stopped_instance_stays_stopped_until_it_is_undrained() -> None:
    async def scenario(world: World) -> None:
        await world.ask(StopInstance(A, force=False))
        await world.until(ended(A))
        assert not world.instances[A].alive
        await asyncio.sleep(300.0)
        assert not world.instances[A].alive
        await world.ask(UndrainInstance(A))
        await world.until(lambda fleet: ready(fleet) == 2)

    run(scenario)


def test_a_frozen_instance_is_reclaimed_by_force() -> None:
    async def scenario(world: World) -> None:
        for _ in range(4):
            world.request(1000.0)
        world.instances[A].frozen = True
        asked = now()
        await world.ask(StopInstance(A, force=True))
        done = await world.until(ended(A))
        assert done - asked == 6 * HOP_S  # store; table, ack; cut, answer; the exit
        assert not world.instances[A].alive
        assert len(world.named) == 2

    run(scenario)


def test_a_failed_write_is_an_error_and_nothing_has_changed() -> None:
    async def scenario(world: World) -> None:
        world.store.broken = True
        with pytest.raises(Denied) as denied:
            await world.ask(drain(A))
        assert denied.value.code == "store_failed"
        assert A not in world.fleet.drains
        assert ready(world.fleet) == 2
        assert world.fleet.revision == 0

    run(scenario)


def test_an_ask_on_an_old_revision_is_refused() -> None:
    async def scenario(world: World) -> None:
        await world.ask(SetWeights("m", {"1": 5.0}), revision=0)
        with pytest.raises(Denied) as denied:
            await world.ask(SetWeights("m", {"1": 7.0}), revision=0)
        assert denied.value.code == "revision_moved"

    run(scenario)


# --- trouble -------------------------------------------------------------------------------------


def test_a_killed_instance_is_started_again_and_comes_back() -> None:
    async def scenario(world: World) -> None:
        world.instances[A].end(-SIGKILL)
        died = now()
        await world.until(lambda fleet: ready(fleet) == 1)
        back = await world.until(lambda fleet: ready(fleet) == 2)
        # exit seen, restart_min_s, load, watch, publish, acknowledge
        assert back - died == 1.0 + 10.0 + 4 * HOP_S

    run(scenario)


def test_a_frozen_instance_is_off_after_three_polls_and_rejoins_as_itself() -> None:
    async def scenario(world: World) -> None:
        one = world.instances[A]
        one.frozen = True
        await world.until(lambda fleet: ready(fleet) == 1)
        assert world.fleet.instances[A].opinion.health is Health.UNHEALTHY
        await world.until(lambda fleet: fleet.instances[A].opinion.health is Health.LOST)
        one.frozen = False
        life = world.fleet.instances[A].incarnation
        await world.until(lambda fleet: ready(fleet) == 2)
        assert world.fleet.instances[A].incarnation == life

    run(scenario)


def test_a_flapping_poll_moves_nothing() -> None:
    async def scenario(world: World) -> None:
        generation = world.fleet.generation
        for _ in range(20):  # two polls fail, one is answered, over and over
            world.instances[A].frozen = True
            await asyncio.sleep(1.9)
            world.instances[A].frozen = False
            await asyncio.sleep(1.5)
        assert world.fleet.generation == generation

    run(scenario)


def test_a_worker_that_does_not_acknowledge_is_killed_and_the_drain_goes_on() -> None:
    async def scenario(world: World) -> None:
        victim = world.workers[0]
        request = world.request(1000.0, victim)
        victim.stuck = True
        asked = now()
        await world.ask(drain(A))
        done = await world.until(ended(A))
        assert done - asked >= 5.0  # worker_stuck_s
        assert world.outcomes[request or 0] == "lost"
        assert world.named[request or 0] == "worker died"
        await world.until(lambda fleet: len(fleet.workers) == 2)

    run(scenario)


def test_a_killed_control_publishes_nothing_until_each_instance_has_answered() -> None:
    async def scenario(world: World) -> None:
        held = {worker.row: worker.table for worker in world.workers.values()}
        await world.kill_control()
        world.instances[A].frozen = True
        world.start_control()
        await world.until(lambda fleet: fleet.instances[B].status is not None)
        tables = {worker.row: worker.table for worker in world.workers.values()}
        assert tables == held
        assert world.request(1.0) is not None
        await world.until(lambda fleet: fleet.table is not None)
        assert world.fleet.instances[A].opinion.health is Health.UNHEALTHY
        assert world.fleet.table is not None
        assert world.fleet.table.generation > max(t.generation for t in held.values() if t)

    run(scenario)


def test_a_drain_goes_on_after_a_killed_control_with_the_time_it_had_left() -> None:
    async def scenario(world: World) -> None:
        for _ in range(4):
            world.request(1000.0)
        await world.ask(drain(A, grace_s=20.0))
        asked = now()
        await asyncio.sleep(8.0)
        await world.kill_control()
        await asyncio.sleep(2.0)
        world.start_control()
        done = await world.until(ended(A))
        assert done - asked == pytest.approx(20.0, abs=0.01)
        assert len(world.named) == 2

    run(scenario)


def test_an_instance_given_back_in_the_moment_control_dies_serves_again() -> None:
    async def scenario(world: World) -> None:
        await world.ask(drain(A))
        await world.until(ended(A))
        await world.ask(UndrainInstance(A))  # answered before the call to resume has arrived
        await world.kill_control()
        assert world.instances[A].state is State.DRAINING
        world.start_control()
        await world.until(lambda fleet: ready(fleet) == 2)

    run(scenario)


def test_a_held_out_instance_stays_out_over_its_own_restart_and_that_of_control() -> None:
    async def scenario(world: World) -> None:
        await world.ask(drain(A))
        await world.until(ended(A))
        world.instances[A].end(-SIGKILL)
        await asyncio.sleep(30.0)
        assert world.instances[A].state is State.DRAINING  # told again
        await world.kill_control()
        world.start_control()
        await asyncio.sleep(5.0)
        assert ready(world.fleet) == 1
        await world.ask(UndrainInstance(A))
        await world.until(lambda fleet: ready(fleet) == 2)

    run(scenario)


# --- reload and the end --------------------------------------------------------------------------


def test_a_replica_taken_out_of_the_file_is_drained_and_forgotten_and_others_are_not_touched() -> (
    None
):
    async def scenario(world: World) -> None:
        for _ in range(4):
            world.request(10.0)
        world.reload_text = CONFIG.replace('"1" = 2 }', '"1" = 1 }')
        asked = now()
        await world.ask(Reload())
        gone = await world.until(lambda fleet: B not in fleet.instances)
        assert gone - asked == pytest.approx(10.0, abs=0.01)
        assert list(world.outcomes.values()) == ["served"] * 4
        assert world.instances[A].alive
        assert not world.instances[B].alive

    run(scenario)


def test_an_operators_weight_survives_a_reload_that_changes_something_else() -> None:
    async def scenario(world: World) -> None:
        await world.ask(SetWeights("m", {"1": 5.0}))
        world.reload_text = CONFIG.replace("grace_s = 30", "grace_s = 40")
        await world.ask(Reload())
        assert world.fleet.settings.drain.grace_s == 40
        assert world.fleet.weights("m")["1"].weight == 5.0
        world.reload_text = CONFIG.replace('"1" = 100', '"1" = 90')
        await world.ask(Reload())
        assert world.fleet.weights("m")["1"].weight == 90.0

    run(scenario)


def test_the_gateway_ends_with_its_workers_first_and_its_instances_last() -> None:
    async def scenario(world: World) -> None:
        world.post(StopAsked(1, now()))
        await world.until(lambda fleet: fleet.closing is not None and fleet.closing.step == "over")
        await asyncio.sleep(HOP_S)
        assert world.exit_code == 0
        assert not any(one.alive for one in world.instances.values())

    run(scenario)
