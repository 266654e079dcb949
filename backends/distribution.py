"""How often what took how long: counts by bound, as Prometheus wants them.

Floor 1, pure (`Tally` is mutable; owner: the instance's event loop).
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Seconds. From a cached prompt on an accelerator to a long one in a queue on a CPU.
FIRST_TOKEN_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
TOKEN_S: Final = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
WAIT_S: Final = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0)
REQUEST_S: Final = (0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values seen so far: how many were at most each of `bounds`, and beyond the last."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()  # one more than bounds; each value is in one of them
    total: float = 0.0  # of all values

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' buckets: at most each bound, and all."""
        names = [*map(repr, self.bounds), "+Inf"]
        sums, seen = [], 0
        for name, count in zip(names, self.counts or (0,), strict=True):
            seen += count
            sums.append((name, float(seen)))
        return sums


NOTHING_SEEN: Final = Distribution()


class Tally:
    """Counts values into a distribution."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def see(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def read(self) -> Distribution:
        return Distribution(self._bounds, tuple(self._counts), self._total)
