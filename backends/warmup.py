"""What a warm-up runs, and what its times say.

Floor 1, pure.
Samples stand for the prompts of each length: recorded ones where there are some, made-up ones where
there are none, and always one that is as long as fits. Each run of a sample begins elsewhere in its
text: an engine that keeps what it has read must read it all the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backends.engines.base import Sampling

TOKENS: Final = 8  # a run generates: enough gaps for a percentile, and soon over
PER_BUCKET_MAX: Final = 3  # recorded samples: a load must not take longer than it is worth
# Prompt tokens below which a bucket ends, and a length that stands for it; the rest is "longer".
BUCKETS: Final = ((100, 50), (500, 300), (2000, 1250))
PERCENTILE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt, and how its answer is to be drawn."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one sample."""

    sample: int  # which
    latency_s: float  # from its submission to its last token
    gaps_s: tuple[float, ...]  # between two tokens; of a graph: the latency


@dataclass(frozen=True, slots=True)
class Effect:
    """What the rounds have brought. Runs of different lengths are made comparable first."""

    first_s: float  # mean latency in the first quarter of the runs
    last_s: float  # in the last quarter
    gap_s: float  # 95 of 100 gaps of the last round were shorter

    def __str__(self) -> str:
        first, last, gap = (f"{1000 * s:.0f}" for s in (self.first_s, self.last_s, self.gap_s))
        return f"first quarter {first} ms, last quarter {last} ms, {gap} ms between tokens (p95)"


@dataclass(frozen=True, slots=True)
class Warmed:
    """What a warm-up was, and what it has brought."""

    samples: int  # of a round
    rounds: int
    skipped: int  # recorded requests that could not be run
    effect: Effect

    def __str__(self) -> str:
        return f"warmed up with {self.samples} samples x {self.rounds}: {self.effect}"


def bucket(length: int) -> int:
    """The number of the bucket of a prompt of so many tokens."""
    return next((n for n, (below, _) in enumerate(BUCKETS) if length < below), len(BUCKETS))


def lengths(max_seq_len: int) -> tuple[int, ...]:
    """Prompts that stand for all which fit: one of each bucket, the last as long as can be."""
    longest = max(1, max_seq_len - TOKENS)
    return (*(stands for below, stands in BUCKETS if longest >= below), longest)


def made_up(ids: Sequence[int], length: int) -> tuple[int, ...]:
    """`ids`, over and over, to that length."""
    return tuple(ids[n % len(ids)] for n in range(length))


def chosen(recorded: Sequence[Sample], made: Sequence[Sample]) -> tuple[Sample, ...]:
    """The samples of a round, short ones first; `recorded` has the newest first.

    Of what is made up stay the longest, and those of buckets that nobody has recorded.
    """
    taken: dict[int, list[Sample]] = {}
    for sample in recorded:
        there = taken.setdefault(bucket(len(sample.prompt_ids)), [])
        if len(there) < PER_BUCKET_MAX:
            there.append(sample)
    kept = [sample for sample in made[:-1] if bucket(len(sample.prompt_ids)) not in taken]
    every = [sample for there in taken.values() for sample in there]
    return tuple(sorted([*every, *kept, *made[-1:]], key=lambda sample: len(sample.prompt_ids)))


def turned(ids: tuple[int, ...], by: int) -> tuple[int, ...]:
    """`ids`, beginning elsewhere."""
    start = by % len(ids)
    return ids[start:] + ids[:start]


def effect(runs: Sequence[Run], last_round: int) -> Effect:
    """`last_round`: how many of the last runs it is.

    A run's latency is taken as a share of what its sample took on average, times what a run took on
    average: so a quarter with the long prompts in it is not the slow one.
    """
    by_sample: dict[int, list[float]] = {}
    for run in runs:
        by_sample.setdefault(run.sample, []).append(run.latency_s)
    typical = {sample: _mean(found) for sample, found in by_sample.items()}
    mean = _mean([run.latency_s for run in runs])
    even = [
        mean * run.latency_s / typical[run.sample] if typical[run.sample] else 0.0 for run in runs
    ]
    quarter = math.ceil(len(runs) / 4)
    gaps = sorted(gap for run in runs[-last_round:] for gap in run.gaps_s)
    gap = gaps[math.ceil(PERCENTILE * len(gaps)) - 1] if gaps else 0.0
    return Effect(_mean(even[:quarter]), _mean(even[-quarter:]), gap)


def refusal(found: Effect, baseline_ms: float) -> str:
    """Why this may not be READY; empty if it may, or if there is no baseline (0)."""
    gap_ms = 1000 * found.gap_s
    if not baseline_ms or gap_ms <= baseline_ms:
        return ""
    return (
        f"warm-up: {gap_ms:.1f} ms between tokens (p95), and the baseline is {baseline_ms:g} ms: "
        "look for a neighbour on the device, give it more threads, or raise warmup_baseline_ms"
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
