"""What can happen to the control plane because of an instance: readings, registrations, silence.

Floor 0, pure.   Flow: poll, watch, enrol -> [instance_events] -> events -> decide
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from gateway.fleet.status import Status


class Source(Enum):
    """The road on which a reading came."""

    POLL = auto()  # we asked
    WATCH = auto()  # its stream
    BEAT = auto()  # it called us
    REPLY = auto()  # with the answer to Drain, Resume or Stop


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


InstanceEvent = Observed | PollFailed | Registered | Beaten | Deregistered | CallFailed
