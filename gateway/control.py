"""All that admin may touch: read the fleet, ask for a change, follow what happens.

Floor 4, no I/O.
The control process implements Control; admin's tests use a fake of the same shape. Reading is free
and never changes anything. Every change is an Ask; its Receipt names the generation whose table
contains it. Times are wall clock seconds since the epoch: they are for people.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

# What admin needs of the config's words and of rollouts; it imports them from here.
from gateway.config import NAME as NAME
from gateway.config import NAME_RULE as NAME_RULE
from gateway.config import Problem as Problem
from gateway.config import is_address as is_address
from gateway.rollouts import AbortRollout as AbortRollout
from gateway.rollouts import CheckView as CheckView
from gateway.rollouts import PauseRollout as PauseRollout
from gateway.rollouts import PromoteRollout as PromoteRollout
from gateway.rollouts import ResumeRollout as ResumeRollout
from gateway.rollouts import RetryRollout as RetryRollout
from gateway.rollouts import RolloutAsk as RolloutAsk
from gateway.rollouts import RolloutView as RolloutView
from gateway.rollouts import SideView as SideView
from gateway.rollouts import StartRollout as StartRollout
from gateway.rollouts import StepView as StepView
from gateway.rollouts import TransitionView as TransitionView

# --- what can be read ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceView:
    kind: str
    id: str
    memory_total_bytes: int
    memory_used_bytes: int
    memory_reserved_bytes: int
    memory_free_bytes: int
    memory_peak_bytes: int


@dataclass(frozen=True, slots=True)
class InstanceView:
    """One instance; state, intent and health are three opinions and stay apart."""

    id: str
    incarnation: str
    model: str
    version: str
    http: str
    grpc: str
    state: str  # INITIALIZING, READY, DRAINING, STOPPED, ERROR; "" before the first status
    phase: str
    progress: float  # percent
    reason: str  # why it is not routable, or what the instance says
    intent: str  # active, drain, stop
    health: str  # good, suspect, unhealthy, lost, unknown
    weight: float
    limit: int
    in_flight: int  # leases of this gateway on it, and of a predecessor that still finishes
    active_requests: int  # as it says itself
    queue_depth: int
    tokens_per_s: float
    batch_utilisation_ratio: float
    routable: bool
    device: DeviceView | None
    origin: str  # config, registered, launched, api
    since: float  # of the state
    ready_in_s: float  # estimate; negative: unknown
    restarts: int
    pid: int  # of a launched one; 0 otherwise
    load_ms: float
    compile_ms: float
    warmup_ms: float


@dataclass(frozen=True, slots=True)
class VersionView:
    version: str
    weight: float  # set
    origin: str  # of the weight: file, run-time
    file_weight: float | None  # what the file says, when a run-time weight overrides it
    effective: float  # share of new requests, 0..1
    observed: float  # share of the requests accepted lately, 0..1
    blocked: bool
    replicas: int  # asked of the launcher
    instances: int
    ready: int
    routable: int


@dataclass(frozen=True, slots=True)
class ModelView:
    name: str
    policy: str
    limit: int
    waiting: int
    queue_max: int
    versions: tuple[VersionView, ...]


@dataclass(frozen=True, slots=True)
class LostView:
    """A request that did not end by itself."""

    request_id: str  # 16 hex digits, the gateway's own
    client_request_id: str
    model: str
    version: str
    instance: str
    stage: str
    age_s: float
    bytes: int
    cause: str  # drain deadline, operator, worker died


@dataclass(frozen=True, slots=True)
class DrainView:
    instance: str
    phase: str  # publishing, settling, waiting, stopping, done, cut, undrained
    stop: bool
    held: int  # leases of this gateway on it, and of a predecessor that still finishes
    active_requests: int  # as the instance says
    began: float
    deadline: float
    remaining_s: float
    ended: float | None
    lost: tuple[LostView, ...]


@dataclass(frozen=True, slots=True)
class LeaseView:
    request_id: str
    client_request_id: str
    model: str
    version: str
    instance: str
    incarnation: str
    connection: int  # local port
    stage: str  # unplaced: it has no instance yet, and is not in flight
    age_s: float
    bytes: int
    worker: int  # pid


@dataclass(frozen=True, slots=True)
class WorkerView:
    index: int
    pid: int
    generation: int
    connections: int
    in_flight: int
    beat_age_s: float
    compiled: bool | None  # its data plane; None: it has not said yet


@dataclass(frozen=True, slots=True)
class StatusView:
    version: str  # of Sluicegate
    pid: int  # of the supervisor
    started: float
    generation: int  # published
    revision: int  # of intent and config
    serving: bool  # every worker has served a table, one of them answers, and nothing is closing
    closing: bool
    listen: tuple[str, ...]
    workers: tuple[WorkerView, ...]
    data_plane: str  # compiled, interpreted, mixed (workers differ); unknown: none has said
    models: tuple[ModelView, ...]
    instances: int
    routable: int
    in_flight: int
    problems: tuple[str, ...]  # sentences an operator should read


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `id` grows by one, and `Last-Event-ID` resumes behind it."""

    id: int
    at: float
    kind: str  # instance, drain, weights, config, rollout, worker, gateway, request
    subject: str  # what it happened to
    text: str  # a sentence
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChangeView:
    """A change of intent, or a drain's end; kept in the store, the last thousand of them."""

    id: int
    at: float
    by: str  # who asked, as he says himself, and from where; or what made the gateway do it
    kind: str  # weights, drain, instance, lease, config, rollout
    subject: str
    text: str  # what changed, a sentence each
    revision: int


