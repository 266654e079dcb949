"""Every value is in one bucket, and the buckets are those that Prometheus adds up."""

from hypothesis import given
from hypothesis import strategies as st

from backends.distribution import Distribution, Tally

BOUNDS = (0.01, 0.1, 1.0)
seconds = st.floats(0, 100)


@given(st.lists(seconds))
def test_each_bucket_holds_what_is_at_most_its_bound(values: list[float]) -> None:
    tally = Tally(BOUNDS)
    for value in values:
        tally.see(value)
    read = tally.read()
    buckets = dict(read.cumulative())
    for bound in BOUNDS:
        assert buckets[str(bound)] == sum(value <= bound for value in values)
    assert buckets["+Inf"] == len(values)
    assert read.total == sum(values)


def test_what_was_read_does_not_move() -> None:
    tally = Tally(BOUNDS)
    before = tally.read()
    tally.see(0.5)
    assert sum(before.counts) == 0


def test_nothing_measured_yet_is_an_empty_histogram() -> None:
    assert Distribution().cumulative() == [("+Inf", 0.0)]
