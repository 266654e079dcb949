"""Everything the control plane knows, as one immutable value, and the questions asked of it.

Floor 1, pure.   Flow: events -> [snapshot] -> table
The control loop holds one FleetSnapshot and replaces it; nothing else is kept anywhere. Mappings in
it are never changed, only replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from typing import Final

from gateway.config import Model, Settings
from gateway.fleet.drain import Drain
from gateway.fleet.events import Asked, Event, SettingsRead
from gateway.fleet.health import Rules
from gateway.fleet.history import Entry
from gateway.fleet.registry import Seen, admissible
from gateway.fleet.rollout import Rollout, Watch, shares
from gateway.fleet.slots import NO_SLOT, SlotBook
from gateway.fleet.weights import NO_OVERRIDES, InForce, Override, Overrides, in_force
from gateway.records import RouteTable
from gateway.store.base import Change

# A table costs control and a worker some 20 us for each instance: a thousand that become READY one
# after another would have a thousand of them made. A small fleet has no such trouble.
GROWTH_S: Final = 100e-6
GROWTH_FREE: Final = 50  # instances
NONE_BLOCKED: Final[Mapping[str, Rollout]] = {}


class Stage(Enum):
    """Where a launched instance stands with its launcher."""

    QUEUED = "queued"  # for its device, or for memory there
    STARTING = "starting"  # its process runs and is not READY yet
    RUNNING = "running"
    BACKING_OFF = "backing_off"  # until retry_at
    CRASH_LOOP = "crash_loop"  # the same, after many deaths in a row: somebody should look
    FAILED = "failed"  # until somebody asks
    STOPPED = "stopped"  # by an operator


@dataclass(frozen=True, slots=True)
class Launched:
    """An instance that config.toml asks us to run."""

    name: str
    model: str
    version: str
    wish: str  # name of a [[device]]; "": any of the first one's kind
    device: str = ""  # where its process is, or was last
    stage: Stage = Stage.QUEUED
    reason: str = ""
    pid: int = 0  # 0: no process; -1: one whose number we have not been told
    started_at: float = 0.0
    retry_at: float = 0.0
    deaths: int = 0  # in a row
    restarts: int = 0
    terminated_at: float | None = None  # when it was sent SIGTERM by a rule of ours

    @property
    def loading(self) -> bool:
        return self.stage is Stage.STARTING

    @property
    def retries(self) -> bool:
        """Whether it has died and is started again by itself, at retry_at."""
        return self.stage in {Stage.BACKING_OFF, Stage.CRASH_LOOP}


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process, by its row."""

    index: int
    row: int
    pid: int  # 0: ordered, not seen yet
    started_at: float
    fresh: bool = True  # started by us and not heard of: it can hold no table and no lease
    linked: bool = False
    sent: int = 0  # generation sent last
    acked: int = 0
    due_at: float | None = None  # when its silence has lasted too long
    killed: bool = False
    compiled: bool | None = None  # its data plane; None: it has not said

    @property
    def name(self) -> str:
        return f"worker{self.index}.{self.row}"