# --- what can be asked ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetWeights:
    """Every weight of the model at once; versions that are left out get 0."""

    model: str
    weights: dict[str, float]
    override: bool = False  # even while a rollout owns them


@dataclass(frozen=True, slots=True)
class ResetWeights:
    """Back to what the file says."""

    model: str


@dataclass(frozen=True, slots=True)
class SetInstanceWeight:
    instance: str
    weight: float


@dataclass(frozen=True, slots=True)
class DrainInstance:
    """Idempotent: a second one answers with the drain that runs, and its deadline."""

    instance: str
    grace_s: float | None
    stop: bool
    force: bool  # even the last routable instance of its model


@dataclass(frozen=True, slots=True)
class ResetInstanceWeight:
    """Back to what the file, or the instance's own registration, says."""

    instance: str


@dataclass(frozen=True, slots=True)
class UndrainInstance:
    instance: str


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Drain, then stop; with `force`, cut and kill now: for one that does not answer any more."""

    instance: str
    force: bool
    grace_s: float | None = None  # of the drain; None: the config's


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Of a launched one: begin again after a stop, a failure, or in a crash loop."""

    instance: str


@dataclass(frozen=True, slots=True)
class AddInstance:
    id: str
    model: str
    version: str
    http: str
    grpc: str


@dataclass(frozen=True, slots=True)
class RemoveInstance:
    instance: str


@dataclass(frozen=True, slots=True)
class CancelLease:
    request_id: str


@dataclass(frozen=True, slots=True)
class Reload:
    """Read config.toml again: whole, or not at all."""


Ask = (
    SetWeights
    | ResetWeights
    | SetInstanceWeight
    | ResetInstanceWeight
    | DrainInstance
    | UndrainInstance
    | StopInstance
    | StartInstance
    | AddInstance
    | RemoveInstance
    | CancelLease
    | Reload
    | RolloutAsk
)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A change was made (or would be, on a dry run); `changes` says which, a sentence each."""

    generation: int
    revision: int
    changes: tuple[str, ...]


class Denied(Exception):
    """An ask that was not carried out; nothing has changed.

    `code`: unknown_instance, unknown_model, unknown_lease, unknown_rollout, unknown_version,
    invalid, last_routable, conflict, from_file, revision_moved, closing, handing_over,
    store_failed. `problems` where it has several parts. The one exception is not_served: it is
    made, and was waited for in vain.
    """

    def __init__(self, code: str, message: str, problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.problems = problems


class Control(Protocol):
    """The one object of the gateway that admin holds."""

    def status(self) -> StatusView: ...

    def instances(self) -> tuple[InstanceView, ...]: ...

    def models(self) -> tuple[ModelView, ...]: ...

    def drains(self) -> tuple[DrainView, ...]:
        """Running ones, and the last that ended of each instance."""

    def leases(self, instance: str | None, model: str | None) -> tuple[LeaseView, ...]: ...

    def config(self) -> dict[str, Any]:
        """Dotted key: {"value": in force, "origin": "file" | "default" | "run-time"}."""

    def check(self, text: str) -> tuple[Problem, ...]:
        """What is wrong with a candidate config.toml, what cannot change live included."""

    def rollouts(self, model: str | None) -> tuple[RolloutView, ...]:
        """Of the model, or of all: those that run and the last that ended, newest first."""

    def history(self) -> tuple[ChangeView, ...]:
        """What was changed, by whom and when, oldest first; over restarts."""

    async def ask(
        self, ask: Ask, *, wait: bool, dry_run: bool, revision: int | None, by: str = "an operator"
    ) -> Receipt:
        """Carry out a change; with `wait`, return once every worker serves it.

        Raises: Denied; nothing has changed.
        """

    def events(self, after: int | None) -> AsyncIterator[Event]:
        """What happens from now on, or from behind event `after` as far as it is remembered."""

    def metrics(self) -> bytes:
        """Prometheus text format, read from the segment now."""
