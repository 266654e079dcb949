"""Where an instance stands, and which event may move it where.

Floor 1, pure.
EVENTS is the specification of one life; the moves it makes are those of `sluicegate.v1.states`,
which checks each of them again. A change gives a new record with the next sequence number, so a
reader that compares sequences never goes back in time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from sluicegate.v1.states import (
    PROGRESS,
    IllegalTransition,
    Phase,
    State,
    progress,
    transition,
)


class Event(Enum):
    """What happened to an instance."""

    PROGRESSED = auto()  # on its way to READY: see `progressed`
    VERIFIED = auto()  # loaded, warmed up, and it answered a request
    DRAIN_ASKED = auto()
    EMPTIED = auto()  # the last request in flight has finished
    RESUMED = auto()
    STOPPED = auto()  # nothing is held any more, or the grace is over
    FAILED = auto()


# READY has no STOPPED on purpose: an instance that may hold requests leaves through DRAINING,
# whoever asks and however urgent it is. STOPPED has no row at all: a new life is a new process.
EVENTS: Final[Mapping[State, Mapping[Event, State]]] = MappingProxyType(
    {
        State.INITIALIZING: {
            Event.PROGRESSED: State.INITIALIZING,
            Event.VERIFIED: State.READY,
            Event.STOPPED: State.STOPPED,
            Event.FAILED: State.ERROR,
        },
        State.READY: {
            Event.DRAIN_ASKED: State.DRAINING,
            Event.FAILED: State.ERROR,
        },
        State.DRAINING: {
            Event.EMPTIED: State.DRAINING,
            Event.RESUMED: State.READY,
            Event.STOPPED: State.STOPPED,
            Event.FAILED: State.ERROR,
        },
        State.ERROR: {
            Event.STOPPED: State.STOPPED,
        },
        State.STOPPED: {},
    }
)

# The phase in which a state begins. ERROR keeps the phase in which it failed: that is what people
# want to know first.
_PHASES: Final[Mapping[State, Phase]] = MappingProxyType(
    {
        State.READY: Phase.SERVING,
        State.DRAINING: Phase.DRAINING,
        State.STOPPED: Phase.RELEASING,
    }
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What an instance says of itself, whole."""

    instance_id: str
    state: State = State.INITIALIZING
    phase: Phase = Phase.STARTING
    progress: float = 0.0  # percent of the way to READY
    reason: str = "starting"
    sequence: int = 1


def follow(standing: Standing, event: Event, reason: str = "") -> Standing:
    """The record after `event`.

    Raises: IllegalTransition if the event has no row in this state; nothing has changed.
    """
    state = _next(standing, event)
    phase = _PHASES.get(state, standing.phase)
    return replace(
        standing,
        state=state,
        phase=phase,
        progress=standing.progress if state is State.ERROR else PROGRESS[phase],
        reason=reason,
        sequence=standing.sequence + 1,
    )


def progressed(standing: Standing, phase: Phase, share: float, reason: str) -> Standing:
    """The record with `share` (0..1) of `phase` done; the progress never falls.

    Raises: IllegalTransition outside INITIALIZING.
    """
    _next(standing, Event.PROGRESSED)
    return replace(
        standing,
        phase=max(phase, standing.phase),
        progress=max(progress(phase, share), standing.progress),
        reason=reason,
        sequence=standing.sequence + 1,
    )


def _next(standing: Standing, event: Event) -> State:
    state = EVENTS[standing.state].get(event)
    if state is None:
        raise IllegalTransition(
            f"{standing.instance_id}: {event.name} is not legal in {standing.state.name}"
        )
    if state is standing.state:
        return state
    return transition(standing.instance_id, standing.state, state)
