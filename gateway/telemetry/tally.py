"""What the control process counts by itself: everything that has no cell in the segment.

Floor 2, no I/O.
Owner: the control process's event loop. Totals only grow; they begin again with a new control
process, which Prometheus takes for the counter reset that it is. Keys come from the program's own
literals, never from a client, so they stay few.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from gateway.state.shared import HISTOGRAM_CELLS, histogram_cell

# Keys that are shown from the start, so that the first increase is seen as one.
LOST_CAUSES: Final = ("drain_deadline", "operator", "shutdown", "worker_died")
HEARTBEATS: Final = ("accepted", "ignored", "missed", "unknown")
RELOADS: Final = ("applied", "refused")
DRAINS: Final = ("cut", "done", "undrained")
LOADS: Final = ("failed", "ready")
ROLLBACKS: Final = (
    *("aborted", "failures", "instances", "latency", "no_snapshot", "not_ready", "restarts"),
    *("ttft", "validation"),
)


def _counts(names: tuple[str, ...]) -> Counter[str]:
    return Counter(dict.fromkeys(names, 0))


@dataclass(slots=True)
class Durations:
    """How long something took, by cell of the histogram."""

    cells: list[int] = field(default_factory=lambda: [0] * HISTOGRAM_CELLS)
    sum_us: int = 0

    def see(self, duration_s: float) -> None:
        micros = int(duration_s * 1_000_000)
        self.cells[histogram_cell(micros)] += 1
        self.sum_us += micros


@dataclass(slots=True)
class Tally:
    """Counters by key; add to them directly: `tally.heartbeats["accepted"] += 1`."""

    lost: Counter[str] = field(default_factory=lambda: _counts(LOST_CAUSES))
    heartbeats: Counter[str] = field(default_factory=lambda: _counts(HEARTBEATS))
    reloads: Counter[str] = field(default_factory=lambda: _counts(RELOADS))
    drains: Counter[str] = field(default_factory=lambda: _counts(DRAINS))
    loads: Counter[str] = field(default_factory=lambda: _counts(LOADS))
    rollbacks: Counter[str] = field(default_factory=lambda: _counts(ROLLBACKS))
    rollback_durations: Durations = field(default_factory=Durations)
    tokens: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # model, version, kind
    samples: Counter[tuple[str, str]] = field(default_factory=Counter)  # model, length bucket
    webhooks: Counter[tuple[str, str]] = field(default_factory=Counter)  # name, outcome
    drain_durations: Durations = field(default_factory=Durations)

    def drain_ended(self, outcome: str, duration_s: float) -> None:
        """A drain is over: `done`, `cut` at its deadline, or `undrained` before."""
        self.drains[outcome] += 1
        self.drain_durations.see(duration_s)

    def rolled_back(self, duration_s: float) -> None:
        """A version gets nothing any more, so long after it was decided."""
        self.rollback_durations.see(duration_s)
