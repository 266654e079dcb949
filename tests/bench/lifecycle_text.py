"""Timings of changes, and what instances cost control -> their part of docs/benchmarks.md.

Floor 1, pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from tests.bench.report import grid

PART: Final = "lifecycle"  # of the document
Figures = dict[str, list[float]]  # figure: its trials


@dataclass(frozen=True, slots=True)
class Row:
    """A figure; `wanted`: its median is to be below, 0 where nothing is promised."""

    figure: str
    label: str
    decimals: int
    wanted: float = 0.0


TIMES: Final = (
    Row("ready_ms", "an instance says READY, to its first request", 1, 20.0),
    Row("drain_ms", "an order to drain, to the instance's last request", 1, 20.0),
    Row("weight_ms", "an order to move all weight, to the old version's last request", 1, 20.0),
    Row("answered_ms", "the same order, to the answer that every worker has it", 1, 20.0),
)
COSTS: Final = (
    Row("polled_100_percent", "100 instances, READY and polled: % of a core", 1),
    Row("polled_1000_percent", "1,000 instances, READY and polled: % of a core", 1),
    Row("start_100_s", "100 instances, from the start until all are routable: s", 1),
    Row("start_1000_s", "1,000 instances, from the start until all are routable: s", 1),
)


def quantile(found: Sequence[float], share: float) -> float:
    """The smallest that so many are not above."""
    return sorted(found)[max(0, ceil(share * len(found)) - 1)]


def times(figures: Mapping[str, Sequence[float]]) -> str:
    rows = []
    for row in TIMES:
        found = figures.get(row.figure, ())
        if found:
            shown = (f"{quantile(found, share):.{row.decimals}f}" for share in (0.5, 0.99, 1.0))
            met = "met" if quantile(found, 0.5) < row.wanted else "missed"
            rows.append([row.label, f"below {row.wanted:.0f}", *shown, str(len(found)), met])
    head = ["milliseconds from ...", "wanted (p50)", "p50", "p99", "max", "trials", ""]
    return grid(head, rows) if rows else ""


def costs(figures: Mapping[str, Sequence[float]]) -> str:
    rows = [
        [row.label, f"{quantile(figures[row.figure], 0.5):.{row.decimals}f}"]
        for row in COSTS
        if figures.get(row.figure)
    ]
    return grid(["CPU of the control process", ""], rows) if rows else ""


def section(figures: Mapping[str, Sequence[float]], facts: Sequence[str]) -> str:
    """What stands between the marks."""
    listed = "\n".join(f"- {fact}" for fact in facts)
    tables = "\n\n".join(table for table in (times(figures), costs(figures)) if table)
    return f"""## Lifecycle

Written by `make bench-lifecycle`: a real gateway with two workers and instances that speak real
gRPC, asked by 16 clients all the time. A time ends with the first request that reaches the
instance, or with the last one; so it includes control, the table on its way, and every worker.

{listed}

{tables or "Nothing was measured."}
"""
