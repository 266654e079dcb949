"""One rollout: what it is to do, where it stands, what has been counted of it.

Floor 1, pure.   Flow: machine, analysis -> [rollout] -> rollouts
`Rollout` is intent and moves through the store alone; `Watch` is evidence, and grows with every
reading. How long a step has been held is part of the evidence: it is the time in which somebody
counted, not a clock's difference, so neither a dead control nor a clock that was put forward makes
a step shorter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from gateway.config import Rollout as Keys
from gateway.config import Step
from gateway.fleet.weights import Overrides
from gateway.rollout.analysis import Evidence, Rules, Window, weigh
from gateway.rollout.counts import NOTHING, Counts
from gateway.rollout.machine import ENDED, WATCHED, Happened, Phase
from gateway.rollouts import CheckView

READ_S: Final = 1.0  # between two readings of what is counted
LONGEST_S: Final = 5 * READ_S  # more than that between two of them was not watched
AWAY_MAX_S: Final = 3600.0  # without a control; a clock that was put forward says more than that
WHOLE: Final = 100.0  # percent
# Its instances are there, or on their way.
TRIED: Final = frozenset({Phase.STARTING, Phase.VALIDATING}) | WATCHED


@dataclass(frozen=True, slots=True)
class Transition:
    at: float  # wall clock
    phase: Phase
    step: int
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Rollout:
    model: str
    number: int  # of the model's rollouts
    version: str
    stable: str
    steps: tuple[Step, ...]
    replicas: int  # that we start of the new group; 0: it is there, started by others
    rest: Mapping[str, float]  # weights of the other versions when it began, those above 0
    before: Overrides  # of the model's weights, as they were
    began: float  # wall clock
    since: float  # wall clock, of the phase
    entered: float  # loop time, of the phase in this control's life
    samples: str = ""
    force: bool = False
    phase: Phase = Phase.PENDING
    step: int = 0  # from 1
    window: int = 0  # grows with each beginning of what is counted
    by_hand: bool = False  # paused because an operator set the weights
    reason: str = ""
    ground: str = ""  # of a rollback, a word
    ended: float | None = None  # wall clock
    forgiven: bool = False  # rolled back, and yet not blocked any more
    cut: bool = False  # what its instances hold when it is rolled back is ended at once
    checks: tuple[CheckView, ...] = ()
    transitions: tuple[Transition, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.model}/{self.number}"

    @property
    def position(self) -> tuple[int, Phase, int]:
        return self.number, self.phase, self.step

    @property
    def active(self) -> bool:
        return self.phase not in ENDED

    @property
    def owns(self) -> bool:
        """Whether the model's weights are its own: nobody else sets them."""
        return self.active and self.phase is not Phase.ROLLING_BACK and not self.by_hand

    @property
    def watched(self) -> bool:
        return self.phase in WATCHED and not self.by_hand

    @property
    def blocks(self) -> bool:
        """Whether nothing is sent to its version, if it is the last one of that version."""
        return self.phase in {Phase.ROLLING_BACK, Phase.ROLLED_BACK} and not self.forgiven

    @property
    def weight(self) -> float:
        """Percent of the model's new requests that the new version is to have now."""
        if self.phase in {Phase.PROMOTING, Phase.DONE}:
            return WHOLE
        return self.steps[self.step - 1].weight if self.phase in WATCHED else 0.0

    @property
    def hold_s(self) -> float:
        return self.steps[self.step - 1].hold_s if self.step else 0.0

    @property
    def last(self) -> bool:
        return self.step == len(self.steps)


def shares(rest: Mapping[str, float], version: str, percent: float) -> dict[str, float]:
    """Weights, in percent: the version's, and the others in the proportion that they had."""
    left, whole = WHOLE - percent, sum(rest.values())
    found = {name: left * weight / whole for name, weight in rest.items()}
    return {**found, version: percent}


@dataclass(frozen=True, slots=True)
class Move:
    """What happened to a model's rollout: asked of the store before it is true."""

    model: str
    happened: Happened
    reason: str
    ground: str = ""
    checks: tuple[CheckView, ...] = ()
    of: tuple[int, Phase, int] | None = None  # the position that it was seen in; None: any


def news(
    rollout: Rollout,
    happened: Happened,
    reason: str,
    ground: str = "",
    checks: tuple[CheckView, ...] = (),
) -> Move:
    """What the gateway itself has seen: no news of any position but this one."""
    return Move(rollout.model, happened, reason, ground, checks, rollout.position)


