from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.health import (
    UNSEEN,
    Opinion,
    Rules,
    answered,
    dial_failed,
    heard,
    lease_ended,
    unanswered,
    weigh,
)
from gateway.records import Health

RULES = Rules(failures=3, successes=2, stuck_s=30.0, first_byte_s=600.0, recent_s=4.0)
GOOD = answered(UNSEEN, RULES)


def fail(opinion: Opinion, times: int, slow: bool = False, now: float = 100.0) -> Opinion:
    for _ in range(times):
        opinion = unanswered(opinion, "refused", slow, now, RULES)
    return opinion


def test_the_first_reading_makes_good() -> None:
    assert GOOD.health is Health.GOOD


@pytest.mark.parametrize(("failures", "health"), [(2, Health.GOOD), (3, Health.UNHEALTHY)])
def test_only_three_failures_in_a_row_make_unhealthy(failures: int, health: Health) -> None:
    assert fail(GOOD, failures).health is health


@pytest.mark.parametrize(("answers", "health"), [(1, Health.UNHEALTHY), (2, Health.GOOD)])
def test_only_two_answers_in_a_row_make_good_again(answers: int, health: Health) -> None:
    opinion = fail(GOOD, 3)
    for _ in range(answers):
        opinion = answered(opinion, RULES)
    assert opinion.health is health


def test_a_failure_between_answers_starts_the_way_up_again() -> None:
    opinion = fail(answered(fail(GOOD, 3), RULES), 1)
    assert answered(opinion, RULES).health is Health.UNHEALTHY


@pytest.mark.parametrize(
    ("after", "health"),
    [
        (answered(dial_failed(GOOD, "refused"), RULES), Health.GOOD),
        (fail(dial_failed(GOOD, "refused"), 1), Health.UNHEALTHY),
    ],
    ids=["answered", "failed"],
)
def test_after_a_refused_dial_the_next_poll_decides(after: Opinion, health: Health) -> None:
    assert dial_failed(GOOD, "refused").health is Health.SUSPECT
    assert after.health is health


def test_a_dial_says_nothing_new_of_an_instance_that_is_not_good() -> None:
    down = fail(GOOD, 3)
    assert dial_failed(down, "refused") is down


def test_watch_messages_do_not_bring_an_unhealthy_instance_back() -> None:
    opinion = fail(GOOD, 3)
    for _ in range(5):
        opinion = heard(opinion)
    assert opinion.health is Health.UNHEALTHY
    assert heard(UNSEEN).health is Health.GOOD


def test_slow_answers_of_an_instance_that_moves_do_not_count() -> None:
    moving = weigh(GOOD, 5, 0, True, 99.0, RULES)
    assert fail(moving, 10, slow=True, now=100.0).health is Health.GOOD
    assert fail(moving, 3, slow=False, now=100.0).health is Health.UNHEALTHY
    assert fail(moving, 3, slow=True, now=104.0).health is Health.UNHEALTHY


def test_a_missed_registration_is_lost_and_comes_back_by_answering() -> None:
    lost = lease_ended(GOOD, "not heard of")
    assert lost.health is Health.LOST
    assert fail(lost, 5).health is Health.LOST
    assert answered(answered(lost, RULES), RULES).health is Health.GOOD


# --- stuck ---------------------------------------------------------------------------------------


def test_in_flight_and_nothing_moved_for_stuck_s_is_suspect_and_polls_do_not_clear_it() -> None:
    opinion = weigh(GOOD, 5, 0, True, 0.0, RULES)
    opinion = weigh(opinion, 5, 0, True, 29.9, RULES)
    assert opinion.health is Health.GOOD
    opinion = weigh(opinion, 5, 0, True, 30.0, RULES)
    assert (opinion.health, opinion.stuck) == (Health.SUSPECT, True)
    assert answered(answered(opinion, RULES), RULES).health is Health.SUSPECT
    assert "30 s" in opinion.reason


@pytest.mark.parametrize(
    ("progress", "received", "busy"),
    [(6, 0, True), (5, 1, True), (5, 0, False)],
    ids=["a step", "a byte", "nothing in flight"],
)
def test_it_is_good_again_when_it_moves(progress: int, received: int, busy: bool) -> None:
    stuck = weigh(weigh(GOOD, 5, 0, True, 0.0, RULES), 5, 0, True, 30.0, RULES)
    assert weigh(stuck, progress, received, busy, 31.0, RULES).health is Health.GOOD


def test_an_engine_without_steps_is_given_first_byte_s() -> None:
    opinion = weigh(GOOD, 0, 0, False, 0.0, RULES)
    assert weigh(opinion, 0, 0, True, 599.0, RULES).health is Health.GOOD
    assert weigh(opinion, 0, 0, True, 600.0, RULES).health is Health.SUSPECT
    patient = replace(RULES, first_byte_s=0.0)
    assert weigh(opinion, 0, 0, True, 1e6, patient).health is Health.GOOD


def test_an_engine_without_steps_is_given_it_with_each_request() -> None:
    """A long answer that is not streamed gives no byte for minutes, also after others have."""
    opinion = weigh(GOOD, 0, 5000, True, 0.0, RULES)
    assert weigh(opinion, 0, 5000, True, 599.0, RULES).health is Health.GOOD
    assert weigh(opinion, 0, 5000, True, 600.0, RULES).health is Health.SUSPECT


@given(st.lists(st.booleans(), max_size=60))
def test_health_follows_the_runs_of_a_history(history: list[bool]) -> None:
    """The last run of three failures or two answers says what it is; before any, it is good."""
    opinion = GOOD
    for ok in history:
        opinion = answered(opinion, RULES) if ok else fail(opinion, 1)
    text = "".join("+" if ok else "-" for ok in history)
    down, up = text.rfind("---"), text.rfind("++", text.rfind("---") + 3)
    healthy = down < 0 or up >= 0
    assert opinion.health is (Health.GOOD if healthy else Health.UNHEALTHY)
