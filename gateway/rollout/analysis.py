"""Whether a canary is proved bad, may advance, or has to go on being watched.

Floor 1, pure.   Flow: counts -> contest, slowness -> [analysis] -> machine
`weigh` takes in what both versions did since it was last called; `verdict` may be asked after each
call: all tests are sequential, looking often proves nothing by itself. Rolling back needs proof and
may come at any moment; advancing needs requests and time. What it rests on: docs/rollouts.md.
"""

from dataclasses import dataclass
from enum import Enum
from math import exp, log
from typing import Any, Final

from gateway.rollout.contest import UNFOUGHT, Alone, Contest, fought
from gateway.rollout.counts import Counts
from gateway.rollout.slowness import UNTIMED, Slowness, quantile_s, timed
from gateway.rollout.wager import UNPLAYED, Share, Wager, against_rate

# The chance of a false alarm is split: failures are what hurts most and has to be found first.
FAILURES_PART: Final = 0.8
SLOWNESS_PART: Final = 0.08  # of latency, and of TTFT
RESTARTS_PART: Final = 0.04
COMPARED_MIN: Final = 100  # requests of each side, before their 95th percentiles hold back a step
RESTARTS_PER_HOUR: Final = 1.0  # of one instance: a version may do that


class Kind(Enum):
    ROLL_BACK = "roll_back"
    CONTINUE = "continue"
    PASS = "pass"
    INCONCLUSIVE = "inconclusive"


