"""Rollouts as operators see them: what can be read of one, and what can be asked of it.

Floor 0, pure.
Beside `control`, which speaks of everything else. Weights here are percent of the model's new
requests; times are wall clock seconds since the epoch, durations end in `_s`.
"""

from dataclasses import dataclass
from typing import Any

# --- what can be read ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepView:
    weight: float  # percent
    hold_s: float
    requests_min: int  # that the new version has to answer in this step
    gate: bool  # waits for `promote` at its end
    began: float | None
    ended: float | None


@dataclass(frozen=True, slots=True)
class SideView:
    """One version since the running step began; pinned and test traffic stays out."""

    version: str
    requests: int  # attempts that ended and say something about it: served or failed
    failures: int
    failure_ratio: float
    latency_p95_s: float | None  # None: nothing measured yet
    ttft_p95_s: float | None
    restarts: int  # of its instances, since the rollout began
    ready: int
    instances: int


@dataclass(frozen=True, slots=True)
class TransitionView:
    at: float
    phase: str  # the one that was entered
    step: int  # from 1; 0: none
    reason: str  # a sentence
    by: str  # who asked for it; "gateway": the control loop


@dataclass(frozen=True, slots=True)
class CheckView:
    """A line of the validation report."""

    name: str  # errors, latency, memory, answers
    passed: bool
    text: str  # a sentence with the figures


@dataclass(frozen=True, slots=True)
class RolloutView:
    """One rollout of a model: the one that runs, or one that has ended."""

    id: str  # model/number
    model: str
    version: str  # the new one
    stable: str  # the one that served before
    phase: str  # pending, checking_capacity, starting, validating, step, paused, promoting, ...
    step: int  # from 1; 0: none has begun
    steps: tuple[StepView, ...]
    replicas: int  # of the new group
    reason: str  # why it is where it is, a sentence
    began: float
    since: float  # of the phase
    hold_left_s: float  # of the step, or of keep_old_s; 0: nothing is waited for by the clock
    requests_left: int  # of requests_min
    ended: float | None
    canary: SideView
    baseline: SideView
    checks: tuple[CheckView, ...]  # of the validation
    transitions: tuple[TransitionView, ...]  # oldest first
    verbs: tuple[str, ...]  # what can be asked of it now


# --- what can be asked ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartRollout:
    """Of fields that are None the model's `[model.rollout]` says the value.

    A dry run's receipt is the plan that a person reads before he says yes, a sentence a line: the
    group that is started, the memory it needs and what is free, the validation, each step with its
    hold, and what happens at the end. Asked again while the same version rolls out, nothing
    changes.
    """

    model: str
    version: str
    replicas: int | None = None  # None: as many as the stable group
    steps: tuple[dict[str, Any], ...] | None = None  # weight, hold_s, requests_min, gate
    samples: str | None = None  # a JSONL file to validate with; "": no validation
    force: bool = False  # although memory falls short by the figures


@dataclass(frozen=True, slots=True)
class PromoteRollout:
    """To the next step now, past its hold and its gate; `full`: to all traffic at once.

    `step`: the one that is to be left. A rollout that is at another by now is not promoted.
    """

    model: str
    full: bool = False
    step: int | None = None  # None: whichever it is


@dataclass(frozen=True, slots=True)
class PauseRollout:
    model: str


@dataclass(frozen=True, slots=True)
class ResumeRollout:
    model: str


@dataclass(frozen=True, slots=True)
class AbortRollout:
    """Roll back; while the old group is still kept, that is the instant way back."""

    model: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RetryRollout:
    """The same rollout again, from its beginning, after it was rolled back."""

    model: str
    force: bool = False


RolloutAsk = (
    StartRollout | PromoteRollout | PauseRollout | ResumeRollout | AbortRollout | RetryRollout
)
