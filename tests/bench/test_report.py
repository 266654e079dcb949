"""The table says what was measured: medians over turns, ratios inside turns."""

from hypothesis import given
from hypothesis import strategies as st

from tests.bench.report import (
    FIGURES,
    Sample,
    document,
    quick_line,
    ratios,
    spread,
    table,
    values,
)


def samples(figure: str, **found: list[float]) -> list[Sample]:
    return [
        Sample(number, who, figure, value)
        for who, row in found.items()
        for number, value in enumerate(row)
    ]


def test_a_ratio_is_taken_inside_one_turn() -> None:
    """Turns on a machine that is twice as slow in the second: the ratio does not see it."""
    found = samples("post_us", nginx=[10, 20], Sluicegate=[15, 30])
    assert ratios(found, "Sluicegate", "post_us") == [1.5, 1.5]


def test_a_turn_without_one_of_the_two_has_no_ratio() -> None:
    found = samples("post_us", nginx=[10, 0, 10], Sluicegate=[15, 30])
    assert ratios(found, "Sluicegate", "post_us") == [1.5]


@given(st.floats(0.01, 100), st.lists(st.floats(1, 1e6), min_size=1, max_size=9))
def test_a_contender_with_a_constant_ratio_has_that_ratio(share: float, base: list[float]) -> None:
    found = samples("sse_us", nginx=base, HAProxy=[share * one for one in base])
    assert all(abs(one - share) < 1e-6 * share for one in ratios(found, "HAProxy", "sse_us"))


def test_values_are_of_one_contender_and_one_figure() -> None:
    found = samples("post_us", nginx=[1, 2], HAProxy=[3]) + samples("sse_us", nginx=[4])
    assert values(found, "nginx", "post_us") == [1, 2]


def test_a_spread_is_median_and_extremes() -> None:
    assert spread([3.0, 1.0, 1000.04], 1) == "3.0 (1.0-1,000.0)"
    assert spread([2.5], 2) == "2.50"
    assert spread([], 2) == "-"


def test_the_table_has_a_row_for_each_figure_that_was_measured_and_aligned_columns() -> None:
    found = samples("post_us", nginx=[10, 12, 11], Sluicegate=[20, 18, 22])
    lines = table(found, ["nginx", "Sluicegate"]).splitlines()
    assert len({len(line) for line in lines}) == 1
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    label = next(figure.label for figure in FIGURES if figure.name == "post_us")
    assert cells == [label, "11.0 (10.0-12.0)", "20.0 (18.0-22.0)", "2.00 (1.50-2.00)"]
    assert len(lines) == 3


def test_the_quick_line_has_the_three_figures_that_scripts_read() -> None:
    found = [
        *samples("post_us", nginx=[10], Sluicegate=[19.5]),
        *samples("sse_us", nginx=[16], Sluicegate=[20]),
        *samples("stream_kib", nginx=[17], Sluicegate=[5.24]),
    ]
    assert quick_line(found) == "ratio_post=1.95 ratio_sse=1.25 kib_per_stream=5.2"


def test_the_document_holds_table_and_facts() -> None:
    text = document("| a |", ["two cores", "four rounds"])
    assert "| a |" in text
    assert "- two cores\n- four rounds\n" in text
