"""The plot in docs/ is what the simulation draws today."""

from tests.sim.rollouts.__main__ import CURVES, PLOT, curve
from tests.sim.rollouts.plot import Line, chart


def test_the_same_figures_give_the_same_bytes() -> None:
    lines = [Line(f"a < b {share}", ((1, 0), (10, share), (1000, 1))) for share in CURVES]
    assert chart(lines) == chart(lines)
    assert "a &lt; b" in chart(lines)


def test_the_plot_is_current() -> None:
    assert chart([curve(share) for share in CURVES]) == PLOT.read_text(), "run make rollout-sim"
