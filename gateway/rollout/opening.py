"""A bet on a version's first requests: that three of the first six fail.

Floor 0, pure.   Flow: [opening] -> wager
A wager on a share wins more than anybody needs: three failures of three bring it a dozen times
what three of six bring, and proof is proof. This bet is worth the same whichever of the six they
are, so no bet that proves as much by then costs less. Its wealth goes with the chance that it
comes true, reckoned at the share claimed: on average it stays what it is while failures have that
share, and falls while they have less.
"""

from dataclasses import dataclass, replace
from math import comb
from typing import Final

FIRST: Final = 6
FAILURES: Final = 3


@dataclass(frozen=True, slots=True)
class Opening:
    wealth: float = 0.0  # nothing: lost, or never placed
    claimed: float = 0.0
    bad: int = 0  # of the first requests
    of: int = 0

    @property
    def decided(self) -> bool:
        return not self.wealth or self.bad >= FAILURES or self.of >= FIRST

    def after(self, bad: int, of: int, claimed: float) -> "Opening":
        """After a batch. When something else is claimed of it, the bet is paid out as it stands.

        A batch that goes on beyond the first six hides which of its requests those were: then it
        is worth the mean over all orders.
        """
        if self.decided:
            return self
        if claimed != self.claimed:
            return replace(self, of=FIRST)
        need, left = FAILURES - self.bad, FIRST - self.of
        now = chance(need - bad, left - of, claimed) if of <= left else _drawn(need, left, bad, of)
        wealth = self.wealth * now / chance(need, left, claimed)
        return Opening(wealth, claimed, self.bad + bad, self.of + of)

    def to_json(self) -> list[float]:
        return [self.wealth, self.claimed, self.bad, self.of]


UNPLACED: Final = Opening()


def price(claimed: float, proof: float) -> float:
    """What it costs to hold `proof` if it comes true."""
    return proof * chance(FAILURES, FIRST, claimed)


def chance(need: int, of: int, share: float) -> float:
    """That so many or more of `of` requests fail."""
    return sum(
        comb(of, bad) * share**bad * (1 - share) ** (of - bad)
        for bad in range(max(need, 0), of + 1)
    )


def _drawn(need: int, left: int, bad: int, of: int) -> float:
    """That so many or more bad ones are among the first `left` of a batch."""
    ways = sum(comb(bad, one) * comb(of - bad, left - one) for one in range(need, left + 1))
    return ways / comb(of, left)
