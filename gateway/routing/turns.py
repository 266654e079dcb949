"""Whose turn it is among the targets of a version: strict turns by weight.

Floor 1, pure.   Flow: table -> [turns] -> pick
Owner: the compiled version; what outlives its table is in Standstill.
A target's place in line is a number that grows by 1 / weight with each request: the least is next.
Whoever is full when its turn comes leaves the line and gets the next turn once it has room again;
it does not get the turns that it missed: all of them at once would be a burst.
Source: Waldspurger, Weihl, Stride Scheduling, 1995.
"""

from heapq import heapify, heappop, heappush, heapreplace


class Standstill:
    """Where the turns are between two tables: `places` by slot, and the last one that was served,
    where newcomers begin. At 0 they would get everything for a while."""

    __slots__ = ("places", "served")

    def __init__(self) -> None:
        self.places: dict[int, float] = {}
        self.served = 0.0


class Turns:
    """The line of a version's targets, which are known by their index.

    Shape: `_line` is a heap of (place, index); `full` has the places of those who left it by index,
    the longest there first.
    """

    __slots__ = ("_line", "_slots", "_standstill", "full")

    def __init__(self, slots: list[int], standstill: Standstill) -> None:
        served, old = standstill.served, standstill.places
        places = {slot: max(old.get(slot, served), served) for slot in slots}
        standstill.places = places
        self._slots = slots
        self._standstill = standstill
        self._line = [(places[slot], index) for index, slot in enumerate(slots)]
        heapify(self._line)
        self.full: dict[int, float] = {}

    def next(self) -> int:
        """Who is first in line; -1 when nobody is there."""
        return self._line[0][1] if self._line else -1

    def serve(self, stride: float) -> None:
        """The first one gets a request, and goes back by its stride.

        Cost: O(log n).
        """
        place, index = self._line[0]
        self._standstill.served = place
        place += stride
        self._standstill.places[self._slots[index]] = place
        heapreplace(self._line, (place, index))

    def leave(self) -> None:
        """The first one is full."""
        place, index = heappop(self._line)
        self.full[index] = place

    def look_again(self) -> int:
        """The one that was looked at least lately of those that are full; there must be one."""
        index = next(iter(self.full))
        self.full[index] = self.full.pop(index)
        return index

    def come_back(self, index: int) -> None:
        """It has room again: the next turn is its own, but no more than that."""
        place = max(self.full.pop(index), self._standstill.served)
        heappush(self._line, (place, index))

    def skip(self) -> tuple[float, int]:
        """Take the first one out of line for one request, until `rejoin`."""
        return heappop(self._line)

    def rejoin(self, skipped: list[tuple[float, int]]) -> None:
        for entry in skipped:
            heappush(self._line, entry)
