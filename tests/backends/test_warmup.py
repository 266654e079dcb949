"""Which samples a warm-up runs, and what their times say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engines.base import Sampling
from backends.warmup import (
    PER_BUCKET_MAX,
    TOKENS,
    Effect,
    Run,
    Sample,
    bucket,
    chosen,
    effect,
    lengths,
    made_up,
    refusal,
    turned,
)


def sample(length: int, temperature: float = 0.0) -> Sample:
    return Sample(tuple(range(length)), Sampling(temperature=temperature))


@pytest.mark.parametrize(
    ("length", "number"),
    [(1, 0), (99, 0), (100, 1), (499, 1), (500, 2), (1999, 2), (2000, 3), (10**6, 3)],
)
def test_a_prompt_is_in_the_bucket_of_its_length(length: int, number: int) -> None:
    assert bucket(length) == number


@pytest.mark.parametrize(
    ("max_seq_len", "expected"),
    [
        (2, (1,)),
        (64, (56,)),
        (256, (50, 248)),
        (1024, (50, 300, 1016)),
        (8192, (50, 300, 1250, 8184)),
    ],
)
def test_made_up_prompts_stand_for_each_bucket_and_the_last_is_as_long_as_fits(
    max_seq_len: int, expected: tuple[int, ...]
) -> None:
    assert lengths(max_seq_len) == expected


@given(st.integers(2, 100_000))
def test_every_bucket_that_a_prompt_can_fall_into_is_stood_for(max_seq_len: int) -> None:
    longest = max(1, max_seq_len - TOKENS)
    found = lengths(max_seq_len)
    assert sorted(bucket(length) for length in found) == list(range(bucket(longest) + 1))
    assert max(found) == longest


def test_a_text_is_repeated_to_the_length_that_is_wanted() -> None:
    assert made_up([1, 2, 3], 7) == (1, 2, 3, 1, 2, 3, 1)


def test_recorded_samples_stand_in_for_made_up_ones_but_never_for_the_longest() -> None:
    made = [sample(length) for length in (50, 300, 1016)]
    recorded = [sample(250, 0.5), sample(700, 0.5)]
    found = chosen(recorded, made)
    assert [(len(one.prompt_ids), one.sampling.temperature) for one in found] == [
        (50, 0.0),
        (250, 0.5),
        (700, 0.5),
        (1016, 0.0),
    ]


def test_of_many_recorded_ones_the_newest_of_each_bucket_are_taken() -> None:
    recorded = [sample(10 + n, n / 10) for n in range(9)]
    found = chosen(recorded, [sample(56)])
    assert [one.sampling.temperature for one in found] == [0.0, 0.1, 0.2, 0.0]
    assert len(found) == PER_BUCKET_MAX + 1


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(0, 100))
def test_a_turned_prompt_holds_the_same_tokens(ids: list[int], by: int) -> None:
    assert sorted(turned(tuple(ids), by)) == sorted(ids)


def test_each_run_of_a_prompt_begins_elsewhere() -> None:
    assert [turned((1, 2, 3), by) for by in range(4)] == [
        (1, 2, 3),
        (2, 3, 1),
        (3, 1, 2),
        (1, 2, 3),
    ]


def rounds(*latencies: tuple[float, ...]) -> list[Run]:
    """A round a tuple, a sample a place in it."""
    return [
        Run(which, latency, (latency / 10,))
        for turn in latencies
        for which, latency in enumerate(turn)
    ]


def test_a_run_that_got_faster_shows_and_the_long_prompts_do_not() -> None:
    # The second sample takes ten times as long, always; both get twice as fast after a round.
    found = effect(rounds((2, 20), (2, 20), (1, 10), (1, 10)), 2)
    assert found.first_s == pytest.approx(2 * found.last_s)


def test_prompts_of_many_lengths_at_a_steady_pace_have_no_effect() -> None:
    found = effect(rounds(*[(1, 5, 70, 2, 900)] * 3), 5)
    assert found.first_s == pytest.approx(found.last_s)


@given(
    st.lists(st.lists(st.floats(0.001, 10), min_size=3, max_size=3), min_size=1, max_size=5),
)
def test_the_gap_is_one_of_the_last_rounds(turns: list[list[float]]) -> None:
    runs = rounds(*[(a, b, c) for a, b, c in turns])
    found = effect(runs, 3)
    last = [gap for run in runs[-3:] for gap in run.gaps_s]
    assert found.gap_s == max(last)  # of three, the 95th percentile is the largest


def test_one_slow_token_of_a_hundred_is_not_the_pace() -> None:
    runs = [Run(0, 1.0, (0.01,) * 99 + (9.0,))]
    assert effect(runs, 1).gap_s == 0.01


def test_a_run_of_no_time_at_all_is_not_divided_by() -> None:
    assert effect([Run(0, 0.0, ())], 1) == Effect(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("gap_s", "baseline_ms", "is_refused"),
    [(0.05, 50, False), (0.0501, 50, True), (9.0, 0, False)],
)
def test_what_is_slower_than_the_baseline_is_refused_with_both_numbers(
    gap_s: float, baseline_ms: float, is_refused: bool
) -> None:
    words = refusal(Effect(1.0, 1.0, gap_s), baseline_ms)
    assert bool(words) is is_refused
    if is_refused:
        assert "50.1 ms" in words
        assert "the baseline is 50 ms" in words
