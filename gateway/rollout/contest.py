"""Two versions compared by a share of bad requests, block by block.

Floor 1, pure.   Flow: counts -> [contest] -> analysis
A block ends as soon as it holds requests of both sides; when it ends depends on how many there
were, never on how they went. So what befell both in the same moments blames neither.
Two wagers, and only what both have proved is proof: that the canary is worse than a limit, and
that it is worse than stable was in the same blocks.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from gateway.rollout.wager import (
    NONE,
    UNPLAYED,
    Share,
    Wager,
    against_stable,
    believable,
)

REMEMBERED: Final = 200.0  # of stable's latest requests: what is expected of it next
PRIOR_BAD: Final = 0.3  # before anything was seen: one in a hundred, worth thirty requests
PRIOR_OF: Final = 30.0
LONELY: Final = 50  # of the canary's requests without one of stable's: stable serves no longer

STALE: Final = 100  # of stable's requests without one of the canary's


@dataclass(frozen=True, slots=True)
class Memory:
    """Stable's latest requests, older ones fading."""

    bad: float = 0.0
    of: float = 0.0

    @property
    def share(self) -> float:
        return believable((self.bad + PRIOR_BAD) / (self.of + PRIOR_OF))

    def after(self, seen: Share) -> "Memory":
        kept = max(1 - seen.of / REMEMBERED, 0.0)
        return Memory(self.bad * kept + seen.bad, self.of * kept + seen.of)


UNKNOWN: Final = Memory()


@dataclass(frozen=True, slots=True)
class Contest:
    limit: Wager = UNPLAYED
    stable: Wager = UNPLAYED
    memory: Memory = UNKNOWN
    canary_open: Share = NONE  # the block that has not ended
    stable_open: Share = NONE
    canary_all: Share = NONE  # since the contest began
    stable_all: Share = NONE

    @property
    def proof_log(self) -> float:
        """What both wagers have won."""
        return min(self.limit.wealth_log, self.stable.wealth_log)

    def to_json(self) -> list[Any]:
        return [
            [self.limit.to_json(), self.stable.to_json()],
            [self.memory.bad, self.memory.of],
            [[share.bad, share.of] for share in self._shares()],
        ]

    @staticmethod
    def from_json(told: list[Any]) -> "Contest":
        wagers, memory, shares = told
        limit, stable = (Wager.from_json(one) for one in wagers)
        return Contest(limit, stable, Memory(*memory), *(Share(*one) for one in shares))

    def _shares(self) -> tuple[Share, ...]:
        return self.canary_open, self.stable_open, self.canary_all, self.stable_all


UNFOUGHT: Final = Contest()


class Alone(Enum):
    """What becomes of a block in which stable was sent nothing."""

    DROPPED = "dropped"  # there is nothing to compare with
    AT_ONCE = "at_once"  # judged by the limit: stable's weight is 0
    LATER = "later"  # judged by the limit once it is clear that stable serves no longer


def fought(
    contest: Contest,
    canary: Share,
    stable: Share,
    limit: float | None,
    alone: Alone = Alone.LATER,
    proof: float = 0.0,
) -> Contest:
    """After a batch of both; `limit` None: stable is all there is to compare with.

    proof: the wealth that will be asked for; 0: nobody says.
    """
    contest = replace(
        contest,
        canary_open=contest.canary_open + canary,
        stable_open=contest.stable_open + stable,
        canary_all=contest.canary_all + canary,
        stable_all=contest.stable_all + stable,
    )
    if not contest.canary_open.of:
        return _waiting(contest, stable)
    if contest.stable_open.of:
        return _ended(contest, limit, proof)
    if alone is not Alone.AT_ONCE and contest.canary_open.of < LONELY:
        return contest
    if alone is Alone.DROPPED or limit is None:
        return replace(contest, canary_open=NONE)
    return _ended_alone(contest, limit, proof)


def _waiting(contest: Contest, latest: Share) -> Contest:
    """Stable alone: what it did long before the canary's next request is not the same moment."""
    if contest.stable_open.of <= STALE:
        return contest
    old = Share(contest.stable_open.bad - latest.bad, contest.stable_open.of - latest.of)
    return replace(contest, stable_open=latest, memory=contest.memory.after(old))


def _ended(contest: Contest, limit: float | None, proof: float) -> Contest:
    canary, stable = contest.canary_open, contest.stable_open
    expected = contest.memory.share
    memory = contest.memory.after(stable)
    duel = against_stable(canary, stable, max(limit or 0.0, expected), expected)
    ended = replace(
        contest,
        stable=contest.stable.after(canary.of, duel),
        memory=memory,
        canary_open=NONE,
        stable_open=NONE,
    )
    if limit is None:
        return ended
    claimed = believable(max(limit, memory.share))
    return replace(ended, limit=contest.limit.held_to(canary, claimed, proof))


def _ended_alone(contest: Contest, limit: float, proof: float) -> Contest:
    canary, claimed = contest.canary_open, believable(limit)
    return replace(
        contest,
        limit=contest.limit.held_to(canary, claimed, proof),
        stable=contest.stable.held_to(canary, claimed, proof),
        canary_open=NONE,
    )
