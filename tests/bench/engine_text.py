"""Samples of `make bench-engine` -> its part of docs/instance.md, and its one line.

Floor 1, pure.
A ratio is taken inside one round, where both met the same machine within seconds; its median is
over rounds. Above 1: Sluicegate makes more tokens in a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tests.bench.report import grid

PART: Final = "bench-engine"  # of the document
OURS, PEER = "Sluicegate", "torch"


@dataclass(frozen=True, slots=True)
class Run:
    """One contender's part of one round."""

    tokens: int
    wall_s: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.tokens / self.wall_s

    @property
    def cpu_ms(self) -> float:
        return self.cpu_s / self.tokens * 1e3


Rounds = Sequence[Mapping[str, Run]]  # each: contender: its run


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the table: what was done, and each round of it."""

    label: str
    rounds: Rounds

    def ratio(self) -> float:
        return median(each[OURS].rate / each[PEER].rate for each in self.rounds)


def table(rows: Sequence[Measured]) -> str:
    head = [
        "tokens per second",
        OURS,
        PEER,
        "ratio",
        f"CPU ms a token, {OURS}",
        f"CPU ms a token, {PEER}",
    ]
    return grid(head, [_cells(row) for row in rows])


def _cells(row: Measured) -> list[str]:
    rates = [[each[name].rate for each in row.rounds] for name in (OURS, PEER)]
    cpu = [median(each[name].cpu_ms for each in row.rounds) for name in (OURS, PEER)]
    shown = [f"{median(one):.1f} ({min(one):.1f}-{max(one):.1f})" for one in rates]
    return [row.label, *shown, f"{row.ratio():.2f}", *(f"{each:.1f}" for each in cpu)]


def line(decodes: Mapping[int, Measured], ready_s: float) -> str:
    """Shape: `decodes` by batch."""
    ratios = (f"decode_ratio_b{batch}={decodes[batch].ratio():.2f}" for batch in (1, 8))
    return " ".join([*ratios, f"ready_s={ready_s:.1f}"])


def section(
    rows: Sequence[Measured], ready: Mapping[str, float], facts: Sequence[str], notes: Sequence[str]
) -> str:
    """What stands between the marks. Shape: `ready` is seconds by the state of the cache."""
    loads = grid(
        ["seconds from an engine's process to READY", ""],
        [[cache, f"{seconds:.1f}"] for cache, seconds in ready.items()],
    )
    listed = "\n".join(f"- {each}" for each in (*facts, *notes))
    return f"""## Decode speed

Written by `make bench-engine`: the engine beside torch on the same weights in float32, with as many
threads, in turns within each round. The peer has fused matrices, a static cache with the same
windows, and torch's own attention or two multiplications, whichever is faster; both pick the
likeliest id on the host. Medians over rounds, smallest and largest in brackets; the ratio is the
median of the rounds' ratios, and above 1 the engine is faster.

{listed}

{table(rows)}

{loads}
"""
