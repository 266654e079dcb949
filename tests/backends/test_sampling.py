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
from backends.sampling import Sampler, distribution

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
    seeded = Sampling(wanted.temperature, wanted.top_p, wanted.top_k, seed)
    alone = Sampler(seeded, 1)
    beside, neighbour = Sampler(seeded, 2), Sampler(wanted, 3)
    expected = [alone.draw(logits) for _ in range(8)]
    got = []
    for _ in range(8):
        neighbour.draw(logits)
        got.append(beside.draw(logits))
    assert got == expected


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
