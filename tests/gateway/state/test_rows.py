"""What a worker remembers begins with what its cells say."""

import os

from hypothesis import given
from hypothesis import strategies as st

from gateway.records import Outcome, Stage
from gateway.state.rows import LeaseNote, SlotRow
from gateway.state.shared import (
    ACCEPTED,
    ATTEMPTS,
    FIRST_BYTE_SUM_US,
    LATENCY_SUM_US,
    RECEIVED_BYTES,
    SENT_BYTES,
    SETTLED,
    Layout,
    Segment,
    create,
)

LAYOUT = Layout(rows=2, slots=3, sections=1, leases=2)
CELLS = {
    "accepted": ACCEPTED,
    "settled": SETTLED,
    "sent_bytes": SENT_BYTES,
    "received_bytes": RECEIVED_BYTES,
    "latency_us": LATENCY_SUM_US,
    "first_byte_us": FIRST_BYTE_SUM_US,
    "served": ATTEMPTS + Outcome.SERVED,
}


@given(st.permutations(range(100, 100 + len(CELLS))), st.integers(0, 1), st.integers(0, 2))
def test_a_row_goes_on_from_its_cells(values: list[int], row: int, slot: int) -> None:
    """A worker that took over a dead one's row counts further, and no slot's count is another's."""
    fd = create(LAYOUT)
    segment = Segment(fd)
    os.close(fd)
    at = segment.slot_base(row, slot)
    for cell, value in zip(CELLS.values(), values, strict=True):
        segment.cells[at + cell] = value
    remembered = SlotRow(segment.cells, slot, at)
    assert [getattr(remembered, name) for name in CELLS] == values
    assert (remembered.slot, remembered.at) == (slot, at)
    assert (remembered.own, remembered.unsent) == (0, 0)
    note = LeaseNote(remembered)
    assert (note.row, note.stage) == (remembered, Stage.FREE)
    assert (note.began_ns, note.received_bytes, note.counted_bytes) == (0, 0, 0)
