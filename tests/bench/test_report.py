"""The tables say what was measured: medians over turns, ratios inside turns."""

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.report import (
    FIGURES,
    OURS,
    OWN,
    PLAIN,
    Sample,
    pairs,
    quick_line,
    ratio_table,
    ratios,
    spread,
    table,
    values,
)
from tests.bench.samples import samples


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_ratio_is_taken_inside_one_turn() -> None:
    """Turns on a machine that is twice as slow in the second: the ratio does not see it."""
    found = samples("post_us", {"nginx": [10, 20], OURS: [15, 30]})
    assert ratios(found, OURS, "post_us") == [1.5, 1.5]


def test_a_turn_without_one_of_the_two_has_no_ratio() -> None:
    found = samples("post_us", {"nginx": [10, 0, 10], OURS: [15, 30]})
    assert ratios(found, OURS, "post_us") == [1.5]
    assert pairs(found, OURS, "post_us") == [(15, 10), (30, 0)]


def test_a_ratio_can_be_to_another_contender() -> None:
    found = samples("post_us", {"sglang-router": [120], OURS: [20]})
    assert ratios(found, "sglang-router", "post_us", OURS) == [6]


@given(st.floats(0.01, 100), st.lists(st.floats(1, 1e6), min_size=1, max_size=9))
def test_a_contender_with_a_constant_ratio_has_that_ratio(share: float, base: list[float]) -> None:
    found = samples("sse_us", {"nginx": base, "HAProxy": [share * one for one in base]})
    assert all(abs(one - share) < 1e-6 * share for one in ratios(found, "HAProxy", "sse_us"))


def test_values_are_of_one_contender_and_one_figure() -> None:
    found = samples("post_us", {"nginx": [1, 2], "HAProxy": [3]})
    assert values([*found, Sample(0, "nginx", "sse_us", 4)], "nginx", "post_us") == [1, 2]


def test_a_spread_is_median_and_extremes() -> None:
    assert spread([3.0, 1.0, 1000.04], 1) == "3.0 (1.0-1,000.0)"
    assert spread([2.5], 2) == "2.50"
    assert spread([], 2) == "-"


def test_the_table_has_a_row_for_each_figure_that_was_measured_and_aligned_columns() -> None:
    found = samples("post_us", {"nginx": [10, 12, 11], OURS: [20, 18, 22]})
    lines = table(found, ["nginx", OURS]).splitlines()
    assert len({len(line) for line in lines}) == 1
    label = next(figure.label for figure in FIGURES if figure.name == "post_us")
    assert cells(lines[2]) == [label, "11.0 (10.0-12.0)", "20.0 (18.0-22.0)"]
    assert len(lines) == 3


def test_a_contender_that_failed_in_a_load_has_a_dash_there() -> None:
    found = samples("post_us", {"nginx": [10], "vllm-router": []})
    assert cells(table(found, ["nginx", "vllm-router"]).splitlines()[2])[1:] == ["10.0", "-"]


def test_multiples_have_a_table_of_their_own() -> None:
    found = samples("post_us", {"nginx": [10, 12, 11], OURS: [20, 18, 22]})
    lines = ratio_table(found, ["nginx", OURS]).splitlines()
    assert cells(lines[0]) == ["/ nginx", OURS]
    assert cells(lines[2])[1] == "2.00 (1.50-2.00)"


def test_nothing_measured_is_no_table() -> None:
    assert table([], ["nginx"]) == ratio_table([], ["nginx"]) == ""
    assert table(samples("post_us", {OURS: [1]}), [OURS], OWN) == ""


def test_no_figure_is_named_twice() -> None:
    names = [figure.name for figure in (*FIGURES, *OWN)]
    assert len(set(names)) == len(names)


def test_the_quick_line_has_the_three_figures_that_scripts_read() -> None:
    found = [
        *samples("post_us", {"nginx": [10], PLAIN: [19.5]}),
        *samples("sse_us", {"nginx": [16], PLAIN: [20]}),
        *samples("stream_kib", {"nginx": [17], PLAIN: [5.24]}),
    ]
    assert quick_line(found, PLAIN) == "ratio_post=1.95 ratio_sse=1.25 kib_per_stream=5.2"
