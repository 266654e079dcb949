"""How often a version's instances die, against what an instance may do.

Floor 1, pure.   Flow: counts -> [crashes] -> analysis
One crash per instance and hour is let pass, or as many as stable has: a crash loop is found within
minutes, a crash every other hour is not what rolls a version back by itself.
"""

from dataclasses import dataclass
from typing import Any, Final

from gateway.rollout.counts import Counts
from gateway.rollout.wager import UNPLAYED, Wager, against_rate

PER_HOUR: Final = 1.0


@dataclass(frozen=True, slots=True)
class Restarts:
    wager: Wager = UNPLAYED
    canary: int = 0
    stable: int = 0
    stable_lived_s: float = 0.0

    @property
    def tolerated_per_s(self) -> float:
        seen = self.stable / self.stable_lived_s if self.stable_lived_s else 0.0
        return max(PER_HOUR / 3600, seen)

    def to_json(self) -> list[Any]:
        return [self.wager.to_json(), self.canary, self.stable, self.stable_lived_s]

    @staticmethod
    def from_json(told: list[Any]) -> "Restarts":
        wager, *counts = told
        return Restarts(Wager.from_json(wager), *counts)


NO_RESTARTS: Final = Restarts()


def counted(restarts: Restarts, canary: Counts, stable: Counts) -> Restarts:
    """After a batch of both; a batch that does not say how long it lived only counts crashes."""
    seen = Restarts(
        restarts.wager,
        restarts.canary + canary.restarts,
        restarts.stable + stable.restarts,
        restarts.stable_lived_s + stable.lived_s,
    )
    gains = against_rate(canary.restarts, canary.lived_s, seen.tolerated_per_s)
    wager = restarts.wager.after(canary.lived_s, gains)
    return Restarts(wager, seen.canary, seen.stable, seen.stable_lived_s)
