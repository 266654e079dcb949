"""`gateway.rollout` for thousands of rollouts at once: the same arithmetic on arrays.

Floor 2.
What is simulated a hundred million times cannot be Python objects. A test holds each function here
to the one it stands for: the same batches give the same wealth.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.rollout import contest, slowness, wager
from gateway.rollout.contest import Alone
from gateway.rollout.opening import UNPLACED, Opening, price
from gateway.state.shared import HISTOGRAM_CELLS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ODDS: Final[Floats] = np.array(wager.ODDS)
STAKES_LOG: Final[Floats] = np.log(np.array(wager.STAKES))


class Wagers:
    """One `wager.Wager` for each rollout."""

    def __init__(self, rollouts: int) -> None:
        self.logs: Floats = np.tile(np.array(wager.UNPLAYED.logs), (rollouts, 1))
        self.trials: Floats = np.zeros(rollouts)
        self.openings = [UNPLACED] * rollouts  # few requests long: these are the product's own
        self.placed: Floats = np.zeros(rollouts)  # their wealth
        self.undecided = np.zeros(rollouts, bool)
        self.held_back = wager.HELD_BACK

    def play(self, of: Floats, gains: Floats) -> None:
        """Where `of` is 0 nothing happens."""
        with np.errstate(divide="ignore"):
            fresh = np.log(self._held(self.trials) - self._held(self.trials + of))
        self.logs = np.logaddexp(self.logs, fresh[:, None]) + gains
        self.trials = self.trials + of

    def hold_to(self, bad: Floats, of: Floats, limit: Floats, proof: float) -> None:
        """As `Wager.held_to`; where `of` is 0 nothing happens."""
        for row in np.flatnonzero((of > 0) & (self.trials == 0)):
            cost = price(limit[row], proof)
            rest = np.exp(self.logs[row, -1]) - cost / wager.STAKES[-1]
            if cost and rest > 0:
                self.logs[row, -1] = np.log(rest)
                self.openings[row] = Opening(cost, limit[row])
                self.undecided[row] = True
        self.play(of, against_limit(bad, of, limit))
        for row in np.flatnonzero((of > 0) & self.undecided):
            after = self.openings[row].after(int(bad[row]), int(of[row]), limit[row])
            self.openings[row], self.placed[row] = after, after.wealth
            self.undecided[row] = not after.decided

    def wealth_log(self) -> Floats:
        held = np.log(self._held(self.trials))
        top: Floats = np.maximum(self.logs.max(axis=1), held)
        staked = np.exp(self.logs + STAKES_LOG - top[:, None]).sum(axis=1)
        wealth: Floats = top + np.log(staked + np.exp(held - top) + self.placed * np.exp(-top))
        return wealth

    def _held(self, trials: Floats) -> Floats:
        held: Floats = self.held_back / np.sqrt(1 + trials / (wager.HALF_STAKED / 3))
        return held


def _tilted(share: Floats) -> Floats:
    column = share[:, None]
    return _believable(column * ODDS / (1 - column + column * ODDS))


def _believable(share: Floats) -> Floats:
    return np.clip(share, wager.RARE, 1 - wager.RARE)


def against_limit(bad: Floats, of: Floats, limit: Floats) -> Floats:
    worse, claimed = _tilted(limit), limit[:, None]
    gains: Floats = bad[:, None] * np.log(worse / claimed) + (of - bad)[:, None] * np.log(
        (1 - worse) / (1 - claimed)
    )
    return gains


def against_stable(
    canary_bad: Floats, canary_of: Floats, stable_bad: Floats, stable_of: Floats,
    tolerated: Floats, expected: Floats,
) -> Floats:  # fmt: skip
    worse = _tilted(tolerated)
    mine = (canary_of / np.maximum(canary_of + stable_of, 1))[:, None]
    theirs = expected[:, None]
    both = mine * worse + (1 - mine) * theirs
    gains: Floats = (
        canary_bad[:, None] * np.log(worse / both)
        + (canary_of - canary_bad)[:, None] * np.log((1 - worse) / (1 - both))
        + stable_bad[:, None] * np.log(theirs / both)
        + (stable_of - stable_bad)[:, None] * np.log((1 - theirs) / (1 - both))
    )
    return gains


class Contests:
    """One `contest.Contest` for each rollout."""

    def __init__(self, rollouts: int, start: contest.Contest = contest.UNFOUGHT) -> None:
        self.limit = Wagers(rollouts)
        self.stable = Wagers(rollouts)
        self.memory: Floats = np.tile(np.array([start.memory.bad, start.memory.of]), (rollouts, 1))
        self.canary: Floats = np.zeros((rollouts, 2))  # bad, of: of the block that has not ended
        self.other: Floats = np.zeros((rollouts, 2))
        self.all: Floats = np.zeros((rollouts, 2))

    def fight(
        self, canary: Floats, stable: Floats, limit: float | None, alone: Alone = Alone.LATER,
        proof: float = 0.0,
    ) -> None:  # fmt: skip
        """Shape: bad and of in columns, a row for each rollout."""
        self.canary = self.canary + canary
        self.other = self.other + stable
        self.all = self.all + canary
        silent = self.canary[:, 1] == 0
        both = ~silent & (self.other[:, 1] > 0)
        lonely = ~silent & ~both
        if alone is not Alone.AT_ONCE:
            lonely &= self.canary[:, 1] >= contest.LONELY
        judged = both if alone is Alone.DROPPED else both | lonely
        self._forget(silent & (self.other[:, 1] > contest.STALE), stable)
        expected = self._share()
        self._remember(self.other * both[:, None])
        played = self.canary * judged[:, None]
        bad, of = played[:, 0], played[:, 1]
        other = self.other * both[:, None]
        tolerated = np.maximum(limit or 0.0, expected)
        duel = against_stable(bad, of, other[:, 0], other[:, 1], tolerated, expected)
        self.stable.play(of * both, duel * both[:, None])
        if limit is not None:
            claimed = np.where(both, _believable(np.maximum(limit, self._share())), limit)
            self.limit.hold_to(bad, of, claimed, proof)
            self.stable.hold_to(bad * ~both, of * ~both, claimed, proof)
        self.canary = self.canary * (~(both | lonely))[:, None]
        self.other = self.other * (~both)[:, None]

    def proof_log(self) -> Floats:
        proof: Floats = np.minimum(self.limit.wealth_log(), self.stable.wealth_log())
        return proof

    def _forget(self, stale: NDArray[np.bool_], latest: Floats) -> None:
        column = stale[:, None]
        self._remember((self.other - latest) * column)
        self.other = np.where(column, latest, self.other)

    def _share(self) -> Floats:
        bad, of = self.memory[:, 0], self.memory[:, 1]
        return _believable((bad + contest.PRIOR_BAD) / (of + contest.PRIOR_OF))

    def _remember(self, seen: Floats) -> None:
        kept = np.maximum(1 - seen[:, 1] / contest.REMEMBERED, 0.0)
        self.memory = self.memory * kept[:, None] + seen


# --- slow requests -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timed:
    """Requests of all rollouts: of which rollout each one is, and the histogram cell it fell in."""

    rows: Ints
    cells: Ints


def cells_of(micros: Floats) -> Ints:
    """`histogram_cell` of many."""
    whole = np.maximum(micros, 1).astype(np.int64)
    shift = np.maximum(np.frexp(whole.astype(np.float64))[1] - 4, 0).astype(np.int64)
    return np.minimum(8 * shift + (whole >> shift), HISTOGRAM_CELLS - 1)


class Slownesses:
    """One `slowness.Slowness` for each rollout; histograms end at `CELLS`."""

    CELLS: Final = 208  # up to 4 minutes

    def __init__(self, rollouts: int, ratio: float) -> None:
        self.contests = Contests(rollouts, slowness.START)
        self.reference = np.zeros((rollouts, self.CELLS), np.int32)
        self.fast_stable: Ints = np.full(rollouts, -1)
        self.fast_canary: Ints = np.full(rollouts, -1)
        self._beyond: Ints = np.array([slowness.beyond(cell, ratio) for cell in range(self.CELLS)])
        bounds = np.array(slowness.BOUNDS_US)
        self._excess: Floats = bounds[self._beyond] / bounds[: self.CELLS]

    def time(self, canary: Timed, stable: Timed) -> None:
        rollouts = len(self.reference)
        known = self.fast_stable >= 0
        mine = _slow(canary, self.fast_canary, rollouts) * known[:, None]
        theirs = _slow(stable, self.fast_stable, rollouts) * known[:, None]
        self.contests.fight(mine, theirs, None, Alone.DROPPED)
        flat = stable.rows * self.CELLS + np.minimum(stable.cells, self.CELLS - 1)
        more = np.bincount(flat, minlength=self.reference.size).astype(np.int32)
        self.reference += more.reshape(self.reference.shape)
        total = self.reference.sum(axis=1)
        while (total > slowness.REFERENCE_MAX).any():
            full = total > slowness.REFERENCE_MAX
            self.reference[full] //= 2
            total = self.reference.sum(axis=1)
        self._aim(total)

    def _aim(self, total: Ints) -> None:
        closed = (self.contests.canary[:, 1] + self.contests.other[:, 1]) == 0
        at = np.flatnonzero(closed & (total >= slowness.REFERENCE_MIN))
        beyond = self.reference[at, ::-1].cumsum(axis=1, dtype=np.int32)
        most = (1 - slowness.QUANTILE) * total[at]
        fast = self.CELLS - 1 - (beyond > most[:, None]).argmax(axis=1)
        lower = self.CELLS - 1 - (beyond > 2 * most[:, None]).argmax(axis=1)
        better = (lower < fast) & (self._excess[fast - 1] < self._excess[fast])
        fast = fast - better
        self.fast_stable[at] = fast
        self.fast_canary[at] = self._beyond[fast]


def _slow(timed: Timed, fast: Ints, rollouts: int) -> Floats:
    bad = timed.cells > fast[timed.rows]
    return np.stack(
        [
            np.bincount(timed.rows, weights=bad, minlength=rollouts),
            np.bincount(timed.rows, minlength=rollouts).astype(np.float64),
        ],
        axis=1,
    )


def against_rate(events: Floats, time: Floats, rate: Floats) -> Floats:
    gains: Floats = events[:, None] * np.log(ODDS) - (ODDS - 1) * (rate * time)[:, None]
    return gains
