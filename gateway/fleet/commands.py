"""What the control plane can order: every command, as a value.

Floor 0, pure.   Flow: decide -> [commands] -> effects
Imperative. Commands of one decision are begun in order; those that have to wait overlap, and what
comes of them is another event.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.control import Denied, Receipt
from gateway.fleet.events import Asked, Kept, Registered
from gateway.messages import Message
from gateway.store.base import Change

# --- to processes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a message to the worker on this row."""

    row: int
    message: Message


@dataclass(frozen=True, slots=True)
class Supervise:
    """Send an order to the supervisor."""

    message: Message


@dataclass(frozen=True, slots=True)
class StartWorker:
    index: int
    row: int
    workers: int  # it holds the listening sockets of all of them
    waits: bool = False  # serves a table, and accepts nothing before it is told to


@dataclass(frozen=True, slots=True)
class Launch:
    """Start an instance, with a fresh launch token; answered by LaunchOrdered."""

    name: str
    model: str
    version: str
    device: str


@dataclass(frozen=True, slots=True)
class SettleRow:
    """Say what a dead worker's row still holds; answered by RowSettled, and that by FreeRow."""

    row: int


@dataclass(frozen=True, slots=True)
class FreeRow:
    """Settle the row: all that it held has been named."""

    row: int


@dataclass(frozen=True, slots=True)
class FoldSlot:
    """Fold an empty slot into the retained bases; answered by SlotFolded, or not if it is held."""

    slot: int
    model: str
    version: str


# --- to instances --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Follow:
    """Poll and watch the instance at this address from now on."""

    name: str
    grpc: str


@dataclass(frozen=True, slots=True)
class Unfollow:
    name: str


@dataclass(frozen=True, slots=True)
class PollNow:
    name: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ask at its address for the incarnation that registers; answered by Registered."""

    event: Registered


@dataclass(frozen=True, slots=True)
class CallDrain:
    name: str
    grpc: str
    grace_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class CallResume:
    name: str
    grpc: str


@dataclass(frozen=True, slots=True)
class CallStop:
    name: str
    grpc: str
    grace_s: float
    force: bool


# --- to the store, to those who wait, to people --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Write:
    """Keep the changes durably, then `then` happened, at a time of its own; else WriteFailed."""

    changes: Sequence[Change]
    then: Kept


@dataclass(frozen=True, slots=True)
class SettleWrites:
    """Answered by WritesSettled, once every write begun so far has ended."""


@dataclass(frozen=True, slots=True)
class ClaimStore:
    """Become the store's writer; answered by StoreClaimed or ClaimFailed."""


@dataclass(frozen=True, slots=True)
class ReclaimStore:
    """Be the store's writer again, whoever has claimed it, and keep the changes."""

    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Read config.toml; answered by SettingsRead, which carries these along."""

    ticket: int
    why: str
    dry_run: bool = False
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class KeepText:
    """Keep the text of the settings in force: for a control that finds the file broken."""

    text: str


@dataclass(frozen=True, slots=True)
class LookUp:
    """Whether the repository has the version that is asked for; answered by `event` with that."""

    event: Asked
    model: str
    version: str


@dataclass(frozen=True, slots=True)
class ReadNeeds:
    """Look up the manifests of these (model, version); answered by NeedsRead."""

    pairs: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """Read what both versions of a rollout have done so far; answered by CountsRead."""

    model: str
    version: str
    stable: str


@dataclass(frozen=True, slots=True)
class Validate:
    """Try recorded samples on the new group and on the old one; answered by Validated."""

    model: str
    rollout: str  # its id
    samples: str  # a JSONL file
    canary: tuple[str, ...]  # host:port of the inference APIs
    stable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenFront:
    """Be reachable: admin API, Registry, config.toml; the gateway is ours."""


@dataclass(frozen=True, slots=True)
class CloseFront:
    """Be reachable no longer, and tell the successor what is held, until the end."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is waited for under the ticket."""

    ticket: int
    value: "Receipt | Denied | RegisterAnswer | BeatAnswer"


@dataclass(frozen=True, slots=True)
class RegisterAnswer:
    """Of the Registry to Register. `refusal`: why not; "" when it was taken."""

    refusal: str
    ttl_s: float = 0.0
    interval_s: float = 0.0
    code: str = "ALREADY_EXISTS"  # of a refusal; | NOT_FOUND | RESOURCE_EXHAUSTED | UNAVAILABLE


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """Of the Registry to Heartbeat; `order` is the name of an Order without its prefix."""

    order: str  # NONE | DRAIN | RESUME | STOP | REGISTER
    grace_s: float
    interval_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """Something an operator wants to know: an event, and a log line."""

    kind: str
    subject: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    warn: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """One more in a family of the tally."""

    family: str
    key: str


@dataclass(frozen=True, slots=True)
class CountDrain:
    outcome: str
    duration_s: float


@dataclass(frozen=True, slots=True)
class CountRollback:
    """From the decision until every worker served a table without the version."""

    duration_s: float


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Tick at this loop time; it replaces the time asked for before."""

    when: float


Command = (
    Tell
    | Supervise
    | StartWorker
    | Launch
    | SettleRow
    | FreeRow
    | FoldSlot
    | Follow
    | Unfollow
    | PollNow
    | Confirm
    | CallDrain
    | CallResume
    | CallStop
    | Write
    | SettleWrites
    | ClaimStore
    | ReclaimStore
    | ReadSettings
    | KeepText
    | LookUp
    | ReadNeeds
    | ReadCounts
    | Validate
    | OpenFront
    | CloseFront
    | Answer
    | Record
    | Count
    | CountDrain
    | CountRollback
    | WakeAt
)
