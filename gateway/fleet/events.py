"""What can happen to the control plane: every event, with the time it happened.

Floor 0, pure.   Flow: shells -> [events] -> decide -> commands
Past tense. `now` is loop time in seconds; a decision never asks for another clock. A ticket is the
number under which a shell waits for the answer. Here stand what operators ask for and what the
store says; the others stand with whoever they are about, and are counted in.
"""

from dataclasses import dataclass

from gateway.config import Problem, Settings
from gateway.control import Ask
from gateway.fleet.handing import HandingEvent
from gateway.fleet.instance_events import Beaten as Beaten
from gateway.fleet.instance_events import CallFailed as CallFailed
from gateway.fleet.instance_events import Deregistered as Deregistered
from gateway.fleet.instance_events import InstanceEvent
from gateway.fleet.instance_events import Observed as Observed
from gateway.fleet.instance_events import PollFailed as PollFailed
from gateway.fleet.instance_events import Registered as Registered
from gateway.fleet.instance_events import Source as Source
from gateway.fleet.rollout import Move
from gateway.fleet.rollout_events import RolloutEvent
from gateway.fleet.stock import Stock
from gateway.fleet.supervisor_events import ChildExited as ChildExited
from gateway.fleet.supervisor_events import ChildrenSeen as ChildrenSeen
from gateway.fleet.supervisor_events import ChildStarted as ChildStarted
from gateway.fleet.supervisor_events import LaunchOrdered as LaunchOrdered
from gateway.fleet.supervisor_events import NeedsRead as NeedsRead
from gateway.fleet.supervisor_events import StartFailed as StartFailed
from gateway.fleet.supervisor_events import StopAsked as StopAsked
from gateway.fleet.supervisor_events import SupervisorEvent
from gateway.fleet.weights import Forget
from gateway.fleet.worker_events import BeatsWentStale as BeatsWentStale
from gateway.fleet.worker_events import DialFailed as DialFailed
from gateway.fleet.worker_events import LeasesCut as LeasesCut
from gateway.fleet.worker_events import RequestsFailed as RequestsFailed
from gateway.fleet.worker_events import RowSettled as RowSettled
from gateway.fleet.worker_events import SlotEmptied as SlotEmptied
from gateway.fleet.worker_events import SlotFolded as SlotFolded
from gateway.fleet.worker_events import SlotSent as SlotSent
from gateway.fleet.worker_events import WorkerAcked as WorkerAcked
from gateway.fleet.worker_events import WorkerEvent
from gateway.fleet.worker_events import WorkerLinked as WorkerLinked
from gateway.fleet.worker_events import WorkerUnlinked as WorkerUnlinked


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator asked for a change, and waits for the receipt."""

    ticket: int
    ask: Ask | Move | Forget  # the last two: asked by what the gateway itself has seen
    dry_run: bool
    revision: int | None  # the one it was decided on; None: whatever holds
    now: float
    by: str = "an operator"  # who, for the history
    stock: Stock | None = None  # of the version that it rolls out, when that has been looked up


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
    InstanceEvent
    | WorkerEvent
    | SupervisorEvent
    | RolloutEvent
    | HandingEvent
    | Asked
    | ReloadAsked
    | SettingsRead
    | IntentKept
    | SlotKept
    | FactKept
    | WriteFailed
    | Ticked
    | EffectFailed
)