@dataclass(frozen=True, slots=True)
class Closing:
    """The gateway's own end, step by step."""

    count: int  # signals so far
    step: str  # delay, workers, instances, over
    due_at: float


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    settings: Settings
    book: SlotBook
    segment: int  # identity of the segment that the book speaks of
    rows: int
    instances: Mapping[str, Seen] = field(default_factory=dict)
    overrides: Mapping[str, Overrides] = field(default_factory=dict)  # by model
    instance_overrides: Overrides = field(default_factory=dict)
    replica_overrides: Mapping[str, Overrides] = field(default_factory=dict)  # by model
    rollouts: Mapping[str, tuple[Rollout, ...]] = field(default_factory=dict)  # by model, last last
    watches: Mapping[str, Watch] = field(default_factory=dict)  # by model, of the one under way
    deaths: Mapping[tuple[str, str], int] = field(default_factory=dict)  # not read by a watch yet
    drains: Mapping[str, Drain] = field(default_factory=dict)
    launches: Mapping[str, Launched] = field(default_factory=dict)
    needs: Mapping[tuple[str, str], int] = field(default_factory=dict)  # absent: not read yet
    missing: frozenset[tuple[str, str]] = frozenset()  # the repository has no such snapshot
    load_s: Mapping[tuple[str, str], float] = field(default_factory=dict)  # measured last
    created_s: Mapping[str, int] = field(default_factory=dict)  # model: wall clock, first known
    workers: Mapping[int, Worker] = field(default_factory=dict)
    workers_wanted: int = 0
    settling: frozenset[int] = frozenset()  # rows of dead workers
    worker_retry: Mapping[int, float] = field(default_factory=dict)  # index: not before
    stale: frozenset[int] = frozenset()  # rows
    stand_ins: Mapping[int, int] = field(default_factory=dict)  # index: row that accepts for it
    table: RouteTable | None = None
    unpublished: bool = False  # the table would change; nobody can take a new one, or it waits
    hurried: bool = False  # not only by instances more: it waits for nothing but a worker
    published_at: float = -inf
    generation: int = 0
    ceiling: int = 0  # generations up to here are reserved in the store
    revision: int = 0
    refused: tuple[str, ...] = ()  # what is wrong with the config.toml that was read last
    warned: Mapping[str, tuple[str, float]] = field(default_factory=dict)  # id: of what, and when
    awaited: frozenset[str] = frozenset()  # before the first table of this life
    begun: bool = False  # the supervisor has said what runs
    early: tuple["Event", ...] = ()  # what came before that
    serving: bool = False
    closing: Closing | None = None
    stands_by: bool = False  # a predecessor still runs the gateway: look, and touch nothing
    frozen: bool = False  # a successor is about to take over, or has
    quiet: bool = False  # frozen, and asked for the end of all writes
    # Requests that a predecessor still holds, by instance; None: it has not said yet.
    elsewhere: Mapping[str, int] | None = field(default_factory=dict)
    asks: tuple["Asked | SettingsRead", ...] = ()  # first: being stored; others wait for it
    storing: tuple[Change, ...] = ()  # of the first ask
    drafted: Entry | None = None  # of the same
    drawn_up: Rollout | None = None  # of the same: as it is going to be
    history: tuple[Entry, ...] = ()  # oldest first
    entries: int = 0  # number of the one made last
    forgets_at: float = -inf  # nothing is forgotten before, the store has failed
    tokens: int = 0  # given to workers last
    noted_at: float = -inf  # standings sent last
    armed: float = inf  # when the next tick comes
    wall: float = 0.0  # wall clock at loop time 0: for what people read
    unread: tuple[str, ...] = ()  # documents that this life began without, a sentence each

    @property
    def still(self) -> bool:
        """Whether another gateway must not be surprised by a decision of ours."""
        return self.stands_by or self.frozen

    def held_elsewhere(self, name: str) -> int:
        """Requests of a predecessor on the instance; 1 while it has not said."""
        return 1 if self.elsewhere is None else self.elsewhere.get(name, 0)

    @property
    def left_elsewhere(self) -> bool:
        """Whether a predecessor holds anything, or has not said yet."""
        return self.elsewhere is None or any(self.elsewhere.values())

    def model(self, name: str) -> Model | None:
        return next((model for model in self.settings.model if model.name == name), None)

    def weight_of(self, seen: Seen) -> float:
        """The instance's own weight, in force."""
        override = self.instance_overrides.get(seen.name)
        kept = override is not None and override.over == seen.weight
        return override.weight if override is not None and kept else seen.weight

    def weights(self, model: str) -> dict[str, InForce]:
        """Of every version that the file or an operator names."""
        found = self.model(model)
        return in_force(found.weights if found else {}, self.overrides.get(model, NO_OVERRIDES))

    def sent(self, model: str) -> dict[str, InForce]:
        """The weights by which requests are sent: those in force, or those of a way back that the
        store cannot take yet."""
        found, last = self.weights(model), self.rollout(model)
        watch = self.watches.get(model)
        if last is None or not last.watched or watch is None or watch.condemned is None:
            return found
        back = shares(last.rest, last.version, 0.0)
        return {
            version: replace(one, weight=back.get(version, 0.0)) for version, one in found.items()
        }

    def replicas(self, model: str) -> dict[str, int]:
        """Instances that are ours to run, of every version that has some."""
        found = self.model(model)
        file = found.replicas if found else {}
        both = in_force(file, self.replica_overrides.get(model, NO_OVERRIDES))
        return {version: int(one.weight) for version, one in both.items()}

    def rollout(self, model: str) -> Rollout | None:
        """The model's rollout that runs, or its last one."""
        many = self.rollouts.get(model, ())
        return many[-1] if many else None

    def blocked(self, model: str) -> Mapping[str, Rollout]:
        """Versions to which nothing is sent, and the rollback that says so."""
        many = self.rollouts.get(model)
        if not many:  # asked again and again, for each instance
            return NONE_BLOCKED
        last = {one.version: one for one in many}
        watch = self.watches.get(model)
        condemned = watch is not None and watch.condemned is not None
        return {
            version: one
            for version, one in last.items()
            if one.blocks or (condemned and one.active)
        }

    def used(self, model: str) -> frozenset[str]:
        """Versions that the file names, that have a weight or a size, or an instance that is
        there."""
        found = self.model(model)
        file = (*found.weights, *found.replicas) if found else ()
        set_so = (
            *self.overrides.get(model, NO_OVERRIDES).items(),
            *self.replica_overrides.get(model, NO_OVERRIDES).items(),
        )
        there = (seen.version for seen in self.instances.values() if seen.model == model)
        return frozenset((*file, *(name for name, one in set_so if one.weight > 0), *there))

    def limit_of(self, seen: Seen) -> int:
        model = self.model(seen.model)
        return seen.limit or (model.limit if model else 1)

    def admissible(self, seen: Seen) -> bool:
        holder = self.book.holders.get(seen.slot) if seen.slot != NO_SLOT else None
        return holder is not None and holder.kept and admissible(seen, self.weight_of(seen))

    def routable(self, seen: Seen) -> bool:
        share = self.sent(seen.model).get(seen.version)
        open_now = seen.version not in self.blocked(seen.model)
        return share is not None and share.weight > 0 and open_now and self.admissible(seen)

    def health_rules(self) -> Rules:
        poll = self.settings.poll
        return Rules(
            failures=poll.failures,
            successes=poll.successes,
            stuck_s=poll.stuck_s,
            first_byte_s=self.settings.timeouts.first_byte_s,
            recent_s=poll.interval_s * poll.failures + poll.timeout_s,
        )

    # -- workers

    def holding(self) -> dict[int, int]:
        """Pid: row, of the workers that can hold leases: those owe acknowledgements."""
        return {one.pid: one.row for one in self.workers.values() if not one.fresh}

    def served(self) -> int:
        """The generation that every worker serves at least."""
        acked = [one.acked for one in self.workers.values() if not one.fresh]
        return min(acked, default=self.generation)

    def due_at(self) -> float:
        """When a table that only has instances more may follow the last one."""
        return self.published_at + max(0, len(self.instances) - GROWTH_FREE) * GROWTH_S

    def beats(self) -> bool:
        """Whether some worker that has a table is not stopped."""
        return any(one.acked and one.row not in self.stale for one in self.workers.values())

    def slot_owner(self, slot: int) -> Seen | None:
        """The instance whose current incarnation has the slot."""
        holder = self.book.holders.get(slot)
        seen = self.instances.get(holder.instance) if holder else None
        return seen if seen is not None and seen.slot == slot else None


def overrides_with(overrides: Mapping[str, Override], name: str, one: Override) -> Overrides:
    return {**overrides, name: one}


def overrides_without(overrides: Mapping[str, Override], name: str) -> Overrides:
    return {key: one for key, one in overrides.items() if key != name}
