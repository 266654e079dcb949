"""What is drawn, against an oracle that sorts everything."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from backends import sampling
from backends.engines.base import Sampling
from backends.sampling import BAN, Sampler, distribution, score

Floats = NDArray[np.float32]
# Few distinct values, so that ties are everywhere.
logits_of = arrays(np.float32, st.integers(1, 60), elements=st.integers(-8, 8).map(float))
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.0]),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999, 1.0]),
    top_k=st.integers(0, 70),
    seed=st.none(),
)


def oracle(logits: Floats, wanted: Sampling) -> dict[int, float]:
    """Ids that may be drawn and their probabilities, in plain Python."""
    order = sorted(range(len(logits)), key=lambda id_: (-float(logits[id_]), id_))
    kept = order[: wanted.top_k or None]
    weights = [
        math.exp((float(logits[i]) - max(map(float, logits))) / wanted.temperature) for i in kept
    ]
    total = sum(weights)
    nucleus: dict[int, float] = {}
    reached = 0.0
    for id_, weight in zip(kept, weights, strict=True):
        nucleus[id_] = weight
        reached += weight / total
        assume(wanted.top_p >= 1 or abs(reached - wanted.top_p) > 1e-9)  # rounding may decide
        if wanted.top_p < 1 and reached >= wanted.top_p:
            break
    return {id_: weight / sum(nucleus.values()) for id_, weight in nucleus.items()}


@given(logits_of, st.integers(0, 2**64 - 1))
def test_temperature_zero_takes_the_highest_and_of_equals_the_lowest_id(
    logits: Floats, seed: int
) -> None:
    drawn = Sampler(Sampling(temperature=0.0, top_k=1, top_p=0.1), seed).draw(logits)
    assert drawn == min(id_ for id_ in range(len(logits)) if logits[id_] == max(logits))


# With top_p 1 the weight of one is all but the sum, and rounding once dropped the other.
@example(np.array([0, 0, 4], np.float32), Sampling(temperature=0.1, top_k=2))
@given(logits_of, samplings)
def test_the_distribution_is_that_of_sorting_everything(logits: Floats, wanted: Sampling) -> None:
    ids, weights = distribution(logits, wanted)
    listed = range(len(logits)) if ids is None else ids.tolist()
    got = dict(zip(listed, (weights / weights.sum()).tolist(), strict=True))
    assert got == pytest.approx(oracle(logits, wanted))


@given(logits_of, samplings)
def test_looking_at_few_candidates_changes_nothing(logits: Floats, wanted: Sampling) -> None:
    few = distribution_with(1, logits, wanted)
    assert few == distribution_with(len(logits), logits, wanted)


def distribution_with(candidates: int, logits: Floats, wanted: Sampling) -> list[list[float]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "CANDIDATES", candidates)
        ids, weights = distribution(logits, wanted)
    return [[] if ids is None else ids.tolist(), weights.tolist()]


@given(logits_of, samplings, st.integers(-(2**63), 2**63))
def test_a_seed_gives_the_same_tokens_whoever_else_draws(
    logits: Floats, wanted: Sampling, seed: int
) -> None:
    seeded = Sampling(wanted.temperature, wanted.top_p, wanted.top_k, seed, 0.5, -0.5)
    alone = Sampler(seeded, 1)
    beside, neighbour = Sampler(seeded, 2), Sampler(wanted, 3)
    expected = [alone.draw(logits) for _ in range(8)]
    got = []
    for _ in range(8):
        neighbour.draw(logits)
        got.append(beside.draw(logits))
    assert got == expected


@given(logits_of, st.sampled_from([0.1, 0.5, 0.9, 0.999]), st.sampled_from([0.5, 1.0, 2.0]))
def test_top_p_keeps_the_smallest_head_that_reaches_it(
    logits: Floats, top_p: float, temperature: float
) -> None:
    ids, weights = distribution(logits, Sampling(temperature, top_p))
    assert ids is not None
    scaled = logits.astype(np.float64) / temperature
    shares = np.exp(scaled - scaled.max()) / np.exp(scaled - scaled.max()).sum()
    kept = shares[ids]
    assert len(weights) == len(set(ids.tolist())) == len(ids)
    assert kept.sum() >= top_p - 1e-9
    assert kept[:-1].sum() < top_p + 1e-9  # without the last of them it is not reached
    left_out = np.delete(shares, ids)
    assert not len(left_out) or left_out.max() <= kept.min() + 1e-12


def oracle_of_greed(logits: Floats, wanted: Sampling, count: int) -> list[int]:
    """What is drawn greedily, each step from OpenAI's formula and the whole history."""
    drawn: list[int] = []
    bias = dict(wanted.logit_bias)
    for _ in range(count):
        adjusted = [
            float(logit)
            + (-math.inf if bias.get(id_) == BAN else bias.get(id_, 0.0))
            - drawn.count(id_) * wanted.frequency_penalty
            - (drawn.count(id_) > 0) * wanted.presence_penalty
            for id_, logit in enumerate(logits)
        ]
        drawn.append(adjusted.index(max(adjusted)))
    return drawn


# Eighths: sums of them are exact, so ties are ties in whatever order they are summed.
eighths = st.integers(-16, 16).map(lambda n: n / 8)


