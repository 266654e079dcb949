"""Instances that die while no control is there: evidence like any other death, and counted once.

Known is who was there at the last reading that was stored. The world kills control at any write.
"""

import pytest

from gateway.control import SetWeights, StartInstance, StopInstance
from gateway.fleet.events import ChildExited, Ticked
from gateway.rollout.crashes import Restarts
from gateway.rollouts import ResumeRollout
from tests.gateway.fleet.builders import play
from tests.gateway.fleet.rolling import (
    CONFIG,
    NEW,
    OLD,
    Traffic,
    asked,
    gone,
    grown,
    rollout,
    start,
)
from tests.gateway.fleet.rolling import counts as of
from tests.gateway.fleet.rolling import stepping as stepped
from tests.gateway.fleet.rolling_world import LOAD_S, World

LONG = ({"weight": 50, "hold_s": 9999, "requests_min": 20},)


def stepping(config: str = CONFIG) -> World:
    """In a step that does not end, and read once."""
    world = World(config=config)
    world.steps(start(steps=LONG))
    world.second(of(50), of(50))
    return world


def counted(world: World) -> Restarts:
    return world.fleet.watches["m"].evidence.restarts


def deaths(world: World) -> tuple[int, int]:
    return counted(world).canary, counted(world).stable


def goes_on(world: World, seconds: int = int(LOAD_S) + 3) -> None:
    """Whoever is started again has registered and is READY."""
    for _ in range(seconds):
        world.second(of(50), of(50))


@pytest.mark.parametrize(("name", "expected"), [(NEW, (1, 0)), (OLD, (0, 1))])
def test_one_that_is_found_dead_has_died_once(name: str, expected: tuple[int, int]) -> None:
    world = stepping()
    del world.processes[name]
    world.begin()
    goes_on(world)
    assert deaths(world) == expected
    assert world.fleet.instances[name].incarnation.startswith(f"{name}@")
    world.begin()
    goes_on(world)
    assert deaths(world) == expected


def test_who_is_seen_to_die_is_not_missed_when_its_next_life_registers() -> None:
    """Be it sooner than the next reading, or later."""
    fleet, _ = Traffic().play(stepped(Traffic()), Ticked(13.0))
    assert NEW in fleet.watches["m"].lives
    fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, -11, 13.1))
    slow, _ = play(fleet, Ticked(fleet.launches[NEW].retry_at), *grown(NEW, "2", 15.0))
    assert slow.deaths == {("m", "2"): 1}
    read, _ = Traffic().play(fleet, Ticked(fleet.launches[NEW].retry_at))
    assert read.watches["m"].evidence.restarts.canary == 1
    read, _ = play(read, *grown(NEW, "2", 15.0))
    assert read.deaths == {}


def test_who_is_stopped_is_not_missed_when_it_is_started_again() -> None:
    fleet, _ = Traffic().play(stepped(Traffic()), Ticked(13.0))
    fleet, _ = play(fleet, asked(StopInstance(NEW, force=True), 13.1))
    fleet = gone(fleet, 13.2)
    fleet, _ = play(fleet, asked(StartInstance(NEW), 13.3), *grown(NEW, "2", 13.4))
    assert fleet.instances[NEW].incarnation == f"{NEW}@13.4"
    assert fleet.deaths == {}


@pytest.mark.parametrize("kept", [True, False])
def test_it_is_counted_once_wherever_the_next_controls_die(kept: bool) -> None:
    """Before the count is stored, or behind it while the next life has not registered yet."""
    counting = stepping()
    before = counting.writes
    del counting.processes[NEW]
    counting.begin()
    goes_on(counting)
    for write in range(1, counting.writes - before + 1):
        world = stepping()
        del world.processes[NEW]
        world.dies_at, world.kept = world.writes + write, kept
        world.begin()
        goes_on(world)
        assert (world.deaths, deaths(world)) == (1, (1, 0)), f"killed at write {write}"


def test_one_that_is_found_as_another_incarnation_has_died_once() -> None:
    """The control that started it again was gone before it had counted anything."""
    world = stepping()
    world.processes[NEW] = world.now
    world.begin()
    goes_on(world)
    assert deaths(world) == (1, 0)


def test_who_is_the_same_afterwards_has_not_died() -> None:
    world = stepping()
    for _ in range(5):
        world.begin()
        goes_on(world, 1)
    assert deaths(world) == (0, 0)


def test_who_died_before_the_step_is_no_evidence() -> None:
    world = World()
    goes_on(world)
    world.happen(asked(start(steps=LONG), world.now))
    world.second(of(), of())
    del world.processes[NEW]
    world.begin()
    world.steps(start(steps=LONG))
    goes_on(world)
    assert deaths(world) == (0, 0)


def test_who_died_with_the_whole_gateway_is_no_evidence() -> None:
    world = stepping()
    world.processes.clear()
    world.segment = 2
    world.begin()
    goes_on(world)
    assert "begins again" in rollout(world.fleet).reason
    assert deaths(world) == (0, 0)


def test_who_was_told_to_stop_has_not_died_and_is_not_missed_when_it_comes_back() -> None:
    world = stepping()
    world.happen(asked(StopInstance(NEW, force=True), world.now))
    world.processes.pop(NEW, None)
    world.begin()
    goes_on(world, 1)
    assert NEW not in world.processes
    world.happen(asked(StartInstance(NEW), world.now))
    goes_on(world)
    assert NEW in world.processes
    assert deaths(world) == (0, 0)


def test_who_died_under_weights_set_by_hand_is_no_evidence() -> None:
    world = stepping()
    world.happen(asked(SetWeights("m", {"2": 50.0}, override=True), world.now))
    del world.processes[NEW]
    world.begin()
    goes_on(world)
    world.happen(asked(ResumeRollout("m"), world.now))
    goes_on(world)
    assert deaths(world) == (0, 0)


def test_who_died_by_then_and_is_heard_of_later_is_no_evidence_either() -> None:
    world = stepping()
    world.happen(asked(SetWeights("m", {"2": 50.0}, override=True), world.now))
    world.processes[NEW] = world.now
    world.begin()
    world.happen(asked(ResumeRollout("m"), world.now))
    goes_on(world)
    assert deaths(world) == (0, 0)


def test_who_has_died_has_lived_until_then() -> None:
    world = stepping()
    before = counted(world)
    del world.processes[NEW]
    world.now += 600.0
    world.begin()
    assert deaths(world) == (1, 0)
    assert counted(world).wager.trials - before.wager.trials == 600.0


def test_the_time_without_a_control_is_lived_and_not_held() -> None:
    """Deaths of an hour that count as those of a moment would be proof."""
    world = stepping()
    before, held_s = counted(world), world.fleet.watches["m"].held_s
    world.now += 600.0
    world.begin()
    goes_on(world, 2)
    after = counted(world)
    assert 600.0 <= after.wager.trials - before.wager.trials <= 602.0
    assert 600.0 <= after.stable_lived_s - before.stable_lived_s <= 602.0
    assert world.fleet.watches["m"].held_s - held_s == 2.0


def test_a_clock_that_was_put_forward_forgives_no_more_than_an_hour() -> None:
    world = stepping()
    before = counted(world)
    world.now += 1e7
    world.begin()
    assert counted(world).stable_lived_s - before.stable_lived_s <= 3600.0
