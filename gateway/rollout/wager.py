"""A wager that the new version is worse: what it has won is the proof.

Floor 1, pure.
Somebody who bets against the new version starts with 1 and may never owe. While it is no worse
than claimed, no way of betting has a gain on average, so by Ville's inequality the wealth reaches
1/a at any moment, ever, with a probability of at most a. Looking every second costs nothing.
Wealth lies on several alternatives at once, because nobody knows how bad "worse" is. A part of it
is held back and staked little by little, as requests pass: so a version that was good for a week
and breaks then is found as fast as one that was bad from the start.

Source: Ville 1939; Robbins 1970 (mixtures); Turner, Ly, Gruenwald 2021 (`against_stable`).
"""

from dataclasses import dataclass, replace
from math import exp, inf, log, log1p, sqrt
from typing import Any, Final

from gateway.rollout.opening import UNPLACED, Opening, price

# Odds of the alternatives as multiples of the odds claimed, with the share of wealth on each. Of a
# limit of 5 % these are 7, 10, 21 and 60 %. The last one also pays for the `opening`.
ODDS: Final = (1.5, 2.1, 5.0, 28.0)
STAKES: Final = (0.03, 0.23, 0.44, 0.3)
HELD_BACK: Final = 0.05  # of the wealth at the start
HALF_STAKED: Final = 3000.0  # trials after which half of that is staked: of the order of a step

RARE: Final = 1e-4  # shares are believed to lie between this and 1 - RARE


@dataclass(frozen=True, slots=True)
class Share:
    """So many bad ones of so many."""

    bad: int = 0
    of: int = 0

    def __add__(self, more: "Share") -> "Share":
        return Share(self.bad + more.bad, self.of + more.of)


NONE: Final = Share()


@dataclass(frozen=True, slots=True)
class Wager:
    """Wealth on each alternative, as logarithms, and how many trials have been staked on."""

    logs: tuple[float, ...] = (log(1 - HELD_BACK),) * len(ODDS)
    trials: float = 0.0
    opening: Opening = UNPLACED

    @property
    def wealth_log(self) -> float:
        staked = [held + log(stake) for held, stake in zip(self.logs, STAKES, strict=True)]
        placed = log(self.opening.wealth) if self.opening.wealth else -inf
        return _log_sum([*staked, log(_held_back(self.trials)), placed])

    def after(self, trials: float, gains: tuple[float, ...]) -> "Wager":
        """After a batch: each alternative multiplies its wealth by exp(gain)."""
        fresh = _held_back(self.trials) - _held_back(self.trials + trials)
        new = log(fresh) if fresh > 0 else -inf
        logs = tuple(
            _log_sum([held, new]) + gain for held, gain in zip(self.logs, gains, strict=True)
        )
        return Wager(logs, self.trials + trials, self.opening)

    def held_to(self, canary: Share, limit: float, proof: float) -> "Wager":
        """After a batch on which it is claimed that the share `limit` is bad, or less.

        proof: the wealth that is wanted; 0: nobody says, and no bet on the first requests is made.
        """
        wager = self if self.trials else self._opened(limit, proof)
        opening = wager.opening.after(canary.bad, canary.of, limit)
        return replace(wager.after(canary.of, against_limit(canary, limit)), opening=opening)

    def _opened(self, limit: float, proof: float) -> "Wager":
        """The last alternative asks for the same, with less thrift: it pays, if it can."""
        cost = price(limit, proof)
        rest = exp(self.logs[-1]) - cost / STAKES[-1]
        if not cost or rest <= 0:
            return self
        return replace(self, logs=(*self.logs[:-1], log(rest)), opening=Opening(cost, limit))

    def to_json(self) -> list[Any]:
        return [self.logs, self.trials, self.opening.to_json()]

    @staticmethod
    def from_json(told: list[Any]) -> "Wager":
        logs, trials, opening = told
        return Wager(tuple(logs), trials, Opening(*opening))


UNPLAYED: Final = Wager()


def against_limit(canary: Share, limit: float) -> tuple[float, ...]:
    """Gains on the claim that at most the share `limit` of the canary's requests is bad."""
    good = canary.of - canary.bad
    gains = []
    for odds in ODDS:
        worse = _tilted(limit, odds)
        gains.append(canary.bad * log(worse / limit) + good * log((1 - worse) / (1 - limit)))
    return tuple(gains)


def against_stable(
    canary: Share, stable: Share, tolerated: float, expected: float
) -> tuple[float, ...]:
    """Gains on the claim that the canary was no worse than stable in the same moments.

    `tolerated`: what the alternatives are worse than. `expected`: stable's share as foretold before
    this batch. A wrong one costs power, not truth: whatever share both have in a batch, the gain is
    none on average (Jensen; docs/rollouts.md).
    """
    mine = canary.of / (canary.of + stable.of)
    gains = []
    for odds in ODDS:
        worse = _tilted(tolerated, odds)
        both = mine * worse + (1 - mine) * expected
        gains.append(
            canary.bad * log(worse / both)
            + (canary.of - canary.bad) * log((1 - worse) / (1 - both))
            + stable.bad * log(expected / both)
            + (stable.of - stable.bad) * log((1 - expected) / (1 - both))
        )
    return tuple(gains)


def against_rate(events: int, time: float, rate: float) -> tuple[float, ...]:
    """Gains on the claim that events come at most at this rate."""
    return tuple(events * log(odds) - (odds - 1) * rate * time for odds in ODDS)


def believable(share: float) -> float:
    return min(max(share, RARE), 1 - RARE)


def _tilted(share: float, odds: float) -> float:
    return believable(share * odds / (1 - share + share * odds))


def _held_back(trials: float) -> float:
    return HELD_BACK / sqrt(1 + trials / (HALF_STAKED / 3))


def _log_sum(logs: list[float]) -> float:
    top = max(logs)
    return top + log1p(sum(exp(one - top) for one in logs) - 1) if top > -inf else top
