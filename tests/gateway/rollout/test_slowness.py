"""Where the thresholds are put."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rollout.slowness import (
    BOUNDS_US,
    REFERENCE_MIN,
    SLOW,
    UNTIMED,
    Slowness,
    beyond,
    quantile_cell,
    quantile_s,
    timed,
)
from gateway.state.shared import HISTOGRAM_CELLS, histogram_cell

MICROS = st.lists(st.integers(1, 10**8), min_size=REFERENCE_MIN, max_size=400)


def histogram(micros: list[int]) -> tuple[int, ...]:
    cells = [0] * HISTOGRAM_CELLS
    for one in micros:
        cells[histogram_cell(one)] += 1
    return tuple(cells)


@given(MICROS)
def test_at_most_one_in_twenty_lies_beyond_the_95th_percentile(micros: list[int]) -> None:
    cells = histogram(micros)
    cell = quantile_cell(cells)
    assert cell is not None
    assert sum(cells[cell + 1 :]) <= SLOW * len(micros) < sum(cells[cell:])
    assert quantile_s(cells) == BOUNDS_US[cell] / 1e6


def test_of_nothing_there_is_no_percentile() -> None:
    assert quantile_s(()) is None
    assert quantile_s((0,) * HISTOGRAM_CELLS) is None


@given(MICROS, st.floats(1, 10))
def test_who_takes_as_long_as_is_allowed_is_slow_no_more_often(
    micros: list[int], ratio: float
) -> None:
    """Every request of stable `ratio` times as long: the canary that is just tolerated."""
    aimed = timed(UNTIMED, (), histogram(micros), ratio)
    just_allowed = histogram([int(one * ratio) for one in micros])
    slow = sum(just_allowed[aimed.fast_canary + 1 :])
    assert slow <= sum(histogram(micros)[aimed.fast_stable + 1 :])


@given(MICROS, st.floats(1, 10))
def test_the_question_is_asked_near_the_95th_percentile(micros: list[int], ratio: float) -> None:
    aimed = timed(UNTIMED, (), histogram(micros), ratio)
    beyond_it = sum(histogram(micros)[aimed.fast_stable + 1 :])
    assert beyond_it <= 2 * SLOW * len(micros)


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0])
def test_the_canary_s_threshold_is_not_below_the_ratio(ratio: float) -> None:
    for cell in range(HISTOGRAM_CELLS - 20):
        assert BOUNDS_US[beyond(cell, ratio)] >= ratio * BOUNDS_US[cell]


def test_without_a_reference_nothing_is_judged() -> None:
    few = histogram([100] * (REFERENCE_MIN - 1))
    slowness = timed(UNTIMED, histogram([10**6] * 50), few, 1.5)
    assert slowness.fast_stable == -1
    assert slowness.contest == UNTIMED.contest


def test_a_threshold_holds_for_a_whole_block() -> None:
    slowness = timed(UNTIMED, (), histogram([100] * REFERENCE_MIN), 1.5)
    waiting = timed(slowness, (), histogram([10**6] * 50), 1.5)
    assert waiting.contest.stable_open.bad == 50
    assert waiting.fast_canary == slowness.fast_canary
    ended = timed(waiting, histogram([50]), (), 1.5)
    assert ended.fast_canary > slowness.fast_canary


def test_slowness_survives_json() -> None:
    slowness = timed(UNTIMED, (), histogram([100] * REFERENCE_MIN), 1.5)
    slowness = timed(slowness, histogram([500, 50]), histogram([100] * 5), 1.5)
    assert Slowness.from_json(slowness.to_json()) == slowness
