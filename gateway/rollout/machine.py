"""The life of a rollout, as a table: which phase follows what has happened.

Floor 1, pure.
The table is total: what cannot happen in a phase has a sentence that says why, because an operator
may ask for it, and because news may come late. Nothing else decides on a phase.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Phase(Enum):
    """Where a rollout stands; values of the admin API."""

    PENDING = "pending"  # written down, nothing done
    CHECKING_CAPACITY = "checking_capacity"  # held until the new group has room
    STARTING = "starting"  # the new group loads
    VALIDATING = "validating"  # samples are tried on it
    STEP = "step"  # it has a share of the traffic
    PAUSED = "paused"  # the same, and goes no further
    PROMOTING = "promoting"  # it has all of it; the old group is whole, for the way back
    DONE = "done"
    ROLLING_BACK = "rolling_back"  # it has none, and its instances leave
    ROLLED_BACK = "rolled_back"


class Happened(Enum):
    """What can happen to a rollout."""

    BEGUN = "begun"
    ROOM = "room"  # for the whole group, or nobody minds
    READY = "ready"  # every instance of the group
    VALIDATED = "validated"  # passed, or there was nothing to try
    PASSED = "passed"  # the step, and another one follows
    PASSED_LAST = "passed_last"
    WINDOW_LOST = "window_lost"  # the counters of the step are another gateway's
    FAILED = "failed"
    KEPT = "kept"  # the old group, for long enough
    EMPTIED = "emptied"  # the group that is rolled back
    PROMOTED = "promoted"  # to the next step, by an operator
    PROMOTED_FULLY = "promoted_fully"
    PAUSED = "paused"
    OVERRIDDEN = "overridden"  # an operator has set weights by hand
    RESUMED = "resumed"
    ABORTED = "aborted"
    STARTED = "started"  # another rollout of the model is asked for
    RETRIED = "retried"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why it cannot happen, a sentence."""

    text: str


ENDED: Final = frozenset({Phase.DONE, Phase.ROLLED_BACK})
# It has traffic, or has had all that it will get: its counters are read.
WATCHED: Final = frozenset({Phase.STEP, Phase.PAUSED, Phase.PROMOTING})

_LEAVES: Final = {Happened.FAILED: Phase.ROLLING_BACK, Happened.ABORTED: Phase.ROLLING_BACK}
_AGAIN: Final = {Happened.STARTED: Phase.PENDING}

MOVES: Final[Mapping[Phase, Mapping[Happened, Phase]]] = {
    Phase.PENDING: {Happened.BEGUN: Phase.CHECKING_CAPACITY, **_LEAVES},
    Phase.CHECKING_CAPACITY: {Happened.ROOM: Phase.STARTING, **_LEAVES},
    Phase.STARTING: {Happened.READY: Phase.VALIDATING, **_LEAVES},
    Phase.VALIDATING: {Happened.VALIDATED: Phase.STEP, **_LEAVES},
    Phase.STEP: {
        Happened.PASSED: Phase.STEP,
        Happened.PASSED_LAST: Phase.PROMOTING,
        Happened.WINDOW_LOST: Phase.STEP,
        Happened.PROMOTED: Phase.STEP,
        Happened.PROMOTED_FULLY: Phase.PROMOTING,
        Happened.PAUSED: Phase.PAUSED,
        Happened.OVERRIDDEN: Phase.PAUSED,
        **_LEAVES,
    },
    Phase.PAUSED: {
        Happened.WINDOW_LOST: Phase.PAUSED,
        Happened.RESUMED: Phase.STEP,
        Happened.PROMOTED: Phase.STEP,
        Happened.PROMOTED_FULLY: Phase.PROMOTING,
        Happened.OVERRIDDEN: Phase.PAUSED,
        **_LEAVES,
    },
    Phase.PROMOTING: {
        Happened.WINDOW_LOST: Phase.PROMOTING,
        Happened.KEPT: Phase.DONE,
        **_LEAVES,
    },
    Phase.DONE: _AGAIN,
    Phase.ROLLING_BACK: {Happened.EMPTIED: Phase.ROLLED_BACK},
    Phase.ROLLED_BACK: {**_AGAIN, Happened.RETRIED: Phase.PENDING},
}

_IS: Final = {
    Phase.PENDING: "it has not begun",
    Phase.CHECKING_CAPACITY: "it waits for room for its instances",
    Phase.STARTING: "its instances are starting",
    Phase.VALIDATING: "samples are being tried on it",
    Phase.STEP: "a step is running",
    Phase.PAUSED: "it is paused",
    Phase.PROMOTING: "it has all the traffic, and the old group is kept for the way back",
    Phase.DONE: "it is done",
    Phase.ROLLING_BACK: "it is being rolled back",
    Phase.ROLLED_BACK: "it was rolled back",
}
_NEEDS: Final = {
    Happened.BEGUN: "only what has not begun begins",
    Happened.ROOM: "room is looked for once",
    Happened.READY: "its instances are waited for once",
    Happened.VALIDATED: "it is validated once",
    Happened.PASSED: "no step is running",
    Happened.PASSED_LAST: "no step is running",
    Happened.WINDOW_LOST: "nothing of it is being counted",
    Happened.FAILED: "it cannot fail any more",
    Happened.KEPT: "no old group is kept for it",
    Happened.EMPTIED: "none of its instances leaves",
    Happened.PROMOTED: "only a step that runs or is paused can be promoted",
    Happened.PROMOTED_FULLY: "only a step that runs or is paused can be promoted",
    Happened.PAUSED: "only a step that runs can be paused",
    Happened.OVERRIDDEN: "weights can be set by hand while a step runs or is paused; else abort it",
    Happened.RESUMED: "only what is paused can be resumed",
    Happened.ABORTED: "there is nothing to abort",
    Happened.STARTED: "a model has one rollout at a time",
    Happened.RETRIED: "only what was rolled back can be tried again",
}

TABLE: Final[Mapping[Phase, Mapping[Happened, Phase | Refusal]]] = {
    phase: {
        one: MOVES[phase].get(one) or Refusal(f"{_NEEDS[one]}: {_IS[phase]}") for one in Happened
    }
    for phase in Phase
}


def transition(phase: Phase, happened: Happened) -> Phase | Refusal:
    """The phase that follows, or why none does."""
    return TABLE[phase][happened]


def diagram() -> str:
    """The table as a Mermaid state diagram: what may follow what, and on which news."""
    arrows: dict[tuple[Phase, Phase], list[str]] = {}
    for phase, moves in MOVES.items():
        for happened, after in moves.items():
            arrows.setdefault((phase, after), []).append(happened.value)
    lines = [
        f"    {before.value} --> {after.value} : {', '.join(names)}"
        for (before, after), names in arrows.items()
    ]
    ends = [f"    {phase.value} --> [*]" for phase in Phase if phase in ENDED]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {Phase.PENDING.value}", *lines, *ends])
