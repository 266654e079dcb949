"""The budget of replays."""

from gateway.routing.replay import BUDGET_RESERVE, BUDGET_SHARE
from gateway.state.budget import Budget


def test_a_dying_fleet_gets_a_tenth_more_work_and_the_reserve() -> None:
    budget = Budget()
    replays = 0
    for _ in range(1000):
        budget.requests += 1
        replays += budget.spend()
    assert replays <= 1000 * BUDGET_SHARE + BUDGET_RESERVE


def test_what_was_long_ago_is_forgotten() -> None:
    budget = Budget()
    while budget.spend():
        pass
    for _ in range(60):
        budget.fade()
    assert budget.spend()
