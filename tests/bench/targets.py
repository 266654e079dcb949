"""What the data plane has set out to reach, and whether one run has.

Floor 1, pure.
A target is met when the median is within its limit. One that could not be measured is said to be
that, never met.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from tests.bench.report import BASELINE, OURS, PLAIN, Sample, grid, pairs, ratios, spread, values

Measure = Callable[[Sequence[Sample]], list[float]]

LOG_OF_SIZES: Final = 3.0  # log 1,000 / log 10: what a cost of O(log n) may grow by


@dataclass(frozen=True, slots=True)
class Target:
    """`limit` is the most that is allowed; the least, where `at_least`."""

    what: str
    limit: float
    decimals: int
    measure: Measure
    at_least: bool = False

    def verdict(self, found: Sequence[float]) -> str:
        if not found:
            return "not measured"
        middle = median(found)
        met = middle >= self.limit if self.at_least else middle <= self.limit
        return "met" if met else "missed"

    def wanted(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:,.{self.decimals}f}"


def _beside(figure: str, ours: str = OURS, other: str = BASELINE) -> Measure:
    return lambda samples: ratios(samples, ours, figure, other)


def _more_than(figure: str) -> Measure:
    return lambda samples: [ours - base for ours, base in pairs(samples, OURS, figure)]


def _of(figure: str) -> Measure:
    return lambda samples: values(samples, OURS, figure)


def _grown(policy: str) -> Measure:
    """From 10 instances to 1,000."""

    def measure(samples: Sequence[Sample]) -> list[float]:
        few = values(samples, OURS, f"pick_{policy}_10_ns")
        many = values(samples, OURS, f"pick_{policy}_1000_ns")
        return [two / one for one, two in zip(few, many, strict=True)]

    return measure


TARGETS: Final = (
    Target("post: CPU / nginx", 1.3, 2, _beside("post_us")),
    Target("uniq: CPU / nginx", 1.4, 2, _beside("uniq_us")),
    Target("post, interpreted: CPU / nginx", 2.0, 2, _beside("post_us", PLAIN)),
    Target("uniq, interpreted: CPU / nginx", 2.2, 2, _beside("uniq_us", PLAIN)),
    Target(
        "post: sglang-router's CPU / ours", 5.0, 1, _beside("post_us", "sglang-router", OURS), True
    ),
    Target("post: vllm-router's CPU / ours", 3.5, 1, _beside("post_us", "vllm-router", OURS), True),
    Target("two workers: CPU per request / one worker's", 1.1, 2, _of("workers_ratio")),
    Target("two workers: in flight when all is over", 0, 0, _of("workers_left")),
    Target("sse: CPU per chunk / nginx", 1.15, 2, _beside("sse_us")),
    Target("sse: added latency p50 beyond nginx's, us", 15, 0, _more_than("sse_added_us")),
    Target("sse: first byte p50 / nginx", 1.1, 2, _beside("sse_first_us")),
    Target("memory per open stream, KiB", 6.0, 1, _of("stream_kib")),
    Target("streams held at once", 10_000, 0, _of("held_streams"), True),
    Target("of them lost", 0, 0, _of("held_lost")),
    Target("memory after a million short requests: growth, %", 5.0, 1, _of("growth_percent")),
    Target("8 MiB up: CPU / nginx", 1.0, 2, _beside("up_ms")),
    Target("8 MiB down: CPU / nginx", 1.0, 2, _beside("down_ms")),
    Target("a reader of 1 GiB that stalls: memory, KiB", 1024, 0, _of("stalled_reader_kib")),
    Target("1 GiB for an instance that stalls: memory, KiB", 1024, 0, _of("stalled_writer_kib")),
    Target("request over 1,000 instances / over 10", LOG_OF_SIZES, 2, _of("route_1000_1_ratio")),
    *(
        Target(f"pick of 1,000 / of 10: {policy}", LOG_OF_SIZES, 1, _grown(policy))
        for policy in ("least_loaded", "round_robin", "random", "affinity")
    ),
)


def verdicts(samples: Sequence[Sample], measured_only: bool = False) -> str:
    """The table of targets beside what was measured; "" when it would be empty."""
    rows = []
    for target in TARGETS:
        found = target.measure(samples)
        if measured_only and not found:
            continue
        shown = spread(found, target.decimals)
        rows.append([target.what, target.wanted(), shown, target.verdict(found)])
    return grid(["", "wanted", "measured", ""], rows) if rows else ""
