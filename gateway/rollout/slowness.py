"""A canary's slow requests: those beyond stable's 95th percentile times the ratio allowed.

Floor 1, pure.   Flow: counts -> [slowness] -> analysis
Two thresholds, both edges of histogram cells: a request of stable is slow beyond its own 95th
percentile, one of the canary beyond that times the ratio. If the canary takes at most that many
times as long, its share of slow ones is at most stable's, wherever the threshold lies: so it need
not be exact, it is only put where the question is asked. It is put before the block it is for.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

from gateway.rollout.contest import Alone, Contest, Memory, fought
from gateway.rollout.counts import packed, unpacked
from gateway.rollout.wager import Share
from gateway.state.shared import HISTOGRAM_CELLS, histogram_bound_us

QUANTILE: Final = 0.95
SLOW: Final = 1 - QUANTILE
REFERENCE_MIN: Final = 100  # of stable's requests, before a 95th percentile is spoken of
REFERENCE_MAX: Final = 4000  # then all are halved: the latest few thousand count

START: Final = Contest(memory=Memory(bad=SLOW * 100, of=100.0))  # by definition of the threshold

BOUNDS_US: Final = tuple(histogram_bound_us(cell) for cell in range(HISTOGRAM_CELLS))


@dataclass(frozen=True, slots=True)
class Slowness:
    contest: Contest = START
    reference: tuple[int, ...] = ()  # stable's latest requests, by cell
    fast_stable: int = -1  # cells up to this one are not slow; -1: no threshold yet
    fast_canary: int = -1

    def to_json(self) -> list[Any]:
        cells = [self.fast_stable, self.fast_canary]
        return [self.contest.to_json(), packed(self.reference), cells]

    @staticmethod
    def from_json(told: list[Any]) -> "Slowness":
        contest, reference, cells = told
        return Slowness(Contest.from_json(contest), unpacked(reference), *cells)


UNTIMED: Final = Slowness()


def timed(
    slowness: Slowness, canary: tuple[int, ...], stable: tuple[int, ...], ratio: float
) -> Slowness:
    """After a batch of both, as histograms."""
    if slowness.fast_stable >= 0:
        contest = fought(
            slowness.contest,
            _slow(canary, slowness.fast_canary),
            _slow(stable, slowness.fast_stable),
            None,
            Alone.DROPPED,
        )
        slowness = replace(slowness, contest=contest)
    if any(stable):
        slowness = replace(slowness, reference=_remembered(slowness.reference, stable))
    open_now = slowness.contest.canary_open.of + slowness.contest.stable_open.of
    if open_now:  # a threshold holds for a whole block
        return slowness
    return _aimed(slowness, ratio)


def quantile_cell(cells: tuple[int, ...], quantile: float = QUANTILE) -> int | None:
    """The first cell beyond which at most the rest of the requests lie; None: nothing measured."""
    most = (1 - quantile) * sum(cells)
    beyond = 0
    for cell in range(len(cells) - 1, -1, -1):
        beyond += cells[cell]
        if beyond > most:
            return cell
    return None


def quantile_s(cells: tuple[int, ...], quantile: float = QUANTILE) -> float | None:
    """Upper edge of that cell, in seconds."""
    cell = quantile_cell(cells, quantile)
    return None if cell is None else BOUNDS_US[cell] / 1_000_000


def _slow(cells: tuple[int, ...], fast: int) -> Share:
    return Share(sum(cells[fast + 1 :]), sum(cells))


def _remembered(reference: tuple[int, ...], stable: tuple[int, ...]) -> tuple[int, ...]:
    cells = tuple(a + b for a, b in zip_longest(reference, stable, fillvalue=0))
    while sum(cells) > REFERENCE_MAX:
        cells = tuple(count // 2 for count in cells)
    return cells


def _aimed(slowness: Slowness, ratio: float) -> Slowness:
    if sum(slowness.reference) < REFERENCE_MIN:
        return slowness
    fast = quantile_cell(slowness.reference)
    assert fast is not None
    lower = quantile_cell(slowness.reference, 1 - 2 * SLOW)  # there the question is not another
    if lower is not None and lower < fast and _excess(fast - 1, ratio) < _excess(fast, ratio):
        fast -= 1
    return replace(slowness, fast_stable=fast, fast_canary=beyond(fast, ratio))


def beyond(cell: int, ratio: float) -> int:
    """The first cell that ends no earlier than `ratio` times the end of `cell`."""
    return min(bisect_left(BOUNDS_US, ratio * BOUNDS_US[cell]), HISTOGRAM_CELLS - 1)


def _excess(cell: int, ratio: float) -> float:
    """By how much that is too far: edges of cells lie up to an eighth apart."""
    return BOUNDS_US[beyond(cell, ratio)] / (ratio * BOUNDS_US[cell])
