"""A rollout whose new version has nobody to serve: it gets no more, and gives back what it has."""

from dataclasses import replace

import pytest

from gateway.fleet.events import ChildExited, Observed, Source, Ticked
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Health
from gateway.rollout.machine import Phase
from gateway.rollouts import PromoteRollout
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import play
from tests.gateway.fleet.rolling import NEW, OLD, Traffic, asked, at, counts, rollout, stepping


def said(fleet: FleetSnapshot, name: str, state: State, now: float) -> FleetSnapshot:
    seen = fleet.instances[name]
    assert seen.status is not None
    one = replace(seen.status, state=state, sequence=seen.status.sequence + 1)
    fleet, _ = play(fleet, Observed(name, Source.POLL, one.grpc, "", one, 0, 0, now))
    return fleet


def lost(fleet: FleetSnapshot, name: str) -> FleetSnapshot:
    seen = fleet.instances[name]
    opinion = replace(seen.opinion, health=Health.LOST, reason="silent")
    instances = {**fleet.instances, name: replace(seen, opinion=opinion)}
    return replace(fleet, instances=instances)


@pytest.mark.parametrize("step", [1, 3])
def test_no_step_passes_while_nobody_of_the_new_version_serves(step: int) -> None:
    """Everything was counted before they went: the old group was stopped with nobody to follow."""
    traffic, now = Traffic(), 12.0
    fleet = stepping(traffic, now - 2)
    while at(fleet) != (Phase.STEP, step) or fleet.watches["m"].held_s < 8:
        now += 1.0
        fleet, _ = traffic.second(fleet, now, counts(50), counts(50))
    fleet = lost(lost(fleet, NEW), OLD)  # nowhere to go back to, either
    for _ in range(20):
        now += 1.0
        fleet, _ = traffic.second(fleet, now, counts(), counts())
    assert at(fleet) == (Phase.STEP, step)
    assert fleet.watches["m"].held_s > 10
    assert fleet.watches["m"].said == f"waits for its instances: {NEW} serving 100 % (silent)"
    fleet = said(said(fleet, NEW, State.READY, now), NEW, State.READY, now)
    fleet, _ = traffic.second(fleet, now + 1.0, counts(), counts())
    assert at(fleet) != (Phase.STEP, step)


def promoting(traffic: Traffic) -> FleetSnapshot:
    fleet, _ = traffic.play(stepping(traffic), asked(PromoteRollout("m", full=True), 13.0))
    assert at(fleet)[0] is Phase.PROMOTING
    return fleet


def test_the_old_group_is_kept_while_the_new_one_drains() -> None:
    """An instance of its own accord: the one that follows it is not here yet."""
    traffic = Traffic()
    fleet = promoting(traffic)
    for second in range(14, 33):
        fleet, _ = traffic.second(fleet, float(second), counts(5), counts())
    fleet = said(fleet, NEW, State.DRAINING, 32.5)
    fleet, _ = traffic.second(fleet, 33.5, counts(5), counts())
    assert at(fleet)[0] is Phase.PROMOTING
    assert OLD not in fleet.drains
    assert "waits for its instances" in fleet.watches["m"].said


@pytest.mark.parametrize("how", ["draining", "lost", "died"])
def test_all_the_traffic_goes_back_when_nobody_has_served_it_for_seconds(how: str) -> None:
    traffic = Traffic()
    fleet, _ = traffic.second(promoting(traffic), 14.0, counts(5), counts())
    match how:
        case "draining":
            fleet = said(fleet, NEW, State.DRAINING, 14.5)
        case "lost":
            fleet = lost(fleet, NEW)
        case _:
            fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, -11, 14.5))
    now = 14.0
    while at(fleet)[0] is Phase.PROMOTING and now < 30:
        now += 1.0
        fleet, _ = traffic.second(fleet, now, counts(), counts())
    assert now == 19.0  # seen without one at 15, and for 3 polls and a deadline
    assert at(fleet)[0] is Phase.ROLLING_BACK
    assert rollout(fleet).ground == "instances"
    assert "all the traffic, nobody to serve: m-2-0" in rollout(fleet).reason


def test_an_instant_without_instances_sends_nothing_back() -> None:
    traffic = Traffic()
    fleet, now = promoting(traffic), 14.0
    for _ in range(4):
        fleet = lost(fleet, NEW)
        for _ in range(4):
            now += 1.0
            fleet, _ = traffic.second(fleet, now, counts(), counts())
        fleet = said(said(fleet, NEW, State.READY, now), NEW, State.READY, now)
        now += 1.0
        fleet, _ = traffic.second(fleet, now, counts(), counts())
    assert at(fleet)[0] in {Phase.PROMOTING, Phase.DONE}


def test_a_pause_of_control_is_no_time_without_instances() -> None:
    traffic = Traffic()
    fleet, _ = traffic.second(promoting(traffic), 14.0, counts(5), counts())
    fleet = lost(fleet, NEW)
    fleet, _ = traffic.play(fleet, Ticked(15.0), Ticked(95.0))
    assert at(fleet)[0] is Phase.PROMOTING


def test_nobody_goes_back_to_a_group_that_cannot_serve_either() -> None:
    traffic = Traffic()
    fleet, now = lost(lost(promoting(traffic), NEW), OLD), 14.0
    for _ in range(20):
        now += 1.0
        fleet, _ = traffic.second(fleet, now, counts(), counts())
    assert at(fleet)[0] is Phase.PROMOTING
