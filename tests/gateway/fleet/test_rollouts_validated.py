"""What a rollout makes of its validation."""

from dataclasses import replace

import pytest

from gateway.fleet import rollouts
from gateway.fleet.commands import Validate
from gateway.fleet.events import NeedsRead, Observed, Source, Ticked
from gateway.fleet.rollout_events import Validated
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.status import Device
from gateway.rollout.machine import Phase
from gateway.rollout.memory import GB
from gateway.rollouts import CheckView
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import only, play, status
from tests.gateway.fleet.rolling import (
    NEW,
    OLD,
    Traffic,
    asked,
    at,
    grown,
    rollout,
    serving,
    start,
)
from tests.gateway.fleet.rolling_world import World

ERRORS = CheckView("errors", True, "0 of 20 requests failed")


def _validating(peak_gb: float) -> FleetSnapshot:
    """Samples are being tried on a new group that has held so much; 2 GB are expected."""
    fleet, _ = play(serving(), asked(start(samples="s.jsonl"), 10.0))
    fleet, _ = play(fleet, NeedsRead({("m", "2"): 2 * GB}, 10.0))
    fleet, commands = play(fleet, *grown(NEW, "2", 10.0))
    (order,) = only(Validate, commands)
    assert (order.samples, len(order.canary), len(order.stable)) == ("s.jsonl", 1, 1)
    named = {"version": "2", "incarnation": f"{NEW}@10.0", "sequence": 3}
    device = Device("cpu", "0", memory_used_bytes=GB, memory_peak_bytes=int(peak_gb * GB))
    ready = replace(status(NEW, State.READY, **named), device=device)
    fleet, _ = play(fleet, Observed(NEW, Source.POLL, ready.grpc, "", ready, 0, 0, 13.0))
    assert at(fleet) == (Phase.VALIDATING, 0)
    return fleet


@pytest.mark.parametrize(
    ("passed", "peak_gb", "phase", "ground"),
    [
        (True, 1.0, Phase.STEP, ""),
        (True, 2.4, Phase.STEP, ""),
        (True, 2.5, Phase.ROLLING_BACK, "validation"),
        (False, 1.0, Phase.ROLLING_BACK, "validation"),
    ],
)
def test_a_version_goes_on_when_samples_and_memory_pass(
    passed: bool, peak_gb: float, phase: Phase, ground: str
) -> None:
    fleet = _validating(peak_gb)
    event = Validated("m", "m/1", passed, "20 were tried", (ERRORS,), 14.0)
    fleet, _ = play(fleet, event)
    assert at(fleet)[0] is phase
    assert rollout(fleet).ground == ground
    assert [one.name for one in rollout(fleet).checks] == ["errors", "memory"]
    said = "2.50 GB" if peak_gb == 2.5 else "20 were tried"
    assert said in rollout(fleet).reason


def test_a_report_that_nobody_waits_for_changes_nothing() -> None:
    fleet = _validating(1.0)
    for event in (
        Validated("m", "m/7", False, "of another", (), 14.0),
        Validated("n", "m/1", False, "of no model", (), 14.0),
    ):
        after, _ = play(fleet, event)
        assert at(after) == (Phase.VALIDATING, 0)


def _begun_again() -> World:
    """A control that begins while samples are tried: it has heard of nobody yet."""
    traffic = Traffic()
    world = World()
    while not any(world.fleet.routable(seen) for seen in world.fleet.instances.values()):
        world.second(traffic.canary, traffic.stable)
        assert world.now < 50
    world.happen(asked(start(samples="s.jsonl"), world.now))
    while at(world.fleet)[0] is not Phase.VALIDATING:
        world.second(traffic.canary, traffic.stable)
        assert world.now < 50
    world.begin()
    assert at(world.fleet)[0] is Phase.VALIDATING
    return world


def test_a_control_that_was_started_again_tries_samples_when_it_has_heard_of_both_groups() -> None:
    """It ordered them of nobody, before any poll was answered, and a good version went back."""
    world = _begun_again()
    fleet, orders = world.fleet, list[Validate]()
    assert "waits for its instances" in fleet.watches["m"].said
    for name in (NEW, OLD, NEW):
        assert orders == []
        ready = fleet.instances[name]
        one = status(name, State.READY, version=ready.version, incarnation=ready.incarnation)
        for _ in range(2):
            fleet, commands = play(
                fleet, Observed(name, Source.POLL, ready.grpc, "", one, 0, 0, world.now)
            )
            orders += only(Validate, commands)
        if orders:
            break
    (order,) = orders
    assert name == OLD
    assert (len(order.canary), len(order.stable)) == (1, 1)
    assert fleet.watches["m"].said == ""


def test_who_was_never_heard_of_again_is_waited_for_as_long_as_a_group_may_take() -> None:
    """An instance of the old group, here; samples cannot be tried on both."""
    world = _begun_again()
    fleet, until = world.fleet, rollout(world.fleet).entered + 100  # `ready_timeout_s`
    assert until in rollouts.deadlines(fleet, world.now)
    fleet, _ = play(fleet, Ticked(until - 1))
    assert at(fleet)[0] is Phase.VALIDATING
    fleet, commands = play(fleet, Ticked(until))
    assert at(fleet)[0] is Phase.ROLLING_BACK
    assert rollout(fleet).ground == "not_ready"
    assert "not validated within 100 s: waits for" in rollout(fleet).reason
    assert only(Validate, commands) == []
