"""What happens to a rollout: traffic, failures, outages, busy hours, crashes; drawn from a seed.

Floor 2.
Rollouts of 40 minutes, 5, 25, 50 and 100 percent, looked at every four seconds. Some models get
one request a second, some ten. Latencies are heavy-tailed, and busy minutes make both versions
slow together. An outage fails a part of both versions' requests, another part in each moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from tests.sim.rollouts.many import Floats, Ints, Timed, cells_of

TICK_S: Final = 4.0
STEP_TICKS: Final = 150
WEIGHTS: Final = (0.05, 0.25, 0.5, 1.0)
TICKS: Final = STEP_TICKS * len(WEIGHTS)
SHARED: Final = (0, 1, 2)  # steps in which both versions serve
REQUESTS_PER_S: Final = (
    3.0  # of the model in the middle; two thirds lie between half and twice that
)
TAIL: Final = 0.02  # of the requests take ten times as long: long generations
CRASHES_PER_HOUR: Final = 1.0  # of an instance: what `analysis` allows
INSTANCES: Final = 2  # of each version


@dataclass(frozen=True, slots=True)
class World:
    """One kind of rollout."""

    failing: float  # share of both versions' failures, always
    canary_failing: float = 0.0  # share of the canary's, once it is broken
    broken_from: int = 0  # the tick
    outages: tuple[int, ...] = ()  # the steps in which they begin
    canary_slow: float = 1.0  # times as long
    lost_together: int = 0  # requests that fail at once when an instance crashes
    crashes_per_hour: float = CRASHES_PER_HOUR


@dataclass(frozen=True, slots=True)
class Batch:
    """Shape: a row for each rollout; bad, of in columns."""

    tick: int
    alone: bool
    canary: Floats
    stable: Floats
    canary_latency: Timed
    stable_latency: Timed
    canary_ttft: Timed
    stable_ttft: Timed
    restarts: Floats


def live(world: World, rollouts: int, rng: Generator) -> Iterator[Batch]:
    rate = REQUESTS_PER_S * np.exp(rng.normal(0, 0.7, rollouts))
    spread = rng.uniform(0.4, 1.2, rollouts)  # of the logarithm of a latency
    outage = _outages(world, rollouts, rng)
    busy: Floats = np.zeros(rollouts)
    for tick in range(TICKS):
        weight = WEIGHTS[tick // STEP_TICKS]
        busy = 0.97 * busy + rng.normal(0, 0.08, rollouts)  # up and down by a third, for minutes
        common = 1 - (1 - world.failing) * (1 - outage[:, tick] * rng.uniform(0.3, 1, rollouts))
        broken = world.canary_failing if tick >= world.broken_from else 0.0
        canary_of = rng.poisson(rate * weight * TICK_S)
        stable_of = rng.poisson(rate * (1 - weight) * TICK_S)
        canary_bad = rng.binomial(canary_of, 1 - (1 - common) * (1 - broken))
        stable_bad = rng.binomial(stable_of, common)
        slow = np.log(world.canary_slow)
        crash_rate = world.crashes_per_hour / 3600 * TICK_S * INSTANCES
        restarts = rng.poisson(crash_rate, rollouts)
        canary_lost = world.lost_together * restarts
        stable_lost = world.lost_together * rng.poisson(crash_rate, rollouts) * (weight < 1)
        yield Batch(
            tick=tick,
            alone=weight == 1.0,
            canary=_columns(canary_bad + canary_lost, canary_of + canary_lost),
            stable=_columns(stable_bad + stable_lost, stable_of + stable_lost),
            canary_latency=_timed(canary_of, busy + slow + 14.0, spread, rng),
            stable_latency=_timed(stable_of, busy + 14.0, spread, rng),
            canary_ttft=_timed(canary_of, busy + slow + 12.0, spread, rng),
            stable_ttft=_timed(stable_of, busy + 12.0, spread, rng),
            restarts=restarts.astype(np.float64),
        )


def _outages(world: World, rollouts: int, rng: Generator) -> Floats:
    """Share of failing requests by rollout and tick: of a step seldom none, seconds to minutes."""
    outage: Floats = np.zeros((rollouts, TICKS))
    ticks = np.arange(TICKS)
    for step in world.outages:
        begins = (step + rng.random(rollouts)) * STEP_TICKS
        ends = np.minimum(
            begins + np.exp(rng.uniform(0, np.log(60), rollouts)), (step + 1) * STEP_TICKS
        )
        depth = rng.uniform(0, 1, rollouts) * (rng.random(rollouts) < 0.7)
        inside = (ticks >= begins[:, None]) & (ticks < ends[:, None])
        outage = np.maximum(outage, inside * depth[:, None])
    return outage


def _columns(bad: Ints, of: Ints) -> Floats:
    return np.stack([bad, of], axis=1).astype(np.float64)


def _timed(of: Ints, middle: Floats, spread: Floats, rng: Generator) -> Timed:
    rows = np.repeat(np.arange(len(of)), of)
    logs = middle[rows] + spread[rows] * rng.normal(0, 1, len(rows))
    logs += np.log(10) * (rng.random(len(rows)) < TAIL)
    return Timed(rows, cells_of(np.exp(logs)))
