"""The shared segment: counters and leases of every worker in one memory file.

Floor 2, no I/O but the mapping itself.
Owner: every cell is an int64 with one writer, the worker that owns the row (control after that
worker's death). Readers sum; reading costs no message. A gauge is never stored: in flight is
accepted - settled, so it cannot disagree with the ledger.

    header page | row 0 | row 1 | ...
    row = head | slots x slot cells | sections x section cells | leases x lease cells, whole pages

Counters are written by plain cell stores: `struct.pack_into` zeroes its target first, and a reader
in another process would see that zero (measured: 4-10 % of reads).
"""

import fcntl
import mmap
import os
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from operator import add
from typing import Final

from gateway.errors import REFUSALS_MAX
from gateway.records import OUTCOMES_MAX, Outcome, Stage

MAGIC: Final = 0x534C5543_00000002  # "SLUC", layout version in the low half
PAGE_CELLS: Final = mmap.PAGESIZE // 8
IDENTITY: Final = 8  # cell of the header page: a number that tells this segment from others; the
# first control stamps it, so that what a store says of slots is believed of this segment only

# --- head of a row ---
PID: Final = 0
GENERATION: Final = 1  # of the table this worker serves
BEAT_NS: Final = 2  # CLOCK_MONOTONIC of its last sign of life
CONNECTIONS: Final = 3  # client connections it holds
CONNECTIONS_ACCEPTED: Final = 4
POOLED: Final = 5  # idle instance connections it holds
BODIES_BYTES: Final = 6  # of request bodies held to read `model`
ANSWERED: Final = 7  # requests answered from the table itself: GET /v1/models
HEAD_CELLS: Final = 16

# --- histograms: log-linear, in microseconds, eight steps to the octave (12.5 %) ---
HISTOGRAM_CELLS: Final = 248  # up to 2**33 us, two and a half hours; longer ones: the last cell

# --- per slot: one incarnation of one instance ---
ACCEPTED: Final = 0
SETTLED: Final = 1
SENT_BYTES: Final = 2  # to the instance
RECEIVED_BYTES: Final = 3  # from it
LATENCY_SUM_US: Final = 4
FIRST_BYTE_SUM_US: Final = 5
ATTEMPTS: Final = 8  # + Outcome: how attempts ended
# + Outcome: how requests ended whose last attempt was here. SERVED is the same number as that of
# attempts, so nobody writes it: readers of totals find it filled in.
REQUESTS: Final = ATTEMPTS + OUTCOMES_MAX
SERVED: Final = int(Outcome.SERVED)
LATENCY: Final = 32
FIRST_BYTE: Final = LATENCY + HISTOGRAM_CELLS
# The same again for what must not sway the analysis of a rollout. Of ATTEMPTS and FIRST_BYTE: what
# weight has not drawn (a pin, a test header, another attempt after a failure), and requests that
# were answered 4xx; of LATENCY also what was not served. Readers of totals find these added to the
# former: that less this was drawn.
APART: Final = FIRST_BYTE + HISTOGRAM_CELLS
SLOT_CELLS: Final = 2 * APART

# --- per model: what has no slot. Section 0 belongs to requests that name no known model ---
WAIT_BEGUN: Final = 0  # waiting = begun - ended
WAIT_ENDED: Final = 1
WAIT_SUM_US: Final = 2
REPLAYS_SERVED: Final = 3
REPLAYS_FAILED: Final = 4
REFUSED: Final = 8  # + Refusal.cell
WAIT: Final = REFUSED + REFUSALS_MAX
SECTION_CELLS: Final = WAIT + HISTOGRAM_CELLS

# --- per lease: two cache lines, packed in this order ---
# The sequence stands at both ends: a reader believes a record only when both agree and are not 0,
# because no processor promises the order in which another sees the stores between (aarch64 least).
LEASE: Final = struct.Struct("=9q48sq")
BEGIN: Final = 0
REQUEST_ID: Final = 1
LEASE_SLOT: Final = 2
SECTION: Final = 3
CONNECTION: Final = 4  # local port of the instance connection; 0 while connecting
START_NS: Final = 5
LEASE_BYTES: Final = 6  # from the instance so far
STAGE: Final = 7
CLIENT_ID: Final = 9  # the first 48 bytes of the client's x-request-id, six cells
END: Final = 15
LEASE_CELLS: Final = 16
CLIENT_ID_BYTES: Final = 48


