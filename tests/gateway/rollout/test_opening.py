"""The bet on the first requests is fair, and worth the same however it comes true: counted out."""

from itertools import permutations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rollout.opening import FAILURES, FIRST, Opening, chance, price

SHARES = st.floats(0.001, 0.999)


def binomial(bad: int, of: int, share: float) -> float:
    return comb(of, bad) * share**bad * (1 - share) ** (of - bad)


@given(st.integers(0, 2), st.integers(0, 3), st.integers(1, 9), SHARES, st.floats(0, 1))
def test_nothing_is_gained_by_who_fails_as_claimed_or_less(
    bad: int, good: int, of: int, claimed: float, part: float
) -> None:
    """From any state, with batches that end before the sixth request or go on beyond it."""
    placed = Opening(1.0, claimed, bad, bad + good)
    mean = sum(
        binomial(more, of, claimed * part) * placed.after(more, of, claimed).wealth
        for more in range(of + 1)
    )
    assert mean <= 1 + 1e-9
    if part == 1:
        assert mean == pytest.approx(1)


@given(st.permutations([1, 1, 1, 0, 0, 0]), SHARES, st.floats(2, 1000))
def test_three_of_six_are_worth_the_proof_whichever_they_are(
    order: list[int], claimed: float, proof: float
) -> None:
    opening = Opening(price(claimed, proof), claimed)
    for bad in order:
        opening = opening.after(bad, 1, claimed)
    assert opening.wealth == pytest.approx(proof)
    assert opening.after(5, 5, claimed) == opening


def test_two_of_six_are_worth_nothing() -> None:
    lost = Opening(1.0, 0.05).after(2, 6, 0.05)
    assert lost.wealth == 0
    assert lost.after(4, 4, 0.05) == lost


@given(st.integers(0, 3), st.integers(4, 8), SHARES)
def test_a_batch_is_worth_the_mean_over_all_orders(bad: int, of: int, claimed: float) -> None:
    """Of `of` requests, one batch, beside one at a time."""
    orders = set(permutations([1] * bad + [0] * (of - bad)))
    worths = []
    for order in orders:
        opening = Opening(1.0, claimed)
        for one in order:
            opening = opening.after(one, 1, claimed)
        worths.append(opening.wealth)
    whole = Opening(1.0, claimed).after(bad, of, claimed).wealth
    assert whole == pytest.approx(sum(worths) / len(worths), abs=1e-6)


def test_the_bet_is_paid_out_as_it_stands_when_something_else_is_claimed() -> None:
    hopeful = Opening(1.0, 0.05).after(1, 1, 0.05)
    assert hopeful.wealth > 1
    paid = hopeful.after(1, 1, 0.2)
    assert paid.wealth == hopeful.wealth
    assert paid.after(3, 3, 0.05) == paid


def test_the_third_failure_of_who_fails_every_other_request_is_the_fifth_with_even_chances() -> (
    None
):
    """The floor alone: no test that waits for three failures is out sooner."""
    assert chance(FAILURES, 5, 0.5) == 0.5
    assert chance(FAILURES, FIRST, 0.5) == 0.65625
