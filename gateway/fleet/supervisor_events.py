"""What can happen to the control plane because of the supervisor: children, signals, launches.

Floor 0, pure.   Flow: supervisor, launcher -> [supervisor_events] -> events -> decide
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


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


SupervisorEvent = (
    ChildrenSeen | ChildExited | ChildStarted | StartFailed | StopAsked | LaunchOrdered | NeedsRead
)
