"""Counters of slots whose incarnation is over, folded into their version's retained base.

Floor 3, I/O: the store.   Owner: control, of the retained bases.
The base and the slot's release are one write: a control that dies in between finds the slot either
held and counted there, or free and counted here, and clears it before it is given out.
"""

from collections.abc import Callable

from gateway.fleet.reading import Document, Reading
from gateway.fleet.slots import NO_SLOT
from gateway.fleet.snapshot import FleetSnapshot
from gateway.state.settle import clear_slot
from gateway.state.shared import ACCEPTED, RECEIVED_BYTES, SLOT_CELLS, Segment
from gateway.store.base import Documents, Put, Remove, Store, StoreFailed


class Folds:
    """The retained bases, and what the segment says of an instance."""

    def __init__(
        self, segment: Segment, store: Store, number: int, fleet: Callable[[], FleetSnapshot]
    ) -> None:
        self._segment = segment
        self._store = store
        self._number = number  # of the segment
        self._fleet = fleet
        self._folding: set[tuple[str, str]] = set()  # one at a time adds to a base
        self.retained: dict[tuple[str, str], list[int]] = {}

    def restore(self, documents: Documents) -> tuple[str, ...]:
        """Take over bases that belong to this segment; a new one counts from 0, as its metrics do.

        A sentence for each that cannot be read: it is left out, and that version counts from 0.
        """
        reading = Reading({"retained": documents.get("retained", {})})
        found = reading.each("retained", lambda _, document: _base(document))
        for number, key, cells in found.values():
            if number == self._number:
                self.retained[key] = cells
        return tuple(reading.unread)

    def clear_free(self, held: frozenset[int]) -> None:
        """Slots that nobody holds count nothing: one may have been folded just before a crash."""
        for slot in set(range(self._segment.layout.slots)) - held:
            rows = range(self._segment.layout.rows)
            cells = self._segment.cells
            if any(cells[self._segment.slot_base(row, slot) + ACCEPTED] for row in rows):
                clear_slot(self._segment, slot)

    async def fold(self, slot: int, model: str, version: str) -> bool:
        """Fold it, if it is empty and no slot of its version is being folded."""
        key = (model, version)
        if key in self._folding or self._segment.in_flight(slot):
            return False
        self._folding.add(key)
        base = self.retained.get(key, [0] * SLOT_CELLS)
        cells = list(map(sum, zip(base, self._segment.slot_totals(slot), strict=True)))
        document = {"model": model, "version": version, "segment": self._number, "cells": cells}
        try:
            put = Put("retained", f"{model}:{version}", document)
            await self._store.write((put, Remove("slots", str(slot))))
        except StoreFailed:
            return False  # it is asked for again
        finally:
            self._folding.discard(key)
        self.retained[key] = cells
        clear_slot(self._segment, slot)
        return True

    def sample(self, name: str) -> tuple[int, int]:
        """Bytes received from the instance's incarnation, and leases that it holds."""
        seen = self._fleet().instances.get(name)
        if seen is None or seen.slot == NO_SLOT:
            return 0, 0
        rows = range(self._segment.layout.rows)
        starts = (self._segment.slot_base(row, seen.slot) for row in rows)
        received = sum(self._segment.cells[at + RECEIVED_BYTES] for at in starts)
        return received, self._segment.in_flight(seen.slot)


def _base(document: Document) -> tuple[int, tuple[str, str], list[int]]:
    """Segment, (model, version), and cells.

    Raises: ValueError and its like when that is not what it says.
    """
    cells = [int(cell) for cell in document["cells"]]
    if len(cells) != SLOT_CELLS:
        raise ValueError(f"{len(cells)} cells, not {SLOT_CELLS}")
    return int(document["segment"]), (str(document["model"]), str(document["version"])), cells
