"""Those who watch simulated rollouts: the product's tests, and rules of thumb of others.

Floor 2.
A rule of thumb looks at the canary's success ratio once per interval, over that interval, and
rolls back after so many intervals that were too bad. So do, with these figures in the examples of
their documentation: Argo Rollouts (every 5 minutes, 95 %, three such measurements) and Flagger
(every minute, 99 %, ten failed checks in all).
"""

from dataclasses import dataclass
from math import exp, log
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.rollout import analysis, crashes
from gateway.rollout.analysis import Ground, Rules
from gateway.rollout.contest import Alone
from tests.sim.rollouts.many import Contests, Floats, Slownesses, Wagers, against_rate
from tests.sim.rollouts.worlds import INSTANCES, TICK_S, Batch

Marks = NDArray[np.bool_]


class Judge(Protocol):
    def watch(self, batch: Batch) -> Marks:
        """Which rollouts it would roll back now."""
        ...


class Ours:
    """What `analysis.weigh` and `analysis.verdict` would say."""

    def __init__(self, rollouts: int, rules: Rules) -> None:
        self.rules = rules
        self.failures = Contests(rollouts)
        self.latency = Slownesses(rollouts, rules.latency_ratio_max)
        self.ttft = Slownesses(rollouts, rules.ttft_ratio_max)
        self.restarts = Wagers(rollouts)
        self.restarts_all: Floats = np.zeros(rollouts)
        self.grounds: dict[Ground, Marks] = {}

    def watch(self, batch: Batch) -> Marks:
        rules = self.rules
        alone = Alone.AT_ONCE if batch.alone else Alone.LATER
        bar = {part: log(1 / (rules.false_alarm * part)) for part in PARTS}
        proof = exp(bar[analysis.FAILURES_PART])
        self.failures.fight(batch.canary, batch.stable, rules.failure_limit, alone, proof)
        self.latency.time(batch.canary_latency, batch.stable_latency)
        self.ttft.time(batch.canary_ttft, batch.stable_ttft)
        self.restarts_all = self.restarts_all + batch.restarts
        lived = np.full(len(batch.restarts), TICK_S * INSTANCES)
        rate = np.full(len(lived), crashes.PER_HOUR / 3600)
        self.restarts.play(lived, against_rate(batch.restarts, lived, rate))
        floor = rules.failures_min
        self.grounds = {
            Ground.FAILURES: (self.failures.proof_log() >= bar[analysis.FAILURES_PART])
            & (self.failures.all[:, 0] >= floor),
            Ground.LATENCY: _slow(self.latency, bar[analysis.SLOWNESS_PART], floor),
            Ground.TTFT: _slow(self.ttft, bar[analysis.SLOWNESS_PART], floor),
            Ground.RESTARTS: (self.restarts.wealth_log() >= bar[analysis.RESTARTS_PART])
            & (self.restarts_all >= rules.restarts_min),
        }
        marks: Marks = np.any(list(self.grounds.values()), axis=0)
        return marks


PARTS: Final = (analysis.FAILURES_PART, analysis.SLOWNESS_PART, analysis.RESTARTS_PART)


def _slow(slowness: Slownesses, bar: float, floor: int) -> Marks:
    contests = slowness.contests
    marks: Marks = (contests.stable.wealth_log() >= bar) & (contests.all[:, 0] >= floor)
    return marks


@dataclass(frozen=True, slots=True)
class Thumb:
    """A rule of thumb's figures."""

    interval_s: float
    success_min: float
    bad_intervals: int  # that roll back


class ByThumb:
    def __init__(self, rollouts: int, thumb: Thumb) -> None:
        self.thumb = thumb
        self.window: Floats = np.zeros((rollouts, 2))
        self.bad = np.zeros(rollouts, np.int64)

    def watch(self, batch: Batch) -> Marks:
        self.window = self.window + batch.canary
        if (batch.tick + 1) * TICK_S % self.thumb.interval_s == 0:
            failed, of = self.window[:, 0], self.window[:, 1]
            # an interval without traffic is no failed check: kinder than both are
            self.bad += (of > 0) & (1 - failed / np.maximum(of, 1) < self.thumb.success_min)
            self.window = np.zeros_like(self.window)
        marks: Marks = self.bad >= self.thumb.bad_intervals
        return marks


THUMBS: Final = {
    "Argo Rollouts' example": Thumb(300.0, 0.95, 3),
    "Flagger's example": Thumb(60.0, 0.99, 10),
    "one bad minute": Thumb(60.0, 0.95, 1),
}
