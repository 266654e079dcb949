"""What an idle graph does with what waits for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.microbatching import Run, Waiting, WaitUntil, plan, sizes

A, B = ((3,),), ((4,),)
DELAY = 0.5


def waits(rows: int = 1, since: float = 10.0, shapes: object = A, alone: bool = False) -> Waiting:
    return Waiting(rows, shapes, since, alone)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queue", "now", "decision"),
    [
        pytest.param([], 10.0, None, id="nothing waits"),
        pytest.param([waits()], 10.0, WaitUntil(10.5), id="one waits for company"),
        pytest.param([waits()], 10.5, Run(1), id="not longer than the delay"),
        pytest.param([waits(4)], 10.0, Run(1), id="a full batch waits for nobody"),
        pytest.param([waits(), waits(3)], 10.0, Run(2), id="full together"),
        pytest.param([waits(2), waits(1)], 10.0, WaitUntil(10.5), id="room is left"),
        pytest.param([waits(2), waits(3)], 10.0, Run(1), id="the next does not fit"),
        pytest.param([waits(2), waits(3), waits(1)], 10.0, Run(1), id="nobody overtakes"),
        pytest.param([waits(), waits(shapes=B)], 10.0, Run(1), id="other shapes do not join"),
        pytest.param([waits(), waits(alone=True)], 10.0, Run(1), id="a suspect joins nobody"),
        pytest.param([waits(alone=True), waits()], 10.0, Run(1), id="nobody joins a suspect"),
        pytest.param([waits(since=9.7), waits(since=9.9)], 10.0, WaitUntil(10.2), id="the oldest"),
        pytest.param([waits(since=9.4), waits()], 10.0, Run(2), id="all that wait go along"),
        pytest.param([waits()] * 9, 10.0, Run(4), id="no more than a batch"),
    ],
)
def test_a_run_is_as_full_as_it_can_be_and_no_later_than_promised(
    queue: list[Waiting], now: float, decision: object
) -> None:
    assert plan(queue, now, max_batch=4, max_delay_s=DELAY) == decision


def test_without_batches_every_request_runs_at_once_and_alone() -> None:
    assert plan([waits(), waits()], 10.0, max_batch=0, max_delay_s=DELAY) == Run(1)


@given(
    st.lists(st.builds(waits, st.integers(1, 8), st.floats(0, 20)), max_size=12),
    st.floats(0, 40),
    st.integers(8, 16),
)
def test_what_runs_is_a_beginning_of_the_queue_that_fits(
    queue: list[Waiting], now: float, max_batch: int
) -> None:
    decision = plan(queue, now, max_batch, DELAY)
    match decision:
        case Run(count):
            assert 1 <= count <= len(queue)
            assert sum(one.rows for one in queue[:count]) <= max_batch
        case WaitUntil(at):
            assert now < at == queue[0].since + DELAY
        case None:
            assert not queue


@pytest.mark.parametrize(
    ("max_batch", "graph_rows", "found"),
    [(0, 0, ()), (1, 0, (1,)), (2, 0, (1, 2)), (6, 0, (1, 2, 4, 6)), (8, 0, (1, 2, 4, 8)),
     (5, 8, (8,))],
)  # fmt: skip
def test_the_sizes_are_few_and_cover_every_number_of_rows(
    max_batch: int, graph_rows: int, found: tuple[int, ...]
) -> None:
    assert sizes(max_batch, graph_rows) == found
