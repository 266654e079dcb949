"""Whose turn it is among the targets of a version: strict turns by weight.

Floor 1, pure.   Flow: table -> [turns] -> pick
Owner: the compiled version; what outlives its table is in Standstill.
A target's place in line is a number that grows by 1 / weight with each request: the least is next.
Whoever cannot take a request when its turn comes leaves the line, and gets the next turn as soon as
it can again; it does not get the turns that it missed: all of them at once would be a burst.
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

    Shape: `_line` is a heap of (place, index); `aside` has the places of those who left it, by
    index, the longest there first.
    """

    __slots__ = ("_line", "_slots", "_standstill", "aside")

    def __init__(self, slots: list[int], standstill: Standstill) -> None:
        served, old = standstill.served, standstill.places
        places = {slot: max(old.get(slot, served), served) for slot in slots}
        standstill.places = places
        self._slots = slots
        self._standstill = standstill
        self._line = [(places[slot], index) for index, slot in enumerate(slots)]
        heapify(self._line)
        self.aside: dict[int, float] = {}

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
        """The first one cannot take the request."""
        place, index = heappop(self._line)
        self.aside[index] = place

    def longest_aside(self) -> int:
        """Who left first of those who are aside; there must be one."""
        return next(iter(self.aside))

    def come_back(self, index: int) -> None:
        """Into the line again: if it can take requests, the next turn is its own, and no more."""
        place = max(self.aside.pop(index), self._standstill.served)
        heappush(self._line, (place, index))
