"""The plot of docs/rollouts.md, drawn by matplotlib: the same figures give the same bytes.

Floor 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Final

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

TITLE: Final = "Rollouts that are rolled back, by requests of the canary (5 % of the traffic)"
REQUESTS: Final = (1, 3, 10, 30, 100, 300, 1000)
DASHES: Final = ("-", "--", ":", "-.", (0, (8, 2)))  # told apart without colours, too
STYLE: Final = {
    "svg.hashsalt": "rollouts",  # names of parts are drawn from it, otherwise by lot
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: tuple[tuple[float, float], ...]


def chart(lines: Sequence[Line]) -> str:
    """SVG."""
    text = StringIO()
    with style.context(["default", STYLE]):  # whatever style its user has set
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.subplots()
        for line, dashes in zip(lines, DASHES, strict=True):
            requests, shares = zip(*line.points, strict=True)
            axes.plot(requests, shares, label=line.name, linestyle=dashes, linewidth=2)
        axes.set(title=TITLE, xlabel="requests that the canary has answered", ylabel="rolled back")
        axes.set_xscale("log")
        axes.set(xlim=(REQUESTS[0], REQUESTS[-1]), ylim=(0, 1.02))
        axes.set_xticks(REQUESTS, [f"{tick}" for tick in REQUESTS])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.legend(loc="center left", frameon=False, bbox_to_anchor=(1, 0.5))
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())
