"""What can happen to the control plane because a version is rolled out.

Floor 0, pure.   Flow: effects -> [events] -> decide
"""

from dataclasses import dataclass

from gateway.rollout.counts import Counts
from gateway.rollouts import CheckView


@dataclass(frozen=True, slots=True)
class CountsRead:
    """What both versions have done since the segment was made; what no weight has drawn apart."""

    model: str
    version: str  # the new one, as the reading was asked for
    canary: Counts
    stable: Counts
    now: float


@dataclass(frozen=True, slots=True)
class Validated:
    """The samples were tried; `reason` is a sentence, whichever way it ended."""

    model: str
    rollout: str  # its id
    passed: bool
    reason: str
    checks: tuple[CheckView, ...]
    now: float


RolloutEvent = CountsRead | Validated
