"""One decision in the making: the snapshot so far, and what it calls for.

Floor 1, pure.
Owner: one call of `decide`, which makes it and takes it apart again; nothing of it survives, so
`decide` stays a function of the snapshot and the event.
"""

from dataclasses import replace
from typing import Any, Final

from gateway.control import DrainInstance, RemoveInstance, StopInstance, UndrainInstance
from gateway.fleet.commands import Command, Follow, ReadNeeds, Record, Unfollow, Write
from gateway.fleet.drain import Drain
from gateway.fleet.durable import OF_INSTANCE, drain_change, instance_document
from gateway.fleet.events import Asked, FactKept
from gateway.fleet.history import Entry, grown
from gateway.fleet.registry import STATIC, Origin, Seen
from gateway.fleet.rollout import Move, Watch
from gateway.fleet.slots import leave
from gateway.fleet.snapshot import FleetSnapshot, Launched, Worker, overrides_without
from gateway.fleet.table import target
from gateway.records import Health, Intent
from gateway.store.base import Change, Put, Remove

WARN_S: Final = 60.0
WARNED_MAX: Final = 100  # instances in that time
OF_DRAINS: Final = (DrainInstance, StopInstance, UndrainInstance, RemoveInstance)


class Turn:
    """The current snapshot, the commands so far, and whether the table may have to change."""

    __slots__ = ("commands", "fleet", "moves", "now", "receipts", "routes_grew", "routes_moved")

    def __init__(self, fleet: FleetSnapshot, now: float) -> None:
        self.fleet = fleet
        self.now = now
        self.commands: list[Command] = []
        self.routes_moved = False
        self.routes_grew = False  # by an instance more, and nothing else: that may wait a moment
        self.moves: list[Move] = []  # of rollouts, that the event has made due
        self.receipts: list[tuple[int, tuple[str, ...]]] = []  # answered once the table is out

    def order(self, *commands: Command) -> None:
        self.commands.extend(commands)

    def change(self, **fields: Any) -> None:
        self.fleet = replace(self.fleet, **fields)

    def record(
        self, kind: str, subject: str, text: str, /, *, warn: bool = False, **fields: Any
    ) -> None:
        self.order(Record(kind, subject, text, fields, warn))

    def warn_rarely(self, name: str, text: str) -> None:
        """Of what an instance does again and again: once a minute, and of so many instances at
        most, so that a flood of it pushes out nothing else that people should read."""
        warned = {key: one for key, one in self.fleet.warned.items() if self.now < one[1] + WARN_S}
        if len(warned) < WARNED_MAX and warned.get(name, ("", 0.0))[0] != text:
            warned[name] = (text, self.now)
            self.record("instance", name, text, warn=True)
        self.change(warned=warned)

    def keep(self, *changes: Change) -> None:
        """Write what nothing waits for."""
        self.order(Write(changes, FactKept(self.now)))

    # -- history

    def draft(self, by: str, about: tuple[str, str], text: str, revision: int) -> Entry:
        """An entry with a number of its own; it counts once the store has it."""
        self.change(entries=self.fleet.entries + 1)
        at = self.fleet.wall + self.now
        return Entry(self.fleet.entries, at, by, *about, text, revision)

    def enter(self, entry: Entry) -> None:
        self.change(history=grown(self.fleet.history, entry))

    # -- instances

    def put(self, seen: Seen) -> None:
        """The instance's record from now on; says so to the poller when its address moved."""
        old = self.fleet.instances.get(seen.name)
        before = target(self.fleet, old) if old else None
        if old is None:
            seen = replace(seen, intent=self._wanted(seen))
        self.change(instances={**self.fleet.instances, seen.name: seen})
        after = target(self.fleet, seen)
        if before is None:
            self.routes_grew = self.routes_grew or after is not None or old is None
        elif after != before:
            self.routes_moved = True
        if seen.grpc and (old is None or old.grpc != seen.grpc):
            self.order(Follow(seen.name, seen.grpc))
        if old is not None and old.slot != seen.slot:
            self.leave_slot(old.slot)
        known = seen.opinion.health is not Health.UNKNOWN  # it has answered, or failed to
        if known and seen.name in self.fleet.awaited:
            self.change(awaited=self.fleet.awaited - {seen.name})

    def _wanted(self, seen: Seen) -> Intent:
        """What operators want of an id that was not there: a drain outlives its instance.

        One with stop does so only of what the launcher would start again.
        """
        drain = self.fleet.drains.get(seen.name)
        if drain is None or (drain.stop and seen.origin is not Origin.LAUNCHED):
            return seen.intent
        return drain.intent

    def leave_slot(self, slot: int) -> None:
        """The slot's incarnation is over: the table that follows does not name it."""
        book = leave(self.fleet.book, slot, self.fleet.generation + 1, self.now)
        self.change(book=book)

    def keep_instance(self, seen: Seen) -> None:
        """Write down a registration, so that the next control knows where to look."""
        if seen.origin not in STATIC or seen.retired:
            self.keep(Put("instances", seen.name, instance_document(seen)))

    def forget(self, name: str, why: str) -> None:
        """The instance is gone from the fleet, and from the store."""
        seen = self.fleet.instances[name]
        self.leave_slot(seen.slot)
        self.forget_weight(name)
        fleet = self.fleet
        drain = fleet.drains.get(name)
        if drain is not None and drain.lasts:  # bound to the id, whoever comes under it
            self.keep(drain_change(drain, fleet.wall, self.now))
        else:
            self.change(drains={key: one for key, one in fleet.drains.items() if key != name})
            self.keep(Remove("drains", name))
        self.change(
            instances={key: one for key, one in fleet.instances.items() if key != name},
            launches={key: one for key, one in fleet.launches.items() if key != name},
            awaited=fleet.awaited - {name},
        )
        self.routes_moved = True
        self.order(Unfollow(name))
        self.keep(Remove("instances", name))
        self.record("instance", name, f"{name} forgotten: {why}", reason=why)

    def forget_weight(self, name: str) -> None:
        """The weight that an operator set is not for whoever takes the name next."""
        overrides = self.fleet.instance_overrides
        if name in overrides:
            self.change(instance_overrides=overrides_without(overrides, name))
            self.keep(Remove("weights", f"{OF_INSTANCE}{name}"))

    def put_launch(self, launched: Launched) -> None:
        self.change(launches={**self.fleet.launches, launched.name: launched})

    def look_again(self, model: str, version: str) -> None:
        """Before one is started anew: a manifest that said nothing may be another by now, and one
        that computed may have been corrected by what was measured."""
        needs, pair = self.fleet.needs, (model, version)
        if not needs.get(pair):
            self.change(needs={key: one for key, one in needs.items() if key != pair})
        self.order(ReadNeeds(frozenset({pair})))

    # -- rollouts

    def put_watch(self, model: str, watch: Watch) -> None:
        self.change(watches={**self.fleet.watches, model: watch})

    def count_death(self, name: str, model: str, version: str) -> None:
        """An instance of it died without being asked to; for the rollout that watches it."""
        rollout = self.fleet.rollout(model)
        if rollout is not None and rollout.active:
            deaths, key = self.fleet.deaths, (model, version)
            self.change(deaths={**deaths, key: deaths.get(key, 0) + 1})
        self.forget_life(name, model)

    def forget_life(self, name: str, model: str) -> None:
        """What was read of the instance is over, and whoever has to know it knows."""
        watch = self.fleet.watches.get(model)
        if watch is not None and name in watch.lives:
            lives = {key: one for key, one in watch.lives.items() if key != name}
            self.put_watch(model, replace(watch, lives=lives))

    def forget_deaths(self, model: str) -> None:
        """They were read, or are nobody's to watch."""
        deaths = self.fleet.deaths
        self.change(deaths={key: one for key, one in deaths.items() if key[0] != model})

    # -- drains

    def put_drain(self, drain: Drain) -> None:
        self.change(drains={**self.fleet.drains, drain.name: drain})

    def keep_drain(self, name: str, change: Change) -> None:
        """Write down what has become of a drain; but what an operator asks of the same instance is
        on its way to the store already, and a later word about the past would undo it there."""
        first = self.fleet.asks[0] if self.fleet.asks else None
        ask = first.ask if isinstance(first, Asked) else None
        if not isinstance(ask, OF_DRAINS) or ask.instance != name:
            self.keep(change)

    # -- workers

    def put_worker(self, worker: Worker) -> None:
        self.change(workers={**self.fleet.workers, worker.row: worker})
