"""Counters of slots whose incarnation is over, folded into their version's retained base.

Floor 3, I/O: the store.   Owner: control, of the retained bases.
The base and the slot's release are one write: a control that dies in between finds the slot either
held and counted there, or free and counted here, and clears it before it is given out.
"""

from collections.abc import Callable
from operator import add, sub
from typing import Final

from gateway.fleet.reading import Document, Reading
from gateway.fleet.slots import NO_SLOT
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import BLAMES_INSTANCE, Outcome
from gateway.rollout.counts import Counts
from gateway.state.settle import clear_slot
from gateway.state.shared import (
    ACCEPTED,
    APART,
    ATTEMPTS,
    FIRST_BYTE,
    HISTOGRAM_CELLS,
    LATENCY,
    RECEIVED_BYTES,
    SLOT_CELLS,
    Segment,
)
from gateway.store.base import Documents, Put, Remove, Store, StoreFailed

NOTHING: Final = (0,) * SLOT_CELLS


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
        base = self.retained.get(key, NOTHING)
        cells = list(map(add, base, self._segment.slot_totals(slot)))
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

    def drawn(self, model: str, version: str) -> Counts:
        """What weight alone has sent to the version, and how that went, since the segment was made:
        it only grows until a take-over (FleetSnapshot.segment), from where it begins again at 0.
        `ttft` is of all whose response began, `latency` of those served.

        Cost: as `slot_totals`, for each incarnation that is not folded yet.
        """
        cells = list(self.retained.get((model, version), NOTHING))
        for slot, holder in self._fleet().book.holders.items():
            if holder.model == model and holder.version == version:
                cells = list(map(add, cells, self._segment.slot_totals(slot)))
        cells = list(map(sub, cells[:APART], cells[APART:]))
        return Counts(
            served=cells[ATTEMPTS + Outcome.SERVED],
            failed=sum(cells[ATTEMPTS + outcome] for outcome in BLAMES_INSTANCE),
            latency=tuple(cells[LATENCY : LATENCY + HISTOGRAM_CELLS]),
            ttft=tuple(cells[FIRST_BYTE : FIRST_BYTE + HISTOGRAM_CELLS]),
        )

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
