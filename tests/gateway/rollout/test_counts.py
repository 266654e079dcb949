from hypothesis import given
from hypothesis import strategies as st

from gateway.rollout.counts import NOTHING, Counts, packed, unpacked

NUMBERS = st.integers(0, 1000)
CELLS = st.lists(NUMBERS, max_size=20).map(tuple)
COUNTS = st.builds(Counts, NUMBERS, NUMBERS, CELLS, CELLS, NUMBERS, NUMBERS.map(float))


@given(COUNTS, COUNTS)
def test_what_came_since_is_what_was_added(base: Counts, more: Counts) -> None:
    since = (base + more) - base
    assert since.requests == more.requests
    assert base + since == base + more


@given(COUNTS, COUNTS)
def test_counters_that_went_back_count_as_nothing(base: Counts, more: Counts) -> None:
    since = base - (base + more)
    assert (since.requests, sum(since.latency), sum(since.ttft)) == (0, 0, 0)
    assert (since.restarts, since.lived_s) == (0, 0.0)


@given(COUNTS)
def test_counts_survive_json(counts: Counts) -> None:
    assert Counts.from_json(counts.to_json()) == counts


@given(CELLS)
def test_only_cells_that_hold_something_are_written(cells: tuple[int, ...]) -> None:
    assert unpacked(packed(cells)) == cells
    assert len(packed(cells)) == 1 + 2 * sum(count > 0 for count in cells)


def test_nothing_failed_of_nothing() -> None:
    assert NOTHING.failure_ratio == 0.0
    assert Counts(served=3, failed=1).failure_ratio == 0.25