@given(
    logits_of,
    eighths,
    eighths,
    st.dictionaries(st.integers(0, 70), st.just(-100.0) | st.integers(-99, 100).map(float)),
)
def test_penalties_and_bias_are_openais_formula(
    logits: Floats, frequency: float, presence: float, bias: dict[int, float]
) -> None:
    within = tuple((id_, value) for id_, value in bias.items() if id_ < len(logits))
    assume(sum(value == BAN for _, value in within) < len(logits))
    wanted = Sampling(0.0, 1.0, 0, None, frequency, presence, within)
    sampler = Sampler(wanted, 0)
    assert [sampler.draw(logits) for _ in range(12)] == oracle_of_greed(logits, wanted, 12)


def test_a_penalty_counts_what_was_drawn_and_not_the_prompt() -> None:
    logits = np.array([3.0, 2.0, 1.0], np.float32)
    sampler = Sampler(Sampling(presence_penalty=1.5), 0)
    assert [sampler.draw(logits) for _ in range(3)] == [0, 1, 0]


@given(logits_of, samplings, st.data())
def test_a_bias_of_minus_100_bans_whatever_the_logits(
    logits: Floats, wanted: Sampling, data: st.DataObject
) -> None:
    assume(len(logits) > 1)
    banned = data.draw(st.sets(st.integers(0, len(logits) - 1), max_size=len(logits) - 1))
    bias = tuple((id_, BAN) for id_ in banned)
    sampler = Sampler(Sampling(wanted.temperature, wanted.top_p, wanted.top_k, 3, 0, 0, bias), 0)
    drawn = {sampler.draw(logits * 1000) for _ in range(6)}
    assert not drawn & banned


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_a_ban_holds_against_any_lead(temperature: float) -> None:
    logits = np.array([5000.0, 0.0], np.float32)
    sampler = Sampler(Sampling(temperature, seed=1, logit_bias=((0, BAN),)), 0)
    assert {sampler.draw(logits) for _ in range(50)} == {1}
    almost = Sampler(Sampling(temperature, seed=1, logit_bias=((0, BAN + 1),)), 0)
    assert {almost.draw(logits) for _ in range(50)} == {0}


def test_with_all_ids_banned_the_likeliest_is_still_the_likeliest() -> None:
    logits = np.array([1.0, 3.0, 2.0], np.float32)
    bias = tuple((id_, BAN) for id_ in range(3))
    assert Sampler(Sampling(logit_bias=bias), 0).draw(logits) == 1


def test_a_bias_of_100_is_all_but_an_order() -> None:
    logits = np.array([20.0, 0.0, 10.0], np.float32)
    sampler = Sampler(Sampling(2.0, seed=1, logit_bias=((1, 100.0),)), 0)
    assert {sampler.draw(logits) for _ in range(200)} == {1}


class Edge:
    """A random source at an edge of its interval."""

    def __init__(self, value: float) -> None:
        self._value = value

    def random(self) -> float:
        return self._value


@given(
    arrays(np.float32, st.integers(1, 60), elements=st.floats(-50, 50, width=32)),
    samplings,
    st.sampled_from([0.0, 1 - 2**-53]),
)
def test_the_smallest_and_the_largest_random_number_draw_an_id_that_has_a_weight(
    logits: Floats, wanted: Sampling, edge: float
) -> None:
    longer = np.concatenate([[-1e9], logits, [-1e9]]).astype(np.float32)
    sampler = Sampler(wanted, 0)
    sampler._random = Edge(edge)  # type: ignore[assignment]
    assert 0 < sampler.draw(longer) <= len(logits)


def test_drawing_changes_no_logits() -> None:
    logits = np.arange(5, dtype=np.float32)
    Sampler(Sampling(1.0, 0.9, 3, 1, 2.0, 2.0, ((1, 5.0),)), 0).draw(logits)
    assert logits.tolist() == [0, 1, 2, 3, 4]


@given(logits_of, st.integers(0, 25), st.data())
def test_scores_are_the_log_softmax_of_the_logits(
    logits: Floats, count: int, data: st.DataObject
) -> None:
    id_ = data.draw(st.integers(0, len(logits) - 1))
    total = math.log(math.fsum(math.exp(float(logit)) for logit in logits))
    order = sorted(range(len(logits)), key=lambda each: (-float(logits[each]), each))[:count]
    scores = score(logits, id_, count)
    assert scores.drawn == pytest.approx(float(logits[id_]) - total, abs=1e-9)
    assert [each for each, _ in scores.likeliest] == order
    shares = [share for _, share in scores.likeliest]
    assert shares == pytest.approx([float(logits[each]) - total for each in order], abs=1e-9)


def test_scores_of_huge_logits_are_finite() -> None:
    logits = np.array([3e38, -3e38], np.float32)
    assert score(logits, 0, 0).drawn == 0.0
    assert math.isfinite(score(logits, 1, 2).drawn)


def test_requests_without_a_seed_differ() -> None:
    logits = np.zeros(1000, np.float32)
    answers = {
        tuple(Sampler(Sampling(1.0), seed).draw(logits) for _ in range(4)) for seed in range(20)
    }
    assert len(answers) == 20


def test_draws_are_as_frequent_as_the_distribution_says() -> None:
    logits = np.log(np.array([1, 2, 3, 4], np.float32))
    sampler = Sampler(Sampling(1.0, seed=5), 0)
    drawn = Counter(sampler.draw(logits) for _ in range(10_000))
    # Five standard deviations of a binomial count around its mean.
    for id_, share in enumerate((0.1, 0.2, 0.3, 0.4)):
        assert abs(drawn[id_] - 10_000 * share) < 5 * math.sqrt(10_000 * share * (1 - share))


def test_a_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    logits = np.array([1.0, 900.0, -900.0], np.float32)
    assert Sampler(Sampling(1e-30, seed=1), 0).draw(logits) == 1
