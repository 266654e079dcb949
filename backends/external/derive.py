"""What the server was found to be -> how far the instance is, and what to ask it next.

Floor 1, pure.
Flow: ask > reply > judge > [follow] > phase, reason and the next question.
An open port is never evidence: READY is behind a good health answer, the model in its list, one
well-formed answer to a real request, and the samples of the warm-up.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from sluicegate.v1.states import Phase

REFUSALS_MAX: Final = 5  # in a row of what waiting seldom mends; a second apart
HALF_WAY_S: Final = 60.0  # a server that tells no progress is shown at half of its load by then


class Stage(Enum):
    """What is asked, in this order."""

    HEALTH = auto()
    MODELS = auto()
    VERIFICATION = auto()
    WARM_UP = auto()
    DONE = auto()


# What follows a good answer, and what is done there.
NEXT: Final = {
    Stage.HEALTH: (Stage.MODELS, "asking which models it serves"),
    Stage.MODELS: (Stage.VERIFICATION, "asking for an answer"),
    Stage.VERIFICATION: (Stage.WARM_UP, "warming up"),
    Stage.WARM_UP: (Stage.DONE, ""),
}


class Patience(Enum):
    """What a bad answer means for the wait."""

    WAIT = auto()  # it is on its way: as long as the load may take
    FEW = auto()  # wrong, and seldom mended by waiting; a restart may help
    FEW_UNUSABLE = auto()  # wrong, and a restart would change nothing


@dataclass(frozen=True, slots=True)
class Verdict:
    """`problem` is a sentence that says what to do; empty: all is well."""

    problem: str = ""
    patience: Patience = Patience.WAIT


FINE: Final = Verdict()


@dataclass(frozen=True, slots=True)
class Way:
    """How far the server has come."""

    stage: Stage = Stage.HEALTH
    reason: str = "started; not asked yet"
    refusals: int = 0  # in a row
    is_over: bool = False  # it will not become READY; `reason` says why
    is_unusable: bool = False  # nor would another start


def follow(way: Way, verdict: Verdict) -> Way:
    """The way after the answer to what its stage asks."""
    if not verdict.problem:
        return Way(*NEXT[way.stage])
    if verdict.patience is Patience.WAIT:
        return replace(way, reason=verdict.problem, refusals=0)
    refusals = way.refusals + 1
    is_over = refusals >= REFUSALS_MAX
    return replace(
        way,
        reason=verdict.problem,
        refusals=refusals,
        is_over=is_over,
        is_unusable=is_over and verdict.patience is Patience.FEW_UNUSABLE,
    )


def place(way: Way, asked: bool, elapsed_s: float, warmed: float) -> tuple[Phase, float]:
    """Where that is for people and `Retry-After`. `warmed`: share of the samples answered."""
    match way.stage:
        case Stage.HEALTH:
            if not asked:
                return Phase.STARTING, 1.0
            return Phase.LOADING_MODEL, elapsed_s / (elapsed_s + HALF_WAY_S)
        case Stage.MODELS:
            return Phase.LOADING_MODEL, 1.0
        case Stage.VERIFICATION:
            return Phase.WARMING_UP, 0.0
        case Stage.WARM_UP:
            return Phase.WARMING_UP, warmed
        case Stage.DONE:
            return Phase.WARMING_UP, 1.0


# --- once READY -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pulse:
    """What became of the health questions since READY."""

    failures: int = 0  # in a row

    def after(self, problem: str, slow: bool, moved: bool) -> "Pulse":
        """`slow`: no answer in time. A server that is late with that while tokens or bytes still
        come out of it is busy, not dead; one that refuses or answers badly says so itself."""
        if not problem:
            return Pulse()
        if slow and moved:
            return self
        return Pulse(self.failures + 1)
