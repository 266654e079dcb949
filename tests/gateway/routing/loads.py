"""Loads for tests of picking: a real ledger that holds as many leases as a test says."""

import os
from collections.abc import Sequence

from gateway.state.ledger import Ledger
from gateway.state.shared import Layout, Segment, create

ROWS = 2


def segment_for(slots: int, leases: int = 4096) -> Segment:
    fd = create(Layout(rows=ROWS, slots=slots, sections=2, leases=leases))
    segment = Segment(fd)
    os.close(fd)
    return segment


def loads(held: Sequence[int]) -> Ledger:
    """A worker that holds held[slot] leases on each slot, and is alone."""
    ledger = Ledger(segment_for(len(held), max(sum(held), 1) + 4096), 0)
    for slot, count in enumerate(held):
        hold(ledger, slot, count)
    return ledger


def hold(ledger: Ledger, slot: int, count: int = 1) -> list[int]:
    """The new leases."""
    return [ledger.open(slot, 1, 1, b"", 0) for _ in range(count)]


def idle(slots: int = 8) -> Ledger:
    return loads([0] * slots)
