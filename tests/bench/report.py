"""Samples of many rounds -> tables, the line of `make bench-quick`, and docs/benchmarks.md.

Floor 1, pure.
A ratio is taken inside one turn, where both contenders met the same machine within seconds, and its
median is over turns: the ratio of two medians would mix good and bad moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

BASELINE: Final = "nginx"
OURS: Final = "Sluicegate (compiled)"
PLAIN: Final = "Sluicegate (interpreted)"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one contender; `turn` counts from the beginning of the run."""

    turn: int
    contender: str
    figure: str
    value: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of a table; `decimals` as the spread between turns justifies them."""

    name: str
    label: str
    decimals: int


# Of every contender.
FIGURES: Final = (
    Figure("post_us", "post: CPU us per request", 1),
    Figure("post_per_s", "post: requests/s", 0),
    Figure("post_p50_us", "post: latency p50, us", 0),
    Figure("post_p99_us", "post: latency p99, us", 0),
    Figure("uniq_us", "uniq: CPU us per request", 1),
    Figure("uniq_per_s", "uniq: requests/s", 0),
    Figure("sse_us", "sse: CPU us per chunk", 1),
    Figure("sse_added_us", "sse: added latency p50, us", 0),
    Figure("sse_p99_us", "sse: latency p99, us", 0),
    Figure("sse_first_us", "sse: first byte p50, us", 0),
    Figure("stream_kib", "memory per open stream, KiB", 1),
    Figure("up_ms", "8 MiB up: CPU ms", 1),
    Figure("down_ms", "8 MiB down: CPU ms", 1),
)

# Of Sluicegate alone.
OWN: Final = (
    Figure("workers_1_us", "one worker: CPU us per request (post)", 1),
    Figure("workers_2_us", "two workers: CPU us per request, both together", 1),
    Figure("workers_ratio", "two workers / one", 2),
    Figure("workers_share_percent", "of two, the less busy one's share of CPU, %", 0),
    Figure("workers_held", "in flight over both, with 200 streams open", 0),
    Figure("workers_left", "in flight over both, with none", 0),
    Figure("route_10_1_us", "10 instances, 1 model: CPU us per request", 1),
    Figure("route_100_1_us", "100 instances, 1 model", 1),
    Figure("route_1000_1_us", "1,000 instances, 1 model", 1),
    Figure("route_100_100_us", "100 instances, 100 models", 1),
    Figure("route_1000_100_us", "1,000 instances, 100 models", 1),
    Figure("route_100_1_ratio", "100 instances, 1 model / 10 and 1", 2),
    Figure("route_1000_1_ratio", "1,000 instances, 1 model / 10 and 1", 2),
    Figure("route_100_100_ratio", "100 instances, 100 models / 10 and 1", 2),
    Figure("route_1000_100_ratio", "1,000 instances, 100 models / 10 and 1", 2),
    *(
        Figure(f"pick_{policy}_{count}_ns", f"{policy}, {count:,} instances: ns per pick", 0)
        for policy in ("least_loaded", "round_robin", "random", "affinity")
        for count in (10, 100, 1000)
    ),
    Figure("growth_requests", "short requests in a row", 0),
    Figure("growth_mib", "memory before them, MiB", 1),
    Figure("growth_percent", "its growth, %", 1),
    Figure("held_streams", "streams open at once", 0),
    Figure("held_workers", "workers that hold them", 0),
    Figure("held_lost", "of them lost", 0),
    Figure("held_kib", "memory per stream, KiB", 1),
    Figure("held_left", "in flight when they are gone", 0),
    Figure("stalled_reader_kib", "a reader of 1 GiB that stalls: memory, KiB", 0),
    Figure("stalled_writer_kib", "1 GiB for an instance that stalls: memory, KiB", 0),
    Figure("stalled_writer_sent_mib", "of it sent, into the kernel's buffers, MiB", 1),
)


def values(samples: Sequence[Sample], contender: str, figure: str) -> list[float]:
    return [s.value for s in samples if s.contender == contender and s.figure == figure]


def pairs(
    samples: Sequence[Sample], contender: str, figure: str, other: str = BASELINE
) -> list[tuple[float, float]]:
    """(contender's, other's) of the same turn; turns in which either is missing are left out."""
    of = {(s.turn, s.contender): s.value for s in samples if s.figure == figure}
    turns = sorted({number for number, _ in of})
    return [
        (of[number, contender], of[number, other])
        for number in turns
        if (number, contender) in of and (number, other) in of
    ]


def ratios(
    samples: Sequence[Sample], contender: str, figure: str, other: str = BASELINE
) -> list[float]:
    """To the other of the same turn, unless that is 0."""
    return [one / two for one, two in pairs(samples, contender, figure, other) if two]


def spread(found: Sequence[float], decimals: int) -> str:
    """`median (min-max)`; the median alone of a single value; `-` of none."""
    if not found:
        return "-"
    middle = f"{median(found):,.{decimals}f}"
    if len(found) == 1:
        return middle
    return f"{middle} ({min(found):,.{decimals}f}-{max(found):,.{decimals}f})"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, its columns aligned for terminals."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def table(
    samples: Sequence[Sample], contenders: Sequence[str], figures: Sequence[Figure] = FIGURES
) -> str:
    """A row for each figure that was measured; "" when none was."""
    rows = [
        [
            figure.label,
            *(spread(values(samples, one, figure.name), figure.decimals) for one in contenders),
        ]
        for figure in figures
        if any(values(samples, one, figure.name) for one in contenders)
    ]
    return grid(["", *contenders], rows) if rows else ""


def ratio_table(samples: Sequence[Sample], contenders: Sequence[str]) -> str:
    """The same as multiples of the baseline; "" when nothing can be compared."""
    others = [one for one in contenders if one != BASELINE]
    rows = [
        [figure.label, *(spread(ratios(samples, one, figure.name), 2) for one in others)]
        for figure in FIGURES
        if any(ratios(samples, one, figure.name) for one in others)
    ]
    return grid([f"/ {BASELINE}", *others], rows) if rows else ""


def quick_line(samples: Sequence[Sample], ours: str) -> str:
    """Medians of one run, for scripts."""
    post = median(ratios(samples, ours, "post_us"))
    sse = median(ratios(samples, ours, "sse_us"))
    kib = median(values(samples, ours, "stream_kib"))
    return f"ratio_post={post:.2f} ratio_sse={sse:.2f} kib_per_stream={kib:.1f}"
