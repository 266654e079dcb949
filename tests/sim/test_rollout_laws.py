"""Each law of rollouts can fail: what breaks it, and what does not."""

import pytest

from gateway.rollout.machine import MOVES
from tests.sim import rollout_laws as laws
from tests.sim.laws import Broken

STEP = {"phase": "step", "step": 1}


def test_phases_may_not_follow_as_they_like() -> None:
    laws.phases_follow("m/1", "step", "paused")
    with pytest.raises(Broken):
        laws.phases_follow("m/1", "promoting", "step")


def test_the_laws_know_the_phases_that_there_are() -> None:
    for phase, moves in MOVES.items():
        after = {one.value for one in moves.values()} - {"pending"}  # the next one has a number
        assert after == set(laws.MAY_FOLLOW[phase.value])


def test_nothing_may_be_shown_that_the_store_has_not() -> None:
    laws.the_store_has_it_first("m/1", ("step", 1), STEP)
    with pytest.raises(Broken):
        laws.the_store_has_it_first("m/1", ("step", 2), STEP)
    with pytest.raises(Broken):
        laws.the_store_has_it_first("m/1", ("step", 1), {})


@pytest.mark.parametrize(
    ("phase", "shares"),
    [
        ("step", {"1": 80.0, "2": 20.0}),
        ("paused", {"1": 80.0, "2": 20.0}),
        ("promoting", {"1": 0.0, "2": 100.0}),
        ("rolling_back", {"1": 100.0, "2": 0.0}),
    ],
)
def test_a_table_may_not_have_other_shares_than_the_phase(
    phase: str, shares: dict[str, float]
) -> None:
    laws.shares_are_as_promised("m/1", phase, 20.0, shares, "2")
    with pytest.raises(Broken):
        laws.shares_are_as_promised("m/1", phase, 20.0, {"1": 50.0, "2": 50.0}, "2")
    with pytest.raises(Broken):
        laws.shares_are_as_promised("m/1", phase, 20.0, {**shares, "3": 10.0}, "2")


def test_weights_may_not_change_while_a_rollout_owns_them() -> None:
    laws.weights_have_one_owner("m/1", {"1": 80.0}, {"1": 80.0})
    with pytest.raises(Broken):
        laws.weights_have_one_owner("m/1", {"1": 80.0}, {"1": 70.0})


def test_the_old_group_may_not_go_before_the_end() -> None:
    laws.the_old_group_stays("m/1", "done", ["m-1-0"])
    laws.the_old_group_stays("m/1", "promoting", [])
    with pytest.raises(Broken):
        laws.the_old_group_stays("m/1", "promoting", ["m-1-0"])


def test_nothing_may_be_left_of_a_version_that_is_gone() -> None:
    laws.a_version_that_is_gone_leaves_nothing("table", ["1", "2"], ["1", "2", "3"])
    with pytest.raises(Broken):
        laws.a_version_that_is_gone_leaves_nothing("table", ["1", "4"], ["1", "2", "3"])


def test_a_blocked_version_may_get_nothing() -> None:
    laws.nothing_opens_on_a_blocked_version("2", None, 0.0, 99.0, 1.0)
    laws.nothing_opens_on_a_blocked_version("2", 5.0, 0.0, 5.9, 1.0)
    laws.nothing_opens_on_a_blocked_version("2", 5.0, 8.0, 8.9, 1.0)
    with pytest.raises(Broken):
        laws.nothing_opens_on_a_blocked_version("2", 5.0, 0.0, 6.1, 1.0)


def test_two_failures_may_not_roll_back() -> None:
    laws.failures_were_seen("m/1", 3)
    with pytest.raises(Broken):
        laws.failures_were_seen("m/1", 2)


def test_a_step_may_not_pass_without_its_requests() -> None:
    laws.a_pass_was_earned("m/1", 4, 4)
    with pytest.raises(Broken):
        laws.a_pass_was_earned("m/1", 3, 4)
