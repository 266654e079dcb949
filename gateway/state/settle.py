"""A dead worker's row: what it held is lost, by name; and slots folded when nobody counts in them.

Floor 2, no I/O.
Owner: control, and only for rows without a process and slots that no table names: every cell still
has one writer. After this, accepted = settled holds again in the row, and its counters go on.
"""

from gateway.messages import LostRequest
from gateway.records import Outcome, Stage
from gateway.state.shared import (
    ACCEPTED,
    ATTEMPTS,
    BEGIN,
    BODIES_BYTES,
    CONNECTIONS,
    END,
    GENERATION,
    LEASE_CELLS,
    PID,
    POOLED,
    REQUESTS,
    SETTLED,
    SLOT_CELLS,
    STAGE,
    WAIT_BEGUN,
    WAIT_ENDED,
    Segment,
)

NS = 1_000_000_000


def losses(segment: Segment, row: int, now_ns: int) -> tuple[LostRequest, ...]:
    """Every request that died with the row's worker. The row still holds them: they are named
    before it is settled, so that a control that dies in between leaves them to the next."""
    return tuple(
        LostRequest(
            request_id=lease.request_id,
            client_request_id=lease.client_request_id,
            slot=lease.slot,
            stage=lease.stage.name.lower(),
            age_s=max(0, now_ns - lease.start_ns) / NS,
            bytes=lease.bytes,
        )
        for lease in segment.leases(row)
    )


def settle_row(segment: Segment, row: int) -> None:
    """The row holds nothing afterwards."""
    cells = segment.cells
    start = segment.base(row) + segment.layout.leases_at
    for at in range(start, start + segment.layout.leases * LEASE_CELLS, LEASE_CELLS):
        if cells[at + STAGE] != Stage.FREE:
            cells[at + STAGE] = Stage.FREE
            cells[at + BEGIN] = cells[at + END] = 0
    for slot in range(segment.layout.slots):
        at = segment.slot_base(row, slot)
        held = cells[at + ACCEPTED] - cells[at + SETTLED]  # half-written leases too
        if held:
            cells[at + ATTEMPTS + Outcome.LOST] += held
            cells[at + REQUESTS + Outcome.LOST] += held
            cells[at + SETTLED] += held
    for section in range(segment.layout.sections):
        at = segment.section_base(row, section)
        if cells[at + WAIT_BEGUN] != cells[at + WAIT_ENDED]:
            cells[at + WAIT_ENDED] = cells[at + WAIT_BEGUN]
    for cell in (PID, GENERATION, CONNECTIONS, POOLED, BODIES_BYTES):
        cells[segment.base(row) + cell] = 0


def unsettled(segment: Segment) -> frozenset[int]:
    """Rows that a process wrote and nobody settled."""
    rows = range(segment.layout.rows)
    return frozenset(row for row in rows if segment.cells[segment.base(row) + PID])


def clear_slot(segment: Segment, slot: int) -> None:
    """Begin the slot's counters again, in every row."""
    for row in range(segment.layout.rows):
        at = segment.slot_base(row, slot)
        if any(segment.cells[at : at + SLOT_CELLS].tolist()):
            for cell in range(at, at + SLOT_CELLS):
                segment.cells[cell] = 0
