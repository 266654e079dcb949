"""What can happen to the control plane when one gateway takes over from another.

Floor 0, pure.   Flow: supervisor, store -> [handing] -> handover
Events as those of events.py, which counts them in.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# --- to the predecessor --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FreezeAsked:
    """A successor is there."""

    now: float


@dataclass(frozen=True, slots=True)
class Thawed:
    """The successor has failed before its commit."""

    now: float


@dataclass(frozen=True, slots=True)
class GivenAway:
    """The successor has committed."""

    now: float


@dataclass(frozen=True, slots=True)
class CutAsked:
    """The successor asks us to end what we hold on the instance."""

    instance: str
    now: float


@dataclass(frozen=True, slots=True)
class WritesSettled:
    """Every write that was begun before the question has ended."""

    now: float


# --- to the successor ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TookOver:
    """We are the successor, and the predecessor has let go."""

    now: float


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """What the predecessor still holds, by instance; `over`: it is gone."""

    leases: Mapping[str, int]
    over: bool
    now: float


@dataclass(frozen=True, slots=True)
class StoreClaimed:
    now: float


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    reason: str
    now: float


HandingEvent = (
    FreezeAsked
    | Thawed
    | GivenAway
    | CutAsked
    | WritesSettled
    | TookOver
    | HeldElsewhere
    | StoreClaimed
    | ClaimFailed
)