# --- evidence ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Watch:
    """What has been counted of a rollout."""

    window: int = 0  # of which the window's counts are
    segment: int = 0  # whose counters `seen` are
    seen: tuple[Counts, Counts] | None = None  # totals of both when read last; None: never
    canary: Counts = NOTHING  # in the window
    stable: Counts = NOTHING
    held_s: float = 0.0  # of the window
    evidence: Evidence = field(default_factory=Evidence)
    asked_at: float = -inf  # loop time, of the reading asked for last
    read_at: float | None = None  # loop time; None: not in this control's life
    said: str = ""  # by the last verdict
    tries_at: float = -inf  # loop time: no move is tried before, the store has failed
    leaves_with: int = 0  # the first generation without its version, until every worker serves it
    without_s: float | None = None  # that none of its instances could serve; None: one could
    condemned: Move | None = None  # the way back that the store could not take yet: it stands
    # Instances of ours at that reading, with their incarnations: whoever the next control finds
    # dead, or as another one, has died meanwhile. Who is seen to die is taken out.
    lives: Mapping[str, str] = field(default_factory=dict)
    at: float | None = None  # wall clock, of the reading


def opened(watch: Watch, rollout: Rollout) -> Watch:
    """The watch of this window: what was counted for another one is no part of it."""
    if watch.window == rollout.window:
        return watch
    return replace(
        watch,
        window=rollout.window,
        canary=NOTHING,
        stable=NOTHING,
        held_s=0.0,
        asked_at=-inf,
        read_at=None,
        said="",
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals of both versions, and what no counter of the segment says of their instances."""

    segment: int
    canary: Counts
    stable: Counts
    lived: tuple[int, int]  # instances that are there
    died: tuple[int, int]  # since the last reading
    known: tuple[int, int]  # instances that were there at the last reading
    lives: Mapping[str, str]  # as of a watch
    at: float  # wall clock


def watched(watch: Watch, rollout: Rollout, rules: Rules, reading: Reading, now: float) -> Watch:
    """After a reading: the difference to the one before is what both have done since."""
    passed_s = min(now - watch.read_at, LONGEST_S) if watch.read_at is not None else 0.0
    seen = watch.seen if watch.segment == reading.segment else None
    canary = stable = NOTHING
    if seen is not None:
        canary, stable = reading.canary - seen[0], reading.stable - seen[1]
    died = reading.died if seen is not None else (0, 0)  # nobody knows in what time
    away_s = _away_s(watch, reading) if seen is not None else 0.0
    lived_s = [
        there * passed_s + known * away_s
        for there, known in zip(reading.lived, reading.known, strict=True)
    ]
    canary = replace(canary, restarts=died[0], lived_s=lived_s[0])
    stable = replace(stable, restarts=died[1], lived_s=lived_s[1])
    alone = rollout.weight >= WHOLE
    without_s = None if reading.lived[0] else 0.0
    if without_s is not None and watch.read_at is not None and watch.without_s is not None:
        without_s = watch.without_s + min(passed_s, READ_S)  # a pause in which nobody looked
    held_s = watch.held_s + (0.0 if rollout.phase is Phase.PAUSED else passed_s)
    return replace(
        watch,
        segment=reading.segment,
        seen=(reading.canary, reading.stable),
        canary=watch.canary + canary,
        stable=watch.stable + stable,
        held_s=held_s,
        evidence=weigh(rules, watch.evidence, canary, None if alone else stable),
        read_at=now,
        without_s=without_s,
        lives=reading.lives,
        at=reading.at,
    )


def _away_s(watch: Watch, reading: Reading) -> float:
    """How long no control read anything: no time that a step is held, but time to die in."""
    if watch.read_at is not None or watch.at is None:
        return 0.0
    return min(max(0.0, reading.at - watch.at), AWAY_MAX_S)


def rules(keys: Keys) -> Rules:
    return Rules(
        failure_limit=keys.failure_limit,
        false_alarm=keys.false_alarm,
        latency_ratio_max=keys.latency_ratio_max,
        ttft_ratio_max=keys.ttft_ratio_max,
    )


def window(watch: Watch, rollout: Rollout) -> Window:
    """Of the step, for the verdict on it; one that is paused or promoting never passes."""
    step = rollout.steps[rollout.step - 1]
    hold_s = step.hold_s if rollout.phase is Phase.STEP else inf
    return Window(watch.canary, watch.stable, watch.held_s, hold_s, step.requests_min)
