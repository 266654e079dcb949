"""What can happen to the control plane because of a worker: what it says, and what its row shows.

Floor 0, pure.   Flow: link, segment -> [worker_events] -> events -> decide
"""

from dataclasses import dataclass

from gateway.messages import LostRequest


@dataclass(frozen=True, slots=True)
class WorkerLinked:
    index: int
    row: int
    pid: int
    generation: int  # of the table it serves; 0: none
    now: float
    compiled: bool = False
    waits: bool = False  # for leave to accept


@dataclass(frozen=True, slots=True)
class WorkerUnlinked:
    row: int
    pid: int
    now: float


@dataclass(frozen=True, slots=True)
class WorkerAcked:
    row: int
    generation: int
    now: float


@dataclass(frozen=True, slots=True)
class SlotSent:
    """The worker holds no lease on the slot that is connecting or sending."""

    row: int
    token: int
    now: float


@dataclass(frozen=True, slots=True)
class SlotEmptied:
    """The worker holds no lease on the slot."""

    row: int
    token: int
    now: float


@dataclass(frozen=True, slots=True)
class LeasesCut:
    row: int
    token: int
    lost: tuple[LostRequest, ...]
    now: float


@dataclass(frozen=True, slots=True)
class DialFailed:
    slot: int
    reason: str
    now: float


@dataclass(frozen=True, slots=True)
class RequestsFailed:
    """So many requests to the slot's instance failed, one after another, and none was served."""

    slot: int
    count: int
    now: float


@dataclass(frozen=True, slots=True)
class BeatsWentStale:
    """The rows whose beat is older than it may be now; the whole set, each time it changes."""

    rows: frozenset[int]
    now: float


@dataclass(frozen=True, slots=True)
class RowSettled:
    """What a dead worker's row holds is lost, by name; nobody adds to it any more."""

    row: int
    lost: tuple[LostRequest, ...]
    now: float


@dataclass(frozen=True, slots=True)
class SlotFolded:
    """The slot's counters are in the retained bases, durably, and its cells are 0."""

    slot: int
    now: float


WorkerEvent = (
    WorkerLinked
    | WorkerUnlinked
    | WorkerAcked
    | SlotSent
    | SlotEmptied
    | LeasesCut
    | DialFailed
    | RequestsFailed
    | BeatsWentStale
    | RowSettled
    | SlotFolded
)
