"""What a worker remembers of its own row: counters as it wrote them last, leases that it holds.

Floor 2, no I/O.
Owner: the ledger. A cell has one writer, which need not read it back: reading costs ten times an
attribute.
"""

from typing import Final

from gateway.records import Outcome, Stage
from gateway.state.shared import (
    ACCEPTED,
    ATTEMPTS,
    FIRST_BYTE_SUM_US,
    LATENCY_SUM_US,
    RECEIVED_BYTES,
    SENT_BYTES,
    SETTLED,
)

_SERVED: Final = int(Outcome.SERVED)
_FREE: Final = int(Stage.FREE)


class SlotRow:
    """One slot's counters. `at`: where its cells begin. `own`: leases held; `unsent`: of them,
    those that are connecting or sending."""

    __slots__ = (
        "accepted",
        "at",
        "first_byte_us",
        "latency_us",
        "own",
        "received_bytes",
        "sent_bytes",
        "served",
        "settled",
        "slot",
        "unsent",
    )

    def __init__(self, cells: memoryview, slot: int, at: int) -> None:
        self.slot = slot
        self.at = at
        self.own = self.unsent = 0
        self.accepted: int = cells[at + ACCEPTED]
        self.settled: int = cells[at + SETTLED]
        self.sent_bytes: int = cells[at + SENT_BYTES]
        self.received_bytes: int = cells[at + RECEIVED_BYTES]
        self.latency_us: int = cells[at + LATENCY_SUM_US]
        self.first_byte_us: int = cells[at + FIRST_BYTE_SUM_US]
        self.served: int = cells[at + ATTEMPTS + _SERVED]


class LeaseNote:
    """What its worker remembers of a lease. `counted_bytes`: of those received, the ones that the
    cells tell of. `drawn`: it counts in the first half of the row's cells."""

    __slots__ = ("began_ns", "counted_bytes", "drawn", "received_bytes", "row", "stage")

    def __init__(self, row: SlotRow) -> None:
        self.row = row
        self.stage = _FREE
        self.drawn = True
        self.began_ns = self.received_bytes = self.counted_bytes = 0