@dataclass(frozen=True, slots=True)
class Layout:
    rows: int
    slots: int
    sections: int
    leases: int  # per row

    @property
    def sections_at(self) -> int:
        """Cells from the start of a row."""
        return HEAD_CELLS + self.slots * SLOT_CELLS

    @property
    def leases_at(self) -> int:
        """Cells from the start of a row, on a cache line."""
        return -(-(self.sections_at + self.sections * SECTION_CELLS) // 16) * 16

    @property
    def row_cells(self) -> int:
        cells = self.leases_at + self.leases * LEASE_CELLS
        return -(-cells // PAGE_CELLS) * PAGE_CELLS

    @property
    def size_bytes(self) -> int:
        return (PAGE_CELLS + self.rows * self.row_cells) * 8


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One request in flight, as any process can read it."""

    row: int
    request_id: int
    client_request_id: str
    slot: int
    section: int
    connection: int
    start_ns: int
    bytes: int
    stage: Stage


def create(layout: Layout) -> int:
    """A descriptor of a new zeroed segment; sealed against resizing, so no reader meets SIGBUS.

    Cost: pages are touched when first written: a slot that is never used costs no memory.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("sluicegate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, layout.size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    else:  # macOS
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
        os.ftruncate(fd, layout.size_bytes)
    size = layout.size_bytes
    with mmap.mmap(fd, size) as memory, memoryview(memory) as raw, raw.cast("q") as cells:
        cells[0] = MAGIC
        for at, value in enumerate(astuple(layout), start=1):
            cells[at] = value
    return fd


def histogram_cell(micros: int) -> int:
    """Index of the histogram cell that `micros` counts in."""
    shift = max(micros.bit_length() - 4, 0)
    return min(8 * shift + (micros >> shift), HISTOGRAM_CELLS - 1)


def histogram_bound_us(cell: int) -> int:
    """The smallest number of microseconds that counts in the cell after `cell`."""
    if cell < 16:
        return cell + 1
    shift = cell // 8 - 1
    return (cell - 8 * shift + 1) << shift


class Segment:
    """A mapping of the segment: what control reads, and what a Ledger writes through.

    Raises: ValueError when another layout version wrote it.
    """

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        self.bytes = memoryview(self._memory)
        self.cells = self.bytes.cast("q")
        if self.cells[0] != MAGIC:
            raise ValueError(f"segment layout {self.cells[0]:#x}, this version reads {MAGIC:#x}")
        self.layout = Layout(*self.cells[1:5].tolist())
        # Sums over rows are taken for every instance again and again: what does not change is kept.
        self._rows = self.layout.rows
        self._row_cells = self.layout.row_cells
        self._slots_at = self.slot_base(0, 0)
        self._sections_at = self.section_base(0, 0)

    def base(self, row: int) -> int:
        return PAGE_CELLS + row * self.layout.row_cells

    def slot_base(self, row: int, slot: int) -> int:
        return self.base(row) + HEAD_CELLS + slot * SLOT_CELLS

    def section_base(self, row: int, section: int) -> int:
        return self.base(row) + self.layout.sections_at + section * SECTION_CELLS

    def in_flight(self, slot: int) -> int:
        """Leases on the slot over all rows; a race can only overstate it, never go below 0."""
        cells = self.cells
        at = self._slots_at + slot * SLOT_CELLS
        held = 0
        for _ in range(self._rows):
            held -= cells[at + SETTLED]  # settled first
            held += cells[at + ACCEPTED]
            at += self._row_cells
        return held

    def waiting(self, section: int) -> int:
        """Requests of the model that wait for room, over all rows."""
        at = self._sections_at + section * SECTION_CELLS
        held = 0
        for _ in range(self._rows):
            held -= self.cells[at + WAIT_ENDED]
            held += self.cells[at + WAIT_BEGUN]
            at += self._row_cells
        return held

    def slot_totals(self, slot: int) -> list[int]:
        """Every cell of the slot, summed over rows, and its first half whole. Shape: [SLOT_CELLS].

        Cost: some 20 us for each row that ever had a lease on the slot.
        """
        starts = [self.slot_base(row, slot) for row in range(self.layout.rows)]
        totals = self._sums([at for at in starts if self.cells[at + ACCEPTED]], SLOT_CELLS)
        drawn, apart = totals[:APART], totals[APART:]
        totals[:APART] = map(add, drawn, apart)
        totals[REQUESTS + SERVED] = totals[ATTEMPTS + SERVED]
        return totals

    def section_totals(self, section: int) -> list[int]:
        """Every cell of the model's section, summed over rows. Shape: [SECTION_CELLS]."""
        starts = [self.section_base(row, section) for row in range(self.layout.rows)]
        return self._sums(starts, SECTION_CELLS)

    def head(self, row: int) -> list[int]:
        base = self.base(row)
        return self.cells[base : base + HEAD_CELLS].tolist()

    def leases(self, row: int) -> Iterator[LeaseRecord]:
        """The leases the row holds; one that is being written just now is left out."""
        start = self.base(row) + self.layout.leases_at
        cells = self.cells
        for at in range(start, start + self.layout.leases * LEASE_CELLS, LEASE_CELLS):
            if cells[at + STAGE] == Stage.FREE:
                continue
            record = bytes(self.bytes[at * 8 : (at + LEASE_CELLS) * 8])
            begin, request, slot, section, port, start_ns, held, stage, _, client, end = (
                LEASE.unpack(record)
            )
            if begin != end or begin == 0 or cells[at + BEGIN] != begin or stage == Stage.FREE:
                continue
            name = client.rstrip(b"\0").decode("latin-1")
            yield LeaseRecord(row, request, name, slot, section, port, start_ns, held, Stage(stage))

    def _sums(self, starts: list[int], width: int) -> list[int]:
        sums = [0] * width
        for at in starts:
            sums = list(map(add, sums, self.cells[at : at + width].tolist()))
        return sums
