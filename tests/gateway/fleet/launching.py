"""Launched instances in tests: two of them, how they start, what a store keeps of them."""

from typing import Final

from gateway.fleet.events import (
    ChildrenSeen,
    LaunchOrdered,
    Observed,
    Registered,
    Source,
    WorkerLinked,
)
from gateway.fleet.registry import hashed
from gateway.fleet.snapshot import FleetSnapshot
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import LAUNCHED, begun, play, status, targets

A: Final = "m-1-0"
B: Final = "m-1-1"
A_CHILD: Final = f"instance.{A}"


def started(name: str, now: float) -> list[LaunchOrdered | Registered]:
    loading = status(name, State.INITIALIZING, incarnation=f"{name}@{now}")
    return [LaunchOrdered(name, hashed("t"), now), Registered(1, loading, "t", 0.0, 0, now)]


def reading(name: str, born: float, now: float, state: State = State.READY) -> Observed:
    one = status(name, state, incarnation=f"{name}@{born}", sequence=2)
    return Observed(name, Source.POLL, one.grpc, "", one, 0, 0, now)


def running() -> FleetSnapshot:
    fleet, _ = play(begun(LAUNCHED), *started(A, 1.0), reading(A, 1.0, 11.0))
    fleet, _ = play(fleet, *started(B, 12.0), reading(B, 12.0, 22.0))
    assert targets(fleet) == [A, B]
    return fleet


def first_events() -> tuple[ChildrenSeen, WorkerLinked]:
    return ChildrenSeen({}, 1, frozenset(), 0.0), WorkerLinked(0, 0, 7, 0, 0.0)
