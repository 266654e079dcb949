"""The promises of docs/rollouts.md, in short: `make rollout-sim` asks more of them.

Seeds are fixed: these either hold or they do not.
"""

from math import comb

import numpy as np
import pytest

from tests.sim.rollouts import studies
from tests.sim.rollouts.judges import ByThumb, Thumb
from tests.sim.rollouts.studies import NEVER, OURS, RULES, Soon
from tests.sim.rollouts.worlds import SHARED, TICKS, World, live


def at_least(bad: int, of: int, share: float) -> float:
    """The chance of so many or more."""
    return 1 - sum(comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(bad))


@pytest.mark.parametrize("base", [0.0, 0.05])
def test_a_version_as_good_as_stable_is_rolled_back_in_less_than_one_rollout_of_a_hundred(
    base: float,
) -> None:
    """More would be a surprise even at half of what is allowed: less than one time in a hundred."""
    rollouts = 200
    fates = studies.judged(World(base, outages=SHARED), rollouts, seed=1, thumbs=False)
    rolled = int(fates[OURS].rolled.sum())
    assert at_least(rolled, rollouts, RULES.false_alarm / 2) > 0.01


@pytest.mark.parametrize(
    ("share", "most"),
    [(0.1, 290), (0.2, 45), (0.5, 8), (1.0, 3)],
    ids=["10%", "20%", "50%", "100%"],
)
def test_half_of_the_bad_ones_are_out_within_so_many_requests(share: float, most: int) -> None:
    assert studies.failing(share, 19, rollouts=400).median <= most


def test_a_late_break_is_found_although_much_went_well_before() -> None:
    late = studies.failing(0.5, 19, rollouts=100, good_before=3000)
    unguarded = studies.failing(0.5, 19, rollouts=100, good_before=3000, held_back=1e-300)
    assert late.median < 30 < 100 < unguarded.median


def test_three_times_as_slow_is_out_and_as_slow_is_not() -> None:
    assert studies.slow(3.0, 19, 0.8, rollouts=60).median < 120
    assert studies.slow(1.0, 19, 0.8, rollouts=60, requests_max=600).median == NEVER


def test_rollouts_share_their_traffic_with_all_judges() -> None:
    fates = studies.judged(World(0.01, canary_failing=1.0), 20, seed=3)
    for fate in fates.values():
        assert fate.rolled.all()
        assert (fate.failed <= fate.seen).all()
    assert np.median(fates[OURS].failed) < np.median(fates["Flagger's example"].failed)


def test_a_rule_of_thumb_counts_intervals() -> None:
    """Everything fails: the third bad minute is the third minute."""
    judge = ByThumb(5, Thumb(60.0, 0.95, 3))
    ticks = [
        batch.tick
        for batch in live(World(1.0), 5, np.random.default_rng(1))
        if judge.watch(batch).all()
    ]
    assert ticks == list(range(44, TICKS))  # 45 ticks of four seconds are three minutes


def test_a_median_that_was_not_reached_is_never() -> None:
    assert Soon(np.array([3, 4, NEVER, NEVER, NEVER])).median == NEVER
    assert Soon(np.array([3, 4, NEVER, NEVER])).median == 4