class Ground(Enum):
    """What a verdict rests on."""

    FAILURES = "failures"
    LATENCY = "latency"
    TTFT = "ttft"
    RESTARTS = "restarts"
    TRAFFIC = "traffic"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Rules:
    failure_limit: float = 0.05
    false_alarm: float = 0.01  # chance that a rollout of a version as good as stable is rolled back
    latency_ratio_max: float = 1.5
    ttft_ratio_max: float = 1.5
    failures_min: int = 3  # also of slow requests: fewer never roll back
    restarts_min: int = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the tests remember of a rollout, from its first request to its last."""

    failures: Contest = UNFOUGHT
    latency: Slowness = UNTIMED
    ttft: Slowness = UNTIMED
    restarts: Wager = UNPLAYED
    restarts_all: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "failures": self.failures.to_json(),
            "latency": self.latency.to_json(),
            "ttft": self.ttft.to_json(),
            "restarts": self.restarts.to_json(),
            "restarts_all": self.restarts_all,
        }

    @staticmethod
    def from_json(told: dict[str, Any]) -> "Evidence":
        return Evidence(
            failures=Contest.from_json(told["failures"]),
            latency=Slowness.from_json(told["latency"]),
            ttft=Slowness.from_json(told["ttft"]),
            restarts=Wager.from_json(told["restarts"]),
            restarts_all=told["restarts_all"],
        )


@dataclass(frozen=True, slots=True)
class Window:
    """The running step: what both did since it began, and what it asks for."""

    canary: Counts
    stable: Counts
    held_s: float
    hold_s: float
    requests_min: int


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind
    ground: Ground
    reason: str


def weigh(rules: Rules, evidence: Evidence, canary: Counts, stable: Counts | None) -> Evidence:
    """After what both did since the last call; `stable` None: its weight is 0, it is sent nothing.

    Cost: O(1) in the counts, O(cells) in the histograms.
    """
    other = stable or Counts()
    return Evidence(
        failures=fought(
            evidence.failures,
            Share(canary.failed, canary.requests),
            Share(other.failed, other.requests),
            rules.failure_limit,
            Alone.AT_ONCE if stable is None else Alone.LATER,
        ),
        latency=timed(evidence.latency, canary.latency, other.latency, rules.latency_ratio_max),
        ttft=timed(evidence.ttft, canary.ttft, other.ttft, rules.ttft_ratio_max),
        restarts=_restarted(evidence.restarts, canary, other),
        restarts_all=evidence.restarts_all + canary.restarts,
    )


def _restarted(wager: Wager, canary: Counts, stable: Counts) -> Wager:
    if not canary.restarts and not canary.lived_s:
        return wager
    rate = RESTARTS_PER_HOUR / 3600
    if stable.lived_s:
        rate = max(rate, stable.restarts / stable.lived_s)
    return wager.after(canary.lived_s, against_rate(canary.restarts, canary.lived_s, rate))


def verdict(rules: Rules, evidence: Evidence, window: Window) -> Verdict:
    proved = _proof(rules, evidence, window)
    if proved is not None:
        return proved
    if window.held_s < window.hold_s:
        text = f"{window.held_s:.0f} of {window.hold_s:.0f} s in this step"
        return Verdict(Kind.CONTINUE, Ground.HOLD, text)
    if window.canary.requests < max(window.requests_min, 1):
        text = f"{window.canary.requests} of {max(window.requests_min, 1)} requests seen"
        return Verdict(Kind.INCONCLUSIVE, Ground.TRAFFIC, text)
    return _doubt(rules, window) or Verdict(Kind.PASS, Ground.FAILURES, _fine(window))


def _proof(rules: Rules, evidence: Evidence, window: Window) -> Verdict | None:
    failures = evidence.failures
    worst = log(1 / (rules.false_alarm * FAILURES_PART))
    if failures.canary_all.bad >= rules.failures_min and failures.proof_log >= worst:
        text = (
            f"{failures.canary_all.bad} of {failures.canary_all.of} requests failed: more than "
            f"{rules.failure_limit:.3g} and more than stable's {failures.memory.share:.3g}, "
            f"{_odds(failures.proof_log)}"
        )
        return Verdict(Kind.ROLL_BACK, Ground.FAILURES, text)
    worst = log(1 / (rules.false_alarm * SLOWNESS_PART))
    for ground, slowness, ratio in (
        (Ground.LATENCY, evidence.latency, rules.latency_ratio_max),
        (Ground.TTFT, evidence.ttft, rules.ttft_ratio_max),
    ):
        slow = slowness.contest
        if slow.canary_all.bad >= rules.failures_min and slow.stable.wealth_log >= worst:
            text = (
                f"{slow.canary_all.bad} of {slow.canary_all.of} requests took longer than "
                f"{ratio:g} times stable's 95th percentile, {_odds(slow.stable.wealth_log)}"
            )
            return Verdict(Kind.ROLL_BACK, ground, text)
    worst = log(1 / (rules.false_alarm * RESTARTS_PART))
    if evidence.restarts_all >= rules.restarts_min and evidence.restarts.wealth_log >= worst:
        text = f"its instances died {evidence.restarts_all} times"
        return Verdict(Kind.ROLL_BACK, Ground.RESTARTS, text)
    return None


def _doubt(rules: Rules, window: Window) -> Verdict | None:
    """What is no proof, but looks too bad to be sent more."""
    canary, stable = window.canary, window.stable
    most = max(rules.failure_limit, stable.failure_ratio)
    if canary.failed >= rules.failures_min and canary.failure_ratio > most:
        text = f"{canary.failed} of {canary.requests} requests failed, not yet proof"
        return Verdict(Kind.CONTINUE, Ground.FAILURES, text)
    for ground, mine, theirs, ratio in (
        (Ground.LATENCY, canary.latency, stable.latency, rules.latency_ratio_max),
        (Ground.TTFT, canary.ttft, stable.ttft, rules.ttft_ratio_max),
    ):
        if min(sum(mine), sum(theirs)) < COMPARED_MIN:
            continue
        new, old = quantile_s(mine), quantile_s(theirs)
        if new is not None and old is not None and new > ratio * old:
            text = f"95th percentile {new:.3g} s, stable's {old:.3g} s, not yet proof"
            return Verdict(Kind.CONTINUE, ground, text)
    return None


def _fine(window: Window) -> str:
    canary = window.canary
    return (
        f"{canary.failed} of {canary.requests} requests failed in {window.held_s:.0f} s, "
        f"stable {window.stable.failed} of {window.stable.requests}"
    )


def _odds(proof_log: float) -> str:
    """The chance that luck alone looks like this."""
    return f"by chance less than once in {exp(min(proof_log, 20.0)):.0f}"
