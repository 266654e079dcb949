"""Samples of many rounds -> the table, the line of `make bench-quick`, and docs/benchmarks.md.

Floor 1, pure.
A ratio is taken inside one turn, where both contenders met the same machine within seconds, and its
median is over turns: the ratio of two medians would mix good and bad moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

BASELINE: Final = "nginx"
OURS: Final = "Sluicegate"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one contender; `turn` counts from the beginning of the run."""

    turn: int
    contender: str
    figure: str
    value: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the table; `decimals` as the spread between turns justifies them."""

    name: str
    label: str
    decimals: int


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


def values(samples: Sequence[Sample], contender: str, figure: str) -> list[float]:
    return [s.value for s in samples if s.contender == contender and s.figure == figure]


def ratios(samples: Sequence[Sample], contender: str, figure: str) -> list[float]:
    """To the baseline of the same turn; turns in which either is missing are left out."""
    of = {(s.turn, s.contender): s.value for s in samples if s.figure == figure}
    turns = sorted({number for number, _ in of})
    return [
        of[number, contender] / of[number, BASELINE]
        for number in turns
        if (number, contender) in of and of.get((number, BASELINE))
    ]


def spread(found: Sequence[float], decimals: int) -> str:
    """`median (min-max)`; the median alone of a single value; `-` of none."""
    if not found:
        return "-"
    middle = f"{median(found):,.{decimals}f}"
    if len(found) == 1:
        return middle
    return f"{middle} ({min(found):,.{decimals}f}-{max(found):,.{decimals}f})"


def table(samples: Sequence[Sample], contenders: Sequence[str]) -> str:
    """Markdown, its columns aligned for terminals."""
    others = [one for one in contenders if one != BASELINE]
    head = ["", *contenders, *(f"{one} / {BASELINE}" for one in others)]
    rows = [
        [
            figure.label,
            *(spread(values(samples, one, figure.name), figure.decimals) for one in contenders),
            *(spread(ratios(samples, one, figure.name), 2) for one in others),
        ]
        for figure in FIGURES
        if any(sample.figure == figure.name for sample in samples)
    ]
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def quick_line(samples: Sequence[Sample]) -> str:
    """Medians of one run, for scripts."""
    post = median(ratios(samples, OURS, "post_us"))
    sse = median(ratios(samples, OURS, "sse_us"))
    kib = median(values(samples, OURS, "stream_kib"))
    return f"ratio_post={post:.2f} ratio_sse={sse:.2f} kib_per_stream={kib:.1f}"


def document(table: str, facts: Sequence[str]) -> str:
    """docs/benchmarks.md: the table, and what has to be known to read it."""
    said = "\n".join(f"- {fact}" for fact in facts)
    return f"""# Benchmarks

Written by `make bench`; `tests/bench/README.md` says what each figure means and how it is measured.
Medians over turns, smallest and largest in brackets. Less is better in every row but requests/s.

{table}

{said}
"""
