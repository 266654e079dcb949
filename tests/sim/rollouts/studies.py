"""The questions that are put to simulated rollouts; each answers with plain figures.

Floor 2.
Every study is drawn from its own seed, so each can be run alone and gives the same figures.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np

from gateway.rollout import analysis, wager
from gateway.rollout.analysis import Rules
from gateway.rollout.contest import Alone
from tests.sim.rollouts.judges import THUMBS, ByThumb, Judge, Marks, Ours
from tests.sim.rollouts.many import Contests, Floats, Ints, Slownesses, Timed, cells_of
from tests.sim.rollouts.worlds import SHARED, STEP_TICKS, TAIL, TICK_S, TICKS, World, live

RULES: Final = Rules()
NEVER: Final = 10**9
OURS: Final = "Sluicegate"
BASES: Final = (0.0, 0.01, 0.049, 0.05)
EQUAL: Final = {
    f"{base:.1%} fail{', outages of both' if outages else ''}": World(base, outages=outages)
    for base in BASES
    for outages in ((), SHARED)
}
# Beside the promise: not as good as stable, not comparable, not independent.
BESIDE: Final = {
    "canary 5 %, stable 0 %: as bad as the limit lets pass": World(0.0, canary_failing=0.05),
    "1 %, and outages at 100 %, where stable serves nothing": World(0.01, outages=(3,)),
    "1 %, and four requests lost at once when an instance crashes, every ten hours": World(
        0.01, lost_together=4, crashes_per_hour=0.1
    ),
}


@dataclass(frozen=True, slots=True)
class Fate:
    """What one judge did to the rollouts of one world, an entry for each rollout."""

    tick: Ints  # at which it was rolled back; NEVER
    failed: Floats  # of the canary's requests until then
    seen: Floats  # requests of the canary until then

    @property
    def rolled(self) -> Marks:
        return self.tick < NEVER


def judged(world: World, rollouts: int, seed: int, thumbs: bool = True) -> dict[str, Fate]:
    """All judges on the same rollouts."""
    rng = np.random.default_rng(seed)
    judges: dict[str, Judge] = {OURS: Ours(rollouts, RULES)}
    if thumbs:
        judges |= {name: ByThumb(rollouts, thumb) for name, thumb in THUMBS.items()}
    ticks = {name: np.full(rollouts, NEVER) for name in judges}
    counts = {name: np.zeros((rollouts, 2)) for name in judges}
    for batch in live(world, rollouts, rng):
        for name, judge in judges.items():
            open_still = ticks[name] == NEVER
            counts[name] += batch.canary * open_still[:, None]
            marks = judge.watch(batch) & open_still
            ticks[name] = np.where(marks, batch.tick, ticks[name])
    return {name: Fate(ticks[name], counts[name][:, 0], counts[name][:, 1]) for name in judges}


# --- how soon ------------------------------------------------------------------------------------


def plain_mixture(rollouts: int) -> Callable[[Floats, Floats], Floats]:
    """The textbook's test, to compare with: uniform prior above 5 %, no floor, no stable.

    The prior is summed over 100 shares.
    """
    shares = 0.05 + 0.95 * (np.arange(100) + 0.5) / 100
    bad_log, good_log = np.log(shares / 0.05), np.log((1 - shares) / 0.95)

    def wealth_log(bad: Floats, of: Floats) -> Floats:
        logs: Floats = bad[:, None] * bad_log + (of - bad)[:, None] * good_log
        top: Floats = logs.max(axis=1)
        wealth: Floats = top + np.log(np.exp(logs - top[:, None]).mean(axis=1))
        return wealth

    return wealth_log


@dataclass(frozen=True, slots=True)
class Soon:
    """Requests of the canary until it was rolled back, sorted; NEVER among them."""

    requests: Ints

    @property
    def median(self) -> int:
        return int(self.requests[(len(self.requests) - 1) // 2])

    def share_within(self, requests: int) -> float:
        return float((self.requests <= requests).mean())


def failing(
    share: float,
    stable_per_canary: int,
    rollouts: int = 2000,
    requests_max: int = 1200,
    stable_share: float = 0.01,
    good_before: int = 0,
    held_back: float = wager.HELD_BACK,
    enough: float = 0.6,
    seed: int = 1,
) -> Soon:
    """A canary that fails `share` of its requests, one after the other; stable beside it.

    Stops when `enough` of the rollouts have been rolled back.
    """
    rng = np.random.default_rng(seed)
    contests = Contests(rollouts)
    contests.limit.held_back = contests.stable.held_back = held_back
    proof = 1 / (RULES.false_alarm * analysis.FAILURES_PART)
    if good_before:
        for _ in range(good_before // 10):  # as good as stable for so many requests
            contests.fight(
                _drawn(rng, rollouts, 10, stable_share),
                _drawn(rng, rollouts, 10 * stable_per_canary, stable_share),
                RULES.failure_limit,
                proof=proof,
            )
    at = np.full(rollouts, NEVER)
    for request in range(1, requests_max + 1):
        contests.fight(
            _drawn(rng, rollouts, 1, share),
            _drawn(rng, rollouts, stable_per_canary, stable_share),
            RULES.failure_limit,
            Alone.LATER if stable_per_canary else Alone.AT_ONCE,
            proof,
        )
        proved = (contests.proof_log() >= log(proof)) & (contests.all[:, 0] >= RULES.failures_min)
        at = np.where(proved & (at == NEVER), request, at)
        if (at < NEVER).mean() >= enough:
            break
    return Soon(np.sort(at))


def failing_plain(share: float, rollouts: int = 2000, requests_max: int = 1200) -> Soon:
    rng = np.random.default_rng(1)
    wealth_log = plain_mixture(rollouts)
    at = np.full(rollouts, NEVER)
    bad: Floats = np.zeros(rollouts)
    for request in range(1, requests_max + 1):
        bad = bad + _drawn(rng, rollouts, 1, share)[:, 0]
        proof = wealth_log(bad, np.full(rollouts, float(request))) >= log(1 / RULES.false_alarm)
        at = np.where(proof & (at == NEVER), request, at)
        if (at < NEVER).mean() >= 0.6:
            break
    return Soon(np.sort(at))


def _drawn(rng: np.random.Generator, rollouts: int, of: int, share: float) -> Floats:
    drawn: Floats = np.full((rollouts, 2), float(of))
    drawn[:, 0] = rng.binomial(of, share, rollouts)
    return drawn


def slow(
    times: float,
    stable_per_canary: int,
    spread: float,
    rollouts: int = 400,
    requests_max: int = 2000,
    seed: int = 2,
) -> Soon:
    """A canary that takes so many times as long; latencies spread by exp(spread), with a tail."""
    rng = np.random.default_rng(seed)
    slownesses = Slownesses(rollouts, RULES.latency_ratio_max)
    slownesses.time(_took(rng, rollouts, 0, spread, 1), _took(rng, rollouts, 200, spread, 1))
    bar = log(1 / (RULES.false_alarm * analysis.SLOWNESS_PART))
    at = np.full(rollouts, NEVER)
    for request in range(1, requests_max + 1):
        slownesses.time(
            _took(rng, rollouts, 1, spread, times),
            _took(rng, rollouts, stable_per_canary, spread, 1),
        )
        contests = slownesses.contests
        proof = contests.stable.wealth_log() >= bar
        proof &= contests.all[:, 0] >= RULES.failures_min
        at = np.where(proof & (at == NEVER), request, at)
        if (at < NEVER).mean() >= 0.6:
            break
    return Soon(np.sort(at))


def _took(rng: np.random.Generator, rollouts: int, each: int, spread: float, times: float) -> Timed:
    rows = np.repeat(np.arange(rollouts), each)
    logs = 14.0 + log(times) + spread * rng.normal(0, 1, len(rows))
    logs += log(10) * (rng.random(len(rows)) < TAIL)
    return Timed(rows, cells_of(np.exp(logs)))


# --- beside rules of thumb -----------------------------------------------------------------------

BAD: Final = {
    "fails 10 % from the start": World(0.01, canary_failing=0.1),
    "fails 20 % from the start": World(0.01, canary_failing=0.2),
    "fails 50 % from the start": World(0.01, canary_failing=0.5),
    "fails always": World(0.01, canary_failing=1.0),
    "fails 50 % from the middle of the 25 % step on": World(
        0.01, canary_failing=0.5, broken_from=STEP_TICKS * 3 // 2
    ),
}


def minutes_until(fate: Fate, world: World) -> float:
    """Median of the rollouts that were rolled back, from the break on."""
    ticks = fate.tick[fate.rolled & (fate.tick >= world.broken_from)]
    if not len(ticks):
        return float("inf")
    return float(np.median((ticks - world.broken_from + 1) * TICK_S / 60))


assert TICKS * TICK_S == 2400, "the text of docs/rollouts.md says 40 minutes"
