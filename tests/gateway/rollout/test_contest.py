"""When a block ends, and what it is compared with."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.rollout.contest import LONELY, STALE, UNFOUGHT, Alone, Contest, Memory, fought
from gateway.rollout.wager import NONE, Share

LIMIT = 0.05


def test_a_block_ends_with_a_request_of_both() -> None:
    waiting = fought(UNFOUGHT, Share(1, 2), NONE, LIMIT)
    assert (waiting.canary_open, waiting.proof_log) == (Share(1, 2), UNFOUGHT.proof_log)
    ended = fought(waiting, NONE, Share(0, 1), LIMIT)
    assert (ended.canary_open, ended.stable_open) == (NONE, NONE)
    assert ended == fought(UNFOUGHT, Share(1, 2), Share(0, 1), LIMIT)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 150), st.integers(0, 150))
def test_when_a_block_ends_is_not_up_to_how_it_went(a: int, b: int, c: int, d: int) -> None:
    good = fought(UNFOUGHT, Share(0, a + b), Share(0, c + d), LIMIT)
    bad = fought(UNFOUGHT, Share(a, a + b), Share(c, c + d), LIMIT)
    assert (good.canary_open.of, good.stable_open.of) == (bad.canary_open.of, bad.stable_open.of)


def test_what_stable_did_long_before_is_remembered_but_not_compared() -> None:
    contest = UNFOUGHT
    for _ in range(10):
        contest = fought(contest, NONE, Share(0, STALE), LIMIT)
    contest = fought(contest, NONE, Share(5, 10), LIMIT)
    assert contest.stable_open == Share(5, 10)
    assert contest.memory.of >= STALE


def test_stable_that_serves_no_longer_is_not_waited_for() -> None:
    contest = UNFOUGHT
    for _ in range(LONELY - 1):
        contest = fought(contest, Share(1, 1), NONE, LIMIT)
    assert contest.proof_log == UNFOUGHT.proof_log
    assert fought(contest, Share(1, 1), NONE, LIMIT).proof_log > 50


def test_a_block_alone_is_judged_at_once_where_stable_is_sent_nothing() -> None:
    contest = fought(UNFOUGHT, Share(3, 3), NONE, LIMIT, Alone.AT_ONCE)
    assert contest.proof_log > 6
    assert contest.canary_open == NONE


def test_a_block_alone_says_nothing_where_there_is_nothing_but_stable_to_compare_with() -> None:
    contest = fought(UNFOUGHT, Share(LONELY, LONELY), NONE, None, Alone.DROPPED)
    assert contest.proof_log == UNFOUGHT.proof_log
    assert contest.canary_open == NONE


def test_stable_s_own_failures_raise_what_is_tolerated() -> None:
    calm = fought(UNFOUGHT, Share(5, 10), Share(0, 90), LIMIT)
    stormy = fought(UNFOUGHT, Share(5, 10), Share(30, 90), LIMIT)
    assert stormy.limit.wealth_log < calm.limit.wealth_log
    assert stormy.proof_log < calm.proof_log


def test_memory_fades() -> None:
    memory = Memory().after(Share(50, 100))
    assert memory.share > 0.3
    for _ in range(20):
        memory = memory.after(Share(0, 100))
    assert memory.share < 0.01


def test_contests_survive_json() -> None:
    contest = fought(fought(UNFOUGHT, Share(3, 7), Share(1, 5), LIMIT), Share(0, 2), NONE, LIMIT)
    assert Contest.from_json(contest.to_json()) == contest
