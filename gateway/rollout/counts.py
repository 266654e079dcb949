"""What one version has done: counters that only grow, and their differences.

Floor 0, pure.
`failed` counts attempts that blame the version: 4xx, clients that left and our own cuts are in
neither count. Histograms are cells of `gateway.state.shared`; () is a histogram of nothing.
"""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any


@dataclass(frozen=True, slots=True)
class Counts:
    served: int = 0
    failed: int = 0
    latency: tuple[int, ...] = ()  # attempts by duration
    ttft: tuple[int, ...] = ()  # attempts by time to first byte
    restarts: int = 0  # instances that died without being asked to
    lived_s: float = 0.0  # of its instances, all together; 0.0: nobody measured

    @property
    def requests(self) -> int:
        """Attempts that ended and say something about the version."""
        return self.served + self.failed

    @property
    def failure_ratio(self) -> float:
        return self.failed / self.requests if self.requests else 0.0

    def __add__(self, more: "Counts") -> "Counts":
        return Counts(
            served=self.served + more.served,
            failed=self.failed + more.failed,
            latency=_added(self.latency, more.latency),
            ttft=_added(self.ttft, more.ttft),
            restarts=self.restarts + more.restarts,
            lived_s=self.lived_s + more.lived_s,
        )

    def __sub__(self, base: "Counts") -> "Counts":
        """What came since `base`; a counter that went back counts as one that stood still."""
        return Counts(
            served=max(self.served - base.served, 0),
            failed=max(self.failed - base.failed, 0),
            latency=_since(self.latency, base.latency),
            ttft=_since(self.ttft, base.ttft),
            restarts=max(self.restarts - base.restarts, 0),
            lived_s=max(self.lived_s - base.lived_s, 0.0),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "served": self.served,
            "failed": self.failed,
            "latency": packed(self.latency),
            "ttft": packed(self.ttft),
            "restarts": self.restarts,
            "lived_s": self.lived_s,
        }

    @staticmethod
    def from_json(told: dict[str, Any]) -> "Counts":
        return Counts(
            served=int(told["served"]),
            failed=int(told["failed"]),
            latency=unpacked(told["latency"]),
            ttft=unpacked(told["ttft"]),
            restarts=int(told["restarts"]),
            lived_s=float(told["lived_s"]),
        )


NOTHING = Counts()


# --- histograms ----------------------------------------------------------------------------------


def packed(cells: tuple[int, ...]) -> list[int]:
    """The length, then index and count of each cell that holds something: most are empty."""
    flat = [len(cells)]
    for at, count in enumerate(cells):
        if count:
            flat += (at, count)
    return flat


def unpacked(flat: list[int]) -> tuple[int, ...]:
    cells = [0] * flat[0]
    for at, count in zip(flat[1::2], flat[2::2], strict=True):
        cells[at] = count
    return tuple(cells)


def _added(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(one, other, fillvalue=0))


def _since(cells: tuple[int, ...], base: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(now - then, 0) for now, then in zip_longest(cells, base, fillvalue=0))
