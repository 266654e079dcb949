"""A fleet in which version 2 of model m rolls out beside version 1, for tests."""

from typing import Final

from gateway.control import Ask
from gateway.fleet.commands import Command, Launch, ReadCounts
from gateway.fleet.durable import overrides_change, replicas_change
from gateway.fleet.events import (
    Asked,
    ChildExited,
    Event,
    LaunchOrdered,
    Observed,
    Registered,
    SlotEmptied,
    SlotSent,
    Source,
    Ticked,
)
from gateway.fleet.registry import hashed
from gateway.fleet.rollout import Rollout
from gateway.fleet.rollout_documents import rollout_change, watch_change
from gateway.fleet.rollout_events import CountsRead
from gateway.fleet.snapshot import FleetSnapshot
from gateway.rollout.counts import NOTHING, Counts
from gateway.rollout.machine import Phase
from gateway.rollouts import StartRollout
from gateway.store.base import Documents
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import begun, only, play, status

OLD: Final = "m-1-0"
NEW: Final = "m-2-0"
STEPS: Final = ({"weight": 5, "hold_s": 10, "requests_min": 20},
                {"weight": 25, "hold_s": 10, "requests_min": 20},
                {"weight": 100, "hold_s": 10, "requests_min": 20})  # fmt: skip
CONFIG: Final = """
[registry]
ttl_s = 9999
[[device]]
name = "d0"
memory_gb = 10
[[model]]
name = "m"
weights = { "1" = 100 }
replicas = { "1" = 1 }
command = ["serve"]
[model.rollout]
keep_old_s = 20
ready_timeout_s = 100
"""


def asked(ask: Ask, now: float, ticket: int = 1) -> Asked:
    return Asked(ticket, ask, False, None, now, "ann")


def grown(name: str, version: str, now: float) -> list[Event]:
    """A launched instance that registers, loads, and is READY."""
    named = {"version": version, "incarnation": f"{name}@{now}"}
    loading = status(name, State.INITIALIZING, **named)
    ready = status(name, State.READY, sequence=2, **named)
    return [
        LaunchOrdered(name, hashed("t"), now),
        Registered(1, loading, "t", 0.0, 0, now),
        *(Observed(name, Source.POLL, ready.grpc, "", ready, 0, 0, now + n) for n in (1.0, 2.0)),
    ]


def serving(config: str = CONFIG) -> FleetSnapshot:
    fleet, _ = play(begun(config), *grown(OLD, "1", 1.0))
    return fleet


def start(**given: object) -> StartRollout:
    return StartRollout("m", "2", **({"steps": STEPS} | given))  # type: ignore[arg-type]


def rollout(fleet: FleetSnapshot) -> Rollout:
    found = fleet.rollout("m")
    assert found is not None
    return found


def at(fleet: FleetSnapshot) -> tuple[Phase, int]:
    return rollout(fleet).phase, rollout(fleet).step


def weights(fleet: FleetSnapshot) -> dict[str, float]:
    """Of the published table, blocked versions apart."""
    assert fleet.table is not None
    (route,) = fleet.table.routes
    return {one.name: one.weight for one in route.versions if not one.blocked}


def counts(served: int = 0, failed: int = 0) -> Counts:
    return Counts(served=served, failed=failed)


class Traffic:
    """What both versions have done so far; every reading that is asked for is answered with it."""

    def __init__(self) -> None:
        self.canary = self.stable = NOTHING

    def grow(self, canary: Counts, stable: Counts) -> None:
        self.canary, self.stable = self.canary + canary, self.stable + stable

    def play(self, fleet: FleetSnapshot, *events: Event) -> tuple[FleetSnapshot, list[Command]]:
        done: list[Command] = []
        for event in events:
            fleet, commands = play(fleet, event)
            done += commands
            while asks := only(ReadCounts, commands):
                reading = CountsRead(
                    asks[0].model, asks[0].version, self.canary, self.stable, event.now
                )
                fleet, commands = play(fleet, reading)
                done += commands
        return fleet, done

    def second(
        self, fleet: FleetSnapshot, now: float, canary: Counts, stable: Counts
    ) -> tuple[FleetSnapshot, list[Command]]:
        """One second passes, in which both have done this."""
        self.grow(canary, stable)
        return self.play(fleet, Ticked(now))


def stepping(traffic: Traffic, now: float = 10.0, **given: object) -> FleetSnapshot:
    """In step 1, from `now` + 2 on."""
    fleet, commands = traffic.play(serving(), asked(start(**given), now))
    assert [one.name for one in only(Launch, commands)] == [NEW]
    fleet, _ = traffic.play(fleet, *grown(NEW, "2", now))
    assert at(fleet) == (Phase.STEP, 1)
    return fleet


def gone(fleet: FleetSnapshot, now: float) -> FleetSnapshot:
    """The process of the new instance has ended, as it was told to."""
    if NEW in fleet.drains:
        token = fleet.drains[NEW].token
        fleet, _ = play(fleet, SlotSent(0, token, now), SlotEmptied(0, token, now))
    fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, 0, now))
    return fleet


def stored(fleet: FleetSnapshot) -> Documents:
    """What a store holds that has taken everything."""
    puts = [
        overrides_change("m", fleet.overrides["m"]),
        replicas_change("m", fleet.replica_overrides["m"]),
        rollout_change(rollout(fleet)),
        watch_change(rollout(fleet), fleet.watches["m"]),
    ]
    documents: Documents = {}
    for put in puts:
        documents.setdefault(put.kind, {})[put.key] = put.document
    return documents
