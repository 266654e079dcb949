"""No way of betting gains on average while the canary is no worse: counted out, not sampled."""

from itertools import product
from math import comb, exp, lgamma, log, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.rollout.wager import (
    ODDS,
    STAKES,
    UNPLAYED,
    Share,
    Wager,
    against_limit,
    against_rate,
    against_stable,
    believable,
)

SHARES = st.floats(0.001, 0.999)
FEW = st.integers(1, 6)


def binomial(bad: int, of: int, share: float) -> float:
    return comb(of, bad) * share**bad * (1 - share) ** (of - bad)


def test_all_wealth_lies_on_some_alternative_or_is_held_back() -> None:
    assert sum(STAKES) == pytest.approx(1)
    assert UNPLAYED.wealth_log == pytest.approx(0)


@given(FEW, st.floats(0, 1), SHARES)
def test_against_the_limit_nothing_is_gained_within_it(of: int, part: float, limit: float) -> None:
    limit, share = believable(limit), believable(limit) * part
    for at in range(len(ODDS)):
        mean = sum(
            binomial(bad, of, share) * exp(against_limit(Share(bad, of), limit)[at])
            for bad in range(of + 1)
        )
        assert mean <= 1 + 1e-9


@given(FEW, FEW, SHARES, st.floats(0, 1), SHARES, SHARES)
def test_against_stable_nothing_is_gained_by_who_is_no_worse(
    canary_of: int, stable_of: int, share: float, part: float, limit: float, foretold: float
) -> None:
    """Whatever stable's share is, whatever was foretold of it, however many requests each had."""
    tolerated = max(limit, foretold)
    for at in range(len(ODDS)):
        mean = sum(
            binomial(canary_bad, canary_of, share * part)
            * binomial(stable_bad, stable_of, share)
            * exp(
                against_stable(
                    Share(canary_bad, canary_of), Share(stable_bad, stable_of), tolerated, foretold
                )[at]
            )
            for canary_bad in range(canary_of + 1)
            for stable_bad in range(stable_of + 1)
        )
        assert mean <= 1 + 1e-9


@settings(max_examples=30)
@given(st.lists(SHARES, min_size=2, max_size=5), SHARES, SHARES)
def test_nor_if_no_two_requests_of_a_block_are_alike(
    shares: list[float], limit: float, foretold: float
) -> None:
    """An outage begins within a block: both versions meet the same mixture of requests."""
    n = len(shares)
    for at in range(len(ODDS)):
        mean = 0.0
        for outcomes in product((0, 1), repeat=2 * n):
            chance = prod(p if bad else 1 - p for p, bad in zip(shares * 2, outcomes, strict=True))
            block = Share(sum(outcomes[:n]), n), Share(sum(outcomes[n:]), n)
            gains = against_stable(*block, max(limit, foretold), foretold)
            mean += chance * exp(gains[at])
        assert mean <= 1 + 1e-9


@given(st.floats(0, 1000), FEW, SHARES)
def test_staking_what_was_held_back_is_no_gain(trials: float, of: int, limit: float) -> None:
    wager = Wager(tuple(log(0.3) for _ in ODDS), trials)
    mean = sum(
        binomial(bad, of, limit)
        * exp(wager.after(of, against_limit(Share(bad, of), limit)).wealth_log)
        for bad in range(of + 1)
    )
    assert mean <= exp(wager.wealth_log) * (1 + 1e-9)


@given(st.floats(0.01, 3), st.floats(0.01, 2))
def test_against_a_rate_nothing_is_gained_within_it(time: float, rate: float) -> None:
    for at in range(len(ODDS)):
        expected = rate * time
        logs = [events * log(expected) - expected - lgamma(events + 1) for events in range(500)]
        mean = sum(
            exp(chance + against_rate(events, time, rate)[at]) for events, chance in enumerate(logs)
        )
        assert mean <= 1 + 1e-9


def test_wealth_survives_json() -> None:
    wager = UNPLAYED.held_to(Share(1, 3), 0.05, PROOF)
    assert wager.opening.wealth > 0
    assert Wager.from_json(wager.to_json()) == wager


PROOF = 1 / 0.009


@pytest.mark.parametrize("order", ["111", "01011", "000111", "110001"])
def test_three_failures_of_the_first_six_are_enough_at_the_defaults(order: str) -> None:
    wager = UNPLAYED
    for bad in order:
        wager = wager.held_to(Share(int(bad), 1), 0.05, PROOF)
    assert wager.wealth_log >= log(PROOF)


@given(FEW, SHARES, st.floats(2, 1e4))
def test_the_bet_on_the_first_requests_is_paid_and_not_given(
    of: int, limit: float, proof: float
) -> None:
    limit = believable(limit)
    mean = sum(
        binomial(bad, of, limit) * exp(UNPLAYED.held_to(Share(bad, of), limit, proof).wealth_log)
        for bad in range(of + 1)
    )
    assert mean == pytest.approx(1)


def test_a_bet_that_costs_more_than_the_last_alternative_has_is_not_made() -> None:
    """At a false alarm ten times rarer three failures of six are no proof."""
    placed = UNPLAYED.held_to(Share(0, 1), 0.05, PROOF)
    assert placed.opening.wealth > 0
    assert UNPLAYED.held_to(Share(0, 1), 0.05, 10 * PROOF).opening == UNPLAYED.opening
    assert UNPLAYED.held_to(Share(0, 1), 0.05, 0.0).opening == UNPLAYED.opening
