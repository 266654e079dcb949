"""What can happen to the control plane: every event, with the time it happened.

Floor 0, pure.   Flow: shells -> [events] -> decide -> commands
Past tense. `now` is loop time in seconds; a decision never asks for another clock. A ticket is the
number under which a shell waits for the answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from gateway.config import Problem, Settings
from gateway.control import Ask
from gateway.fleet.handing import (
    ClaimFailed,
    CutAsked,
    FreezeAsked,
    GivenAway,
    HeldElsewhere,
    StoreClaimed,
    Thawed,
    TookOver,
    WritesSettled,
)
from gateway.fleet.rollout import Move
from gateway.fleet.rollout_events import CountsRead, Validated
from gateway.fleet.status import Status
from gateway.messages import LostRequest


class Source(Enum):
    """The road on which a reading came."""

    POLL = auto()  # we asked
    WATCH = auto()  # its stream
    BEAT = auto()  # it called us
    REPLY = auto()  # with the answer to Drain, Resume or Stop


# --- instances -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Observed:
    """A reading came in. `grpc` is the address that was asked; `host` the resolved HTTP host."""

    name: str
    source: Source
    grpc: str
    host: str
    status: Status
    received_bytes: int  # from this instance, by the segment
    held: int  # leases of this gateway on it, by the segment
    now: float


@dataclass(frozen=True, slots=True)
class PollFailed:
    name: str
    grpc: str
    reason: str
    slow: bool  # the deadline passed, as opposed to a refusal
    received_bytes: int
    held: int
    now: float


@dataclass(frozen=True, slots=True)
class Registered:
    """An instance registered itself, and waits for the answer."""

    ticket: int
    status: Status
    token: str = field(repr=False)  # of the launcher
    weight: float
    limit: int
    now: float
    lease: str = ""  # hash of its secret
    asked: bool = False  # at its address, and this is what was said there
    doubt: str = ""  # why it is not believed, once that was asked


@dataclass(frozen=True, slots=True)
class Beaten:
    """An instance beat, and waits for the answer."""

    ticket: int
    status: Status
    received_bytes: int
    held: int
    now: float
    lease: str = ""


@dataclass(frozen=True, slots=True)
class Deregistered:
    name: str
    incarnation: str
    reason: str
    now: float
    lease: str = ""


@dataclass(frozen=True, slots=True)
class CallFailed:
    """Drain, Resume or Stop did not reach the instance, or its answer means nothing."""

    name: str
    call: str
    reason: str
    now: float


# --- workers -------------------------------------------------------------------------------------


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


# --- supervisor ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChildrenSeen:
    """What the supervisor runs already: the first event of every control's life."""

    pids: Mapping[str, int]
    workers: int
    unsettled: frozenset[int]  # rows that some process wrote and nobody settled
    now: float
    labels: Mapping[str, str] = field(default_factory=dict)  # of launched ones: see launches.label


@dataclass(frozen=True, slots=True)
class ChildExited:
    name: str
    pid: int
    status: int | None
    now: float
    oom: bool = False  # the kernel killed for want of memory in its time


@dataclass(frozen=True, slots=True)
class ChildStarted:
    name: str
    pid: int
    now: float


@dataclass(frozen=True, slots=True)
class StartFailed:
    name: str
    reason: str
    now: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """SIGTERM or SIGINT, the count-th."""

    count: int
    now: float


@dataclass(frozen=True, slots=True)
class LaunchOrdered:
    """The supervisor was told to start it; `token` is the hash of its launch token."""

    name: str
    token: str
    now: float


@dataclass(frozen=True, slots=True)
class NeedsRead:
    """Device memory each snapshot needs, by its manifest; 0: none was found, or it does not say."""

    bytes: Mapping[tuple[str, str], int]
    now: float
    missing: frozenset[tuple[str, str]] = frozenset()  # the repository has no such snapshot


# --- operators and the store ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator asked for a change, and waits for the receipt."""

    ticket: int
    ask: Ask | Move  # a move: of a rollout, asked by what the gateway itself has seen
    dry_run: bool
    revision: int | None  # the one it was decided on; None: whatever holds
    now: float
    by: str = "an operator"  # who, for the history


@dataclass(frozen=True, slots=True)
class ReloadAsked:
    """SIGHUP, or the file changed."""

    why: str
    now: float


@dataclass(frozen=True, slots=True)
class SettingsRead:
    """The file was read for `ticket` (0: nobody waits): whole, or with its problems."""

    ticket: int
    why: str
    dry_run: bool
    revision: int | None
    text: str
    settings: Settings | None
    problems: tuple[Problem, ...]
    now: float


@dataclass(frozen=True, slots=True)
class IntentKept:
    """The store has the change that was asked under the ticket."""

    ticket: int
    now: float


@dataclass(frozen=True, slots=True)
class SlotKept:
    slot: int
    now: float


@dataclass(frozen=True, slots=True)
class FactKept:
    """The store has something that nothing waits for."""

    now: float


@dataclass(frozen=True, slots=True)
class WriteFailed:
    kept: "Kept"  # what did not come true
    reason: str
    now: float


@dataclass(frozen=True, slots=True)
class Ticked:
    """The time that was asked for has come."""

    now: float


@dataclass(frozen=True, slots=True)
class EffectFailed:
    """A command broke in a way that nobody foresaw."""

    command: str
    reason: str
    now: float


Kept = IntentKept | SlotKept | FactKept

Event = (
    Observed
    | PollFailed
    | Registered
    | Beaten
    | Deregistered
    | CallFailed
    | WorkerLinked
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
    | ChildrenSeen
    | ChildExited
    | ChildStarted
    | StartFailed
    | StopAsked
    | FreezeAsked
    | Thawed
    | GivenAway
    | TookOver
    | HeldElsewhere
    | CutAsked
    | LaunchOrdered
    | NeedsRead
    | CountsRead
    | Validated
    | Asked
    | ReloadAsked
    | SettingsRead
    | IntentKept
    | SlotKept
    | FactKept
    | WriteFailed
    | WritesSettled
    | StoreClaimed
    | ClaimFailed
    | Ticked
    | EffectFailed
)
