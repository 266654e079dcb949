"""From answers to a place on the way to READY."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.external.derive import (
    FINE,
    REFUSALS_MAX,
    Patience,
    Pulse,
    Stage,
    Verdict,
    Way,
    follow,
    place,
)
from sluicegate.v1.states import Phase, progress

ORDER = list(Stage)
WAITING = Verdict("still loading")
WRONG = Verdict("answers 500", Patience.FEW)
USELESS = Verdict("serves another model", Patience.FEW_UNUSABLE)
verdicts = st.sampled_from([FINE, WAITING, WRONG, USELESS])


@given(st.lists(verdicts, max_size=40))
def test_done_is_reached_by_one_good_answer_to_each_question_and_by_nothing_else(
    history: list[Verdict],
) -> None:
    way, good = Way(), 0
    for verdict in history:
        if way.is_over or way.stage is Stage.DONE:
            break
        way = follow(way, verdict)
        good += verdict is FINE
    assert ORDER.index(way.stage) == good


@given(st.lists(verdicts, max_size=40))
def test_it_is_over_after_so_many_wrong_answers_in_a_row_and_not_before(
    history: list[Verdict],
) -> None:
    way, row = Way(), 0
    for verdict in history:
        if way.is_over or way.stage is Stage.DONE:
            break
        way = follow(way, verdict)
        row = row + 1 if verdict in (WRONG, USELESS) else 0
        assert way.is_over is (row == REFUSALS_MAX)
        assert way.is_unusable is (way.is_over and verdict is USELESS)
        assert not verdict.problem or way.reason == verdict.problem


@given(st.floats(0, 1e6), st.floats(0, 1), st.booleans())
def test_progress_only_grows_along_the_way(elapsed_s: float, warmed: float, asked: bool) -> None:
    shown = [progress(*place(Way(stage), asked, elapsed_s, warmed)) for stage in Stage]
    assert shown == sorted(shown)
    assert shown[-1] <= 90  # the rest is READY's


def test_nobody_was_asked_yet_is_starting() -> None:
    assert place(Way(), False, 0.0, 0.0) == (Phase.STARTING, 1.0)
    assert place(Way(), True, 60.0, 0.0) == (Phase.LOADING_MODEL, 0.5)


@pytest.mark.parametrize(
    ("problem", "slow", "moved", "failures"),
    [
        ("", False, False, 0),
        ("refused", False, False, 3),
        ("refused", False, True, 3),  # it says so itself
        ("late", True, False, 3),
        ("late", True, True, 2),  # busy, not dead
    ],
)
def test_what_counts_as_a_failure_once_it_serves(
    problem: str, slow: bool, moved: bool, failures: int
) -> None:
    assert Pulse(2).after(problem, slow, moved) == Pulse(failures)
