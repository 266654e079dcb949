"""Workers wake each other: room that one gives back may be what a request in another waits for.

Floor 3, I/O.
One eventfd for each row of the segment, from the supervisor: who lives in a row listens to its own
and rings the others'. Rung twice is heard once. A bell can be missed (who begins to wait is not
seen in that instant), so a worker looks for room with each of its beats as well.
"""

import os
from collections.abc import Sequence
from contextlib import suppress

from gateway.dataplane.plane import Plane
from gateway.state.shared import WAIT_BEGUN, WAIT_ENDED, Segment


class Bells:
    """Shape: descriptors[row] is that row's bell. Owner: the worker in `row`."""

    def __init__(
        self, plane: Plane, segment: Segment, row: int, descriptors: Sequence[int]
    ) -> None:
        self._segment = segment
        self._ledger = plane.ledger
        self._waitroom = plane.waitroom
        self._own = descriptors[row]
        self._descriptors = descriptors
        plane.ring = self._ring
        plane.loop.add_reader(self._own, self._heard)

    def _ring(self, section: int, slot: int, limit: int) -> None:
        """A lease on the slot was given back; those of the model who wait elsewhere may go, unless
        somebody here has taken its room. Cost: two cells for each other worker that lives."""
        segment, cells = self._segment, self._segment.cells
        for row in self._ledger.peers:
            at = segment.section_base(row, section)
            waits = cells[at + WAIT_BEGUN] != cells[at + WAIT_ENDED]
            if waits and self._ledger.in_flight(slot) < limit:
                with suppress(BlockingIOError):  # rung 2**64 times, and not heard yet
                    os.eventfd_write(self._descriptors[row], 1)

    def _heard(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._own)
        self._waitroom.wake_all()
