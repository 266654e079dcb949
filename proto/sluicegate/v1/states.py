"""The states and phases of an instance, as both sides of the wire spell them.

Floor 0, pure.
The numbers are those of `lifecycle.proto`; a test holds the two together, so neither can be
renumbered alone. TRANSITIONS is the specification: the diagram in README.md is drawn from it, the
tests walk all of it, and no other file decides a move.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class State(IntEnum):
    """What an instance says of itself."""

    INITIALIZING = 1
    READY = 2
    DRAINING = 3
    STOPPED = 4
    ERROR = 5


class Phase(IntEnum):
    """Where inside its state an instance is; for people, and for `Retry-After`."""

    STARTING = 1
    FETCHING_MODEL = 2
    CHECKING_DEPENDENCIES = 3  # before the minutes are spent
    LOADING_MODEL = 4
    ALLOCATING_CACHE = 5
    COMPILING = 6
    WARMING_UP = 7
    SERVING = 8
    DRAINING = 9
    RELEASING = 10


# Percent of the way to READY at which a phase ends.
PROGRESS: Final[Mapping[Phase, float]] = MappingProxyType(
    {
        Phase.STARTING: 5.0,
        Phase.FETCHING_MODEL: 8.0,
        Phase.CHECKING_DEPENDENCIES: 10.0,
        Phase.LOADING_MODEL: 40.0,
        Phase.ALLOCATING_CACHE: 50.0,
        Phase.COMPILING: 70.0,
        Phase.WARMING_UP: 90.0,
        Phase.SERVING: 100.0,
        Phase.DRAINING: 100.0,
        Phase.RELEASING: 100.0,
    }
)

# DRAINING to READY is legal on purpose: traffic can be taken off a suspect instance and given back.
# READY to STOPPED is there for a crash and a forced stop only; every ordered stop goes through
# DRAINING. Nothing leaves STOPPED: a new life is a new incarnation.
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = MappingProxyType(
    {
        State.INITIALIZING: frozenset({State.READY, State.ERROR, State.STOPPED}),
        State.READY: frozenset({State.DRAINING, State.STOPPED, State.ERROR}),
        State.DRAINING: frozenset({State.STOPPED, State.ERROR, State.READY}),
        State.ERROR: frozenset({State.INITIALIZING, State.STOPPED}),
        State.STOPPED: frozenset(),
    }
)


class IllegalTransition(Exception):
    """A move that TRANSITIONS has no row for: a bug in the caller, never load."""


def transition(instance_id: str, old: State, new: State) -> State:
    """`new`, if `old` may be followed by it.

    Raises: IllegalTransition, naming both states and the instance; nothing has changed.
    """
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(f"{instance_id}: {old.name} to {new.name} is not legal")
    return new


def progress(phase: Phase, share: float) -> float:
    """Percent of the way to READY with `share` (0..1) of `phase` behind us."""
    ends = PROGRESS[phase]
    begins = PROGRESS[Phase(phase - 1)] if phase > Phase.STARTING else 0.0
    return begins + (ends - begins) * min(max(share, 0.0), 1.0)
