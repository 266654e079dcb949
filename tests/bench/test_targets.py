"""Each target is judged by the median of what was measured, and says when nothing was."""

import pytest

from tests.bench.report import FIGURES, OURS, OWN, PLAIN
from tests.bench.samples import samples
from tests.bench.targets import TARGETS, Target, verdicts

EVERYONE = ("nginx", OURS, PLAIN, "sglang-router", "vllm-router")


def judged(at_least: bool, *found: float) -> str:
    return Target("x", 2.0, 1, lambda _: list(found), at_least).verdict(found)


@pytest.mark.parametrize(
    ("at_least", "found", "verdict"),
    [
        (False, (2.0,), "met"),
        (False, (2.1,), "missed"),
        (False, (9.0, 1.0, 1.5), "met"),
        (True, (2.0,), "met"),
        (True, (1.9,), "missed"),
        (True, (), "not measured"),
        (False, (), "not measured"),
    ],
)
def test_the_median_decides(at_least: bool, found: tuple[float, ...], verdict: str) -> None:
    assert judged(at_least, *found) == verdict


def test_every_target_is_about_figures_that_are_measured() -> None:
    """A figure under another name would leave its target open for ever."""
    everything = [
        sample
        for figure in (*FIGURES, *OWN)
        for sample in samples(figure.name, {who: [1.0, 1.0] for who in EVERYONE})
    ]
    assert all(target.measure(everything) for target in TARGETS)
    assert "not measured" not in verdicts(everything)


def test_without_samples_no_target_is_met() -> None:
    text = verdicts([])
    assert text.count("not measured") == len(TARGETS)
    assert "| met" not in text
    assert verdicts([], measured_only=True) == ""


def test_routers_are_measured_in_multiples_of_ours() -> None:
    found = samples("post_us", {"sglang-router": [100.0], OURS: [20.0]})
    row = next(line for line in verdicts(found).splitlines() if "sglang-router" in line)
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == [
        "at least 5.0",
        "5.0",
        "met",
    ]


def test_latency_is_compared_by_difference() -> None:
    found = samples("sse_added_us", {"nginx": [70.0], OURS: [90.0]})
    row = next(line for line in verdicts(found).splitlines() if "beyond nginx" in line)
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == [
        "at most 15",
        "20",
        "missed",
    ]


def test_a_pick_may_grow_by_the_logarithm() -> None:
    found = [
        *samples("pick_round_robin_10_ns", {OURS: [1000.0]}),
        *samples("pick_round_robin_1000_ns", {OURS: [3100.0]}),
    ]
    row = next(line for line in verdicts(found).splitlines() if "round_robin" in line)
    assert "3.1" in row
    assert "missed" in row
