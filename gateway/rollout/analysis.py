"""Whether a canary is proved bad, may advance, or has to go on being watched.

Floor 1, pure.   Flow: counts -> contest, slowness, crashes -> [analysis] -> machine
`weigh` takes in what both versions did since it was last called; `verdict` may be asked after each
call: all tests are sequential, looking often proves nothing by itself. Rolling back needs proof and
may come at any moment; advancing needs requests and time. What it rests on: docs/rollouts.md.
"""

from dataclasses import dataclass
from enum import Enum
from math import exp, log
from typing import Any, Final

from gateway.rollout.contest import UNFOUGHT, Alone, Contest, fought
from gateway.rollout.counts import NOTHING, Counts
from gateway.rollout.crashes import NO_RESTARTS, Restarts, counted
from gateway.rollout.slowness import BOUNDS_US, UNTIMED, Slowness, quantile_s, timed
from gateway.rollout.wager import Share

# The chance of a false alarm is split: failures are what hurts most and has to be found first.
FAILURES_PART: Final = 0.9
SLOWNESS_PART: Final = 0.04  # of latency, and of TTFT
RESTARTS_PART: Final = 0.02
COMPARED_MIN: Final = 100  # requests of each side, before their 95th percentiles hold back a step
WEALTH_LOG_SHOWN: Final = 20.0  # a larger figure says no more


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


NAMES: Final = {Ground.LATENCY: "", Ground.TTFT: " to the first byte"}


