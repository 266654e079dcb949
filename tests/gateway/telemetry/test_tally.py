from gateway.state.shared import histogram_cell
from gateway.telemetry.tally import Tally


def test_a_drain_that_ends_is_counted_with_its_duration() -> None:
    tally = Tally()
    tally.drain_ended("done", 1.5)
    tally.drain_ended("done", 0.0)
    assert (tally.drains["done"], tally.drains["cut"]) == (2, 0)
    assert tally.drain_durations.sum_us == 1_500_000
    assert tally.drain_durations.cells[histogram_cell(1_500_000)] == 1
    assert sum(tally.drain_durations.cells) == 2


def test_two_tallies_share_nothing() -> None:
    first = Tally()
    first.lost["operator"] += 1
    assert Tally().lost["operator"] == 0
