"""A world around control for rollouts: a store, processes, traffic, a clock of whole seconds.

Control may be killed at any write, with or without its having been kept; what is outside lives on.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gateway.config import parse
from gateway.fleet.commands import (
    CallDrain,
    Command,
    Confirm,
    Launch,
    ReadCounts,
    ReadNeeds,
    Tell,
    Write,
)
from gateway.fleet.decide import decide
from gateway.fleet.events import (
    ChildExited,
    ChildrenSeen,
    Event,
    LaunchOrdered,
    NeedsRead,
    Observed,
    Registered,
    SlotEmptied,
    SlotSent,
    Source,
    Ticked,
    WorkerAcked,
    WorkerLinked,
)
from gateway.fleet.launches import label
from gateway.fleet.registry import hashed
from gateway.fleet.restore import Life, restore
from gateway.fleet.rollout_events import CountsRead
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import Kill, Publish, TellEmpty, TellSent
from gateway.records import RouteTable, VersionName
from gateway.rollout.counts import NOTHING, Counts
from gateway.rollout.machine import Phase
from gateway.rollouts import StartRollout
from gateway.store.base import Documents, Put
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import LAYOUT, status
from tests.gateway.fleet.rolling import CONFIG, asked, at

LOAD_S: Final = 2.0
STATES: Final = (State.INITIALIZING, State.READY, State.DRAINING)  # in this order


class Died(Exception):
    """Control, at this write."""


class World:
    """`dies_at`: the number of the write at which control is killed; `kept`: that was on disk."""

    def __init__(self, dies_at: int = -1, kept: bool = True, config: str = CONFIG) -> None:
        self.config = config
        self.now = 0.0
        self.segment = 1
        self.documents: Documents = {}
        self.writes = 0
        self.deaths = 0
        self.dies_at, self.kept = dies_at, kept
        self.processes: dict[str, float] = {}  # since when
        self.versions: dict[str, str] = {}
        self.draining: set[str] = set()
        self.canary = self.stable = NOTHING
        self.generation = 0
        self.table: RouteTable | None = None  # that the worker serves, whoever published it
        self.begin()

    def begin(self) -> None:
        """A control is born into what there is."""
        life = Life(LAYOUT, self.segment, self.generation, self.now, 0.0)
        self.fleet: FleetSnapshot = restore(parse(self.config), self.documents, life)
        pids = {f"instance.{name}": 100 + n for n, name in enumerate(self.processes)}
        labels = {name: label(hashed("t"), "d0") for name in pids}
        self.happen(
            ChildrenSeen({"worker0.0": 77, **pids}, 1, frozenset(), self.now, labels),
            WorkerLinked(0, 0, 77, self.generation, self.now),
        )

    def happen(self, *events: Event) -> None:
        """Taken by the control that is there; a killed one is followed by another at once."""
        for event in events:
            try:
                self._take(event)
            except Died:
                self.deaths += 1
                self.dies_at = -1
                self.begin()
                return

    def _take(self, event: Event) -> None:
        self.fleet, commands = decide(self.fleet, event)
        self.generation = max(self.generation, self.fleet.generation)
        for command in commands:
            for answer in self._carry_out(command):
                self._take(answer)

    def _carry_out(self, command: Command) -> Sequence[Event]:
        now = self.now
        match command:
            case Write(changes, then):
                self.writes += 1
                dies = self.writes == self.dies_at
                if not dies or self.kept:
                    self._keep(changes)
                if dies:
                    raise Died
                return (replace(then, now=now),)
            case Confirm(claim):
                return (replace(claim, asked=True),)
            case Tell(row, Publish(table)):
                self.table = table
                return (WorkerAcked(row, table.generation, now),)
            case Tell(row, TellSent(_, token)):
                return (SlotSent(row, token, now),)
            case Tell(row, TellEmpty(_, token)):
                return (SlotEmptied(row, token, now),)
            case CallDrain(name):
                self.draining.add(name)
            case ReadNeeds(pairs):
                return (NeedsRead(dict.fromkeys(pairs, 0), now),)
            case ReadCounts(model, version):
                return (CountsRead(model, version, self.canary, self.stable, now),)
            case Launch(name, _, version):
                self.processes[name], self.versions[name] = now, version
                return (LaunchOrdered(name, hashed("t"), now),)
            case _ if isinstance(getattr(command, "message", None), Kill):
                name = command.message.name.removeprefix("instance.")  # type: ignore[union-attr]
                return self._ended(name)
        return ()

    def _ended(self, name: str) -> Sequence[Event]:
        if self.processes.pop(name, None) is None:
            return ()
        self.draining.discard(name)
        return (ChildExited(f"instance.{name}", 9, 0, self.now),)

    def _keep(self, changes: Sequence[object]) -> None:
        for change in changes:
            kind = self.documents.setdefault(change.kind, {})  # type: ignore[attr-defined]
            if isinstance(change, Put):
                kind[change.key] = change.document
            else:
                kind.pop(change.key, None)  # type: ignore[attr-defined]

    def share(self, version: str) -> float:
        """Percent of the requests that go there."""
        if self.table is None:
            return 0.0
        (route,) = self.table.routes
        there = {one.name: one.weight for one in route.versions if one.targets and not one.blocked}
        whole = sum(there.values())
        return 100 * there.get(VersionName(version), 0.0) / whole if whole else 0.0

    # -- time

    def second(self, canary: Counts, stable: Counts) -> None:
        """One second passes, in which both versions have done this; everybody is polled."""
        self.now += 1.0
        self.canary, self.stable = self.canary + canary, self.stable + stable
        for name, since in tuple(self.processes.items()):
            named = {"version": self.versions[name], "incarnation": f"{name}@{since}"}
            ready = self.now >= since + LOAD_S
            state = State.READY if ready else State.INITIALIZING
            state = State.DRAINING if ready and name in self.draining else state
            said = status(name, state, sequence=STATES.index(state) + 1, **named)
            seen = self.fleet.instances.get(name)
            if seen is None or not seen.grpc:
                first = status(name, State.INITIALIZING, **named)
                self.happen(Registered(1, first, "t", 0.0, 0, self.now))
            self.happen(Observed(name, Source.POLL, said.grpc, "", said, 0, 0, self.now))
            drain = self.fleet.drains.get(name)
            if drain is not None and drain.stop and drain.phase.value == "stopping":
                self.happen(*self._ended(name))
        self.happen(Ticked(self.now))

    def steps(self, ask: StartRollout) -> None:
        """Into the first step of the rollout that is asked for."""
        while not any(self.fleet.routable(seen) for seen in self.fleet.instances.values()):
            self.second(NOTHING, NOTHING)
        self.happen(asked(ask, self.now))
        while at(self.fleet) != (Phase.STEP, 1):
            self.second(NOTHING, NOTHING)
            assert self.now < 50
