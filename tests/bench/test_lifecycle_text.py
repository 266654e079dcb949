"""What was measured is shown, what was not is not."""

from tests.bench.lifecycle_text import costs, quantile, section, times


def test_a_quantile_is_a_value_that_was_measured() -> None:
    hundred = [float(n) for n in range(100, 0, -1)]
    assert [quantile(hundred, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert quantile([7.0], 0.99) == 7.0


def test_a_time_is_met_when_its_median_is_below_what_is_wanted() -> None:
    met, missed = times({"ready_ms": [19.9, 30.0], "drain_ms": [20.0]}).splitlines()[2:]
    assert [cell.strip() for cell in met.split("|")][2:-1] == [
        "below 20",
        "19.9",
        "30.0",
        "30.0",
        "2",
        "met",
    ]
    assert missed.rstrip(" |").endswith("missed")


def test_what_was_not_measured_has_no_row() -> None:
    assert times({}) == costs({}) == ""
    assert "1,000" not in costs({"polled_100_percent": [4.0]})
    assert "Nothing was measured." in section({}, ["a fact"])
    assert "- a fact\n" in section({}, ["a fact"])