@dataclass(frozen=True, slots=True)
class Rules:
    failure_limit: float = 0.05
    false_alarm: float = 0.01  # chance that a rollout of a version as good as stable is rolled back
    latency_ratio_max: float = 1.5  # of the 95th percentiles; 0: not looked at
    ttft_ratio_max: float = 1.5
    failures_min: int = 3  # also of slow requests: fewer never roll back
    restarts_min: int = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that the tests remember of a rollout, from its first request to its last."""

    failures: Contest = UNFOUGHT
    latency: Slowness = UNTIMED
    ttft: Slowness = UNTIMED
    restarts: Restarts = NO_RESTARTS

    def to_json(self) -> dict[str, Any]:
        return {
            "failures": self.failures.to_json(),
            "latency": self.latency.to_json(),
            "ttft": self.ttft.to_json(),
            "restarts": self.restarts.to_json(),
        }

    @staticmethod
    def from_json(told: dict[str, Any]) -> "Evidence":
        return Evidence(
            failures=Contest.from_json(told["failures"]),
            latency=Slowness.from_json(told["latency"]),
            ttft=Slowness.from_json(told["ttft"]),
            restarts=Restarts.from_json(told["restarts"]),
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
    other = stable or NOTHING
    return Evidence(
        failures=fought(
            evidence.failures,
            Share(canary.failed, canary.requests),
            Share(other.failed, other.requests),
            rules.failure_limit,
            Alone.AT_ONCE if stable is None else Alone.LATER,
            proof=1 / (rules.false_alarm * FAILURES_PART),
        ),
        latency=_timed(evidence.latency, canary.latency, other.latency, rules.latency_ratio_max),
        ttft=_timed(evidence.ttft, canary.ttft, other.ttft, rules.ttft_ratio_max),
        restarts=counted(evidence.restarts, canary, other),
    )


def _timed(
    slowness: Slowness, canary: tuple[int, ...], stable: tuple[int, ...], ratio: float
) -> Slowness:
    return timed(slowness, canary, stable, ratio) if ratio else slowness


def verdict(rules: Rules, evidence: Evidence, window: Window) -> Verdict:
    canary = window.canary
    wanted = max(window.requests_min, 1)  # silence is never a pass
    if proved := _proof(rules, evidence):
        return proved
    if window.held_s < window.hold_s:
        text = f"{window.held_s:.0f} of {window.hold_s:.0f} s in this step"
        return Verdict(Kind.CONTINUE, Ground.HOLD, text)
    if canary.requests < wanted:
        text = f"{canary.requests} of {wanted} requests seen in {window.held_s:.0f} s"
        return Verdict(Kind.INCONCLUSIVE, Ground.TRAFFIC, text)
    if doubt := _doubt(rules, window):
        return doubt
    text = f"{_failed(canary)} in {window.held_s:.0f} s, of stable's {_failed(window.stable)}"
    return Verdict(Kind.PASS, Ground.HOLD, text)


# --- proof ---------------------------------------------------------------------------------------


def _proof(rules: Rules, evidence: Evidence) -> Verdict | None:
    failures, restarts = evidence.failures, evidence.restarts
    if failures.canary_all.bad >= rules.failures_min and _beyond(
        failures.proof_log, rules, FAILURES_PART
    ):
        text = (
            f"{_part(failures.canary_all)} requests failed: more than the limit of "
            f"{rules.failure_limit * 100:g} % and than stable's {_part(failures.stable_all)}; "
            f"{_chance(failures.proof_log)}"
        )
        return Verdict(Kind.ROLL_BACK, Ground.FAILURES, text)
    for ground, slowness, ratio in (
        (Ground.LATENCY, evidence.latency, rules.latency_ratio_max),
        (Ground.TTFT, evidence.ttft, rules.ttft_ratio_max),
    ):
        slow, wealth_log = slowness.contest.canary_all, slowness.contest.stable.wealth_log
        if slow.bad >= rules.failures_min and _beyond(wealth_log, rules, SLOWNESS_PART):
            text = (
                f"{_part(slow)} requests took longer{NAMES[ground]} than {ratio:g} times the 95th "
                f"percentile of stable, {BOUNDS_US[slowness.fast_stable] / 1_000_000:.3g} s; "
                f"{_chance(wealth_log)}"
            )
            return Verdict(Kind.ROLL_BACK, ground, text)
    if restarts.canary >= rules.restarts_min and _beyond(
        restarts.wager.wealth_log, rules, RESTARTS_PART
    ):
        text = (
            f"its instances died {restarts.canary} times, stable's {restarts.stable} times; "
            f"{_chance(restarts.wager.wealth_log)}"
        )
        return Verdict(Kind.ROLL_BACK, Ground.RESTARTS, text)
    return None


def _beyond(wealth_log: float, rules: Rules, part: float) -> bool:
    return wealth_log >= log(1 / (rules.false_alarm * part))


def _part(share: Share) -> str:
    return f"{share.bad} of {share.of} ({100 * share.bad / max(share.of, 1):.1f} %)"


def _chance(wealth_log: float) -> str:
    """Ville's inequality, as a sentence."""
    return (
        f"luck does this less than once in {exp(min(wealth_log, WEALTH_LOG_SHOWN)):,.0f} rollouts"
    )


# --- doubt ---------------------------------------------------------------------------------------


def _doubt(rules: Rules, window: Window) -> Verdict | None:
    """What is no proof, but looks too bad to be sent more: the step goes on."""
    canary, stable = window.canary, window.stable
    most = max(rules.failure_limit, stable.failure_ratio)
    if canary.failed >= rules.failures_min and canary.failure_ratio > most:
        text = f"{_failed(canary)}, more than {most * 100:.3g} %, which is not yet proof"
        return Verdict(Kind.CONTINUE, Ground.FAILURES, text)
    for ground, mine, theirs, ratio in (
        (Ground.LATENCY, canary.latency, stable.latency, rules.latency_ratio_max),
        (Ground.TTFT, canary.ttft, stable.ttft, rules.ttft_ratio_max),
    ):
        if not ratio or min(sum(mine), sum(theirs)) < COMPARED_MIN:
            continue
        new, old = quantile_s(mine), quantile_s(theirs)
        if new is not None and old is not None and new > ratio * old:
            text = (
                f"95th percentile{NAMES[ground]} {new:.3g} s, more than {ratio:g} times stable's "
                f"{old:.3g} s, which is not yet proof"
            )
            return Verdict(Kind.CONTINUE, ground, text)
    return None


def _failed(counts: Counts) -> str:
    return f"{counts.failed} of {counts.requests} requests failed"
