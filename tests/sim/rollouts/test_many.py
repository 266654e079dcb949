"""The arithmetic on arrays is that of the product."""

import random

import numpy as np
import pytest

from gateway.rollout.contest import UNFOUGHT, Alone, fought
from gateway.rollout.slowness import UNTIMED, timed
from gateway.rollout.wager import Share
from gateway.state.shared import HISTOGRAM_CELLS, histogram_cell
from tests.sim.rollouts.many import Contests, Floats, Slownesses, Timed, cells_of

ROLLOUTS = 20
PROOF = 111.0


def drawn(rng: random.Random, most: int) -> Share:
    of = rng.choice((0, 0, 1, rng.randrange(most + 1)))
    return Share(sum(rng.random() < 0.2 for _ in range(of)), of)


@pytest.mark.parametrize("first", [Alone.LATER, Alone.AT_ONCE])
@pytest.mark.parametrize(("canary_most", "stable_most"), [(1, 20), (9, 9), (30, 1), (3, 300)])
def test_contests_are_fought_alike(canary_most: int, stable_most: int, first: Alone) -> None:
    rng = random.Random(1)
    many, single = Contests(ROLLOUTS), [UNFOUGHT] * ROLLOUTS
    for tick in range(60):
        canary = [drawn(rng, canary_most) for _ in range(ROLLOUTS)]
        stable = [drawn(rng, stable_most) for _ in range(ROLLOUTS)]
        alone = (first, Alone.DROPPED, Alone.AT_ONCE)[tick // 20]
        if alone is Alone.AT_ONCE or tick % 7 == 0:
            stable = [Share()] * ROLLOUTS
        many.fight(table(canary), table(stable), 0.05, alone, PROOF)
        single = [
            fought(one, mine, theirs, 0.05, alone, PROOF)
            for one, mine, theirs in zip(single, canary, stable, strict=True)
        ]
        assert many.proof_log() == pytest.approx([one.proof_log for one in single])
    assert any(one.limit.opening.claimed for one in single)
    assert many.all[:, 0].tolist() == [one.canary_all.bad for one in single]


def table(shares: list[Share]) -> Floats:
    return np.array([[share.bad, share.of] for share in shares], float)


def test_requests_are_timed_alike() -> None:
    rng = random.Random(2)
    many, single = Slownesses(ROLLOUTS, 1.5), [UNTIMED] * ROLLOUTS
    for _ in range(60):
        canary = [micros(rng, rng.randrange(5), 2.0) for _ in range(ROLLOUTS)]
        stable = [micros(rng, rng.randrange(200), 1.0) for _ in range(ROLLOUTS)]
        many.time(flat(canary), flat(stable))
        single = [
            timed(one, histogram(mine), histogram(theirs), 1.5)
            for one, mine, theirs in zip(single, canary, stable, strict=True)
        ]
        assert many.contests.stable.wealth_log() == pytest.approx(
            [one.contest.stable.wealth_log for one in single]
        )
    assert many.fast_canary.tolist() == [one.fast_canary for one in single]


def micros(rng: random.Random, of: int, factor: float) -> list[int]:
    return [int(rng.lognormvariate(13, 1) * factor) for _ in range(of)]


def histogram(latencies: list[int]) -> tuple[int, ...]:
    cells = [0] * HISTOGRAM_CELLS
    for one in latencies:
        cells[histogram_cell(one)] += 1
    return tuple(cells)


def flat(latencies: list[list[int]]) -> Timed:
    rows = [row for row, all_of_it in enumerate(latencies) for _ in all_of_it]
    every = [one for all_of_it in latencies for one in all_of_it]
    return Timed(np.array(rows, np.int64), cells_of(np.array(every, float)))


def test_cells_are_those_of_the_segment() -> None:
    every = [1, 2, 7, 8, 15, 16, 17, 255, 256, 1000, 123_456, 2**33 - 1, 2**40]
    assert cells_of(np.array(every, float)).tolist() == [histogram_cell(one) for one in every]
