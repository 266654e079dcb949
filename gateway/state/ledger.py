"""One worker's row of the segment: leases opened and settled, and everything it counts.

Floor 2, no I/O.
Owner: one worker's event loop; nothing else writes the row while the worker lives.
A lease is opened when an instance is picked and settled when the last byte of the response has
left, not when its head arrives: a stream still open is still load. Lease ids are indices of
records, reused after settling; the request id tells two uses apart.
"""

import os
from collections.abc import Callable
from typing import Final

from gateway.errors import Refusal
from gateway.records import Outcome, Stage
from gateway.routing.pick import Loads
from gateway.state.rows import LeaseNote, SlotRow
from gateway.state.shared import (
    ACCEPTED,
    ANSWERED,
    APART,
    ATTEMPTS,
    BEAT_NS,
    CLIENT_ID_BYTES,
    CONNECTION,
    CONNECTIONS,
    CONNECTIONS_ACCEPTED,
    FIRST_BYTE,
    FIRST_BYTE_SUM_US,
    GENERATION,
    HEAD_CELLS,
    HISTOGRAM_CELLS,
    LATENCY,
    LATENCY_SUM_US,
    LEASE,
    LEASE_BYTES,
    LEASE_CELLS,
    PID,
    RECEIVED_BYTES,
    REFUSED,
    REPLAYS_FAILED,
    REPLAYS_SERVED,
    REQUESTS,
    SENT_BYTES,
    SETTLED,
    SLOT_CELLS,
    STAGE,
    WAIT,
    WAIT_BEGUN,
    WAIT_ENDED,
    WAIT_SUM_US,
    Segment,
    histogram_cell,
)

NO_LEASE = -1
NO_SLOT: Final = -1  # of a request that has no lease

# As plain integers: reading an enum member costs three times as much.
_FREE: Final = int(Stage.FREE)
_CONNECTING: Final = int(Stage.CONNECTING)
_SENDING: Final = int(Stage.SENDING)
_WAITING: Final = int(Stage.WAITING)
_STREAMING: Final = int(Stage.STREAMING)
_UNPLACED: Final = int(Stage.UNPLACED)
_SERVED: Final = int(Outcome.SERVED)


class Ledger(Loads):
    """The writing side of a row.

    `free` holds lease ids; an empty list means that the gateway is at its own bound. `on_settled`
    and `on_sent` are called with the slot when a lease on it was settled, and when none of its
    leases connects or sends any more.

    Shape: _rows[slot] and _notes[lease] are None until used.
    """

    __slots__ = (
        "_head",
        "_leases",
        "_notes",
        "_peer_bases",
        "_row",
        "_rows",
        "_segment",
        "_sequence",
        "_slots",
        "bytes",
        "cells",
        "free",
        "on_sent",
        "on_settled",
        "peers",
    )

    def __init__(self, segment: Segment, row: int) -> None:
        layout = segment.layout
        self._segment = segment
        self._row = row
        self.bytes = segment.bytes
        self.cells = segment.cells
        self._head = segment.base(row)
        self._slots = self._head + HEAD_CELLS
        self._leases, self._sequence = self._head + layout.leases_at, 0
        self._rows: list[SlotRow | None] = [None] * layout.slots
        self._notes: list[LeaseNote | None] = [None] * layout.leases
        self.peers: list[int] = []  # rows of other living workers
        self._peer_bases: list[int] = []  # where their slots begin
        self.free = list(range(layout.leases))
        self.on_settled: Callable[[int], None] | None = None
        self.on_sent: Callable[[int], None] | None = None
        self.cells[self._head + PID] = os.getpid()
        self.look_around()

    def reread(self) -> None:
        """A new table is in force: a slot that it names anew was begun again by control."""
        for row in self._rows:
            if row is not None and row.own == 0:  # no slot is reused that is not empty
                self._rows[row.slot] = None

    def open(
        self,
        slot: int,
        section: int,
        request_id: int,
        client_id: bytes,
        now_ns: int,
        stage: int = _CONNECTING,
        connection: int = 0,
        drawn: bool = True,
    ) -> int:
        """A new lease on the slot; NO_LEASE when every record is held. `drawn`: see APART."""
        if not self.free:
            return NO_LEASE
        lease = self.free.pop()
        self._sequence = sequence = self._sequence + 1
        LEASE.pack_into(
            self.bytes,
            (self._leases + lease * LEASE_CELLS) * 8,
            sequence,
            request_id,
            slot,
            section,
            connection,
            now_ns,
            0,
            stage,
            0,
            client_id[:CLIENT_ID_BYTES],
            sequence,
        )
        row = self._rows[slot]
        if row is None:
            row = self._rows[slot] = SlotRow(self.cells, slot, self._slots + slot * SLOT_CELLS)
        note = self._notes[lease]
        if note is None:
            note = self._notes[lease] = LeaseNote(row)
        note.row = row
        note.stage = stage
        note.began_ns = now_ns
        note.drawn = drawn
        note.received_bytes = note.counted_bytes = 0
        row.own += 1
        if stage < _WAITING:
            row.unsent += 1
        row.accepted = accepted = row.accepted + 1
        self.cells[row.at + ACCEPTED] = accepted
        return lease

    def list_unplaced(self, section: int, request_id: int, client_id: bytes, began_ns: int) -> int:
        """A record of a request that has no lease yet, so that it can be shown, cut, and named when
        this worker dies; NO_LEASE when every record is held. It counts nowhere."""
        if not self.free:
            return NO_LEASE
        record = self.free.pop()
        self._sequence = sequence = self._sequence + 1
        LEASE.pack_into(
            self.bytes,
            (self._leases + record * LEASE_CELLS) * 8,
            sequence,
            request_id,
            NO_SLOT,
            section,
            0,
            began_ns,
            0,
            _UNPLACED,
            0,
            client_id[:CLIENT_ID_BYTES],
            sequence,
        )
        return record

    def unlist(self, record: int) -> None:
        """The request has found its instance, or its end."""
        self.cells[self._leases + record * LEASE_CELLS + STAGE] = _FREE
        self.free.append(record)

    def sending(self, lease: int, connection: int) -> None:
        """The request goes out now, on the connection with this local port."""
        self.cells[self._leases + lease * LEASE_CELLS + CONNECTION] = connection
        self._advance(lease, _SENDING)

    def waiting(self, lease: int) -> None:
        """The whole request has been handed to the connection."""
        note = self._note(lease)
        if note.stage < _WAITING:
            self._advance(lease, _WAITING)
            self._sent(note.row)

    def streaming(self, lease: int, first_ns: int) -> None:
        """The response began and goes on. An early one may overtake the request."""
        note = self._note(lease)
        if note.stage < _WAITING:
            self._sent(note.row)
        self._advance(lease, _STREAMING)
        self._first_byte(note, first_ns)

    def set_apart(self, lease: int) -> None:
        """What comes of the lease says nothing of its version, though it was drawn."""
        self._note(lease).drawn = False

    def received(self, lease: int, count: int) -> None:
        """`count` more bytes have come from the instance; `account` tells the others."""
        note = self._notes[lease]
        assert note is not None, "no such lease"
        note.received_bytes += count

    def account(self, lease: int) -> None:
        """Bring the cells up to date with what the lease has received."""
        note = self._note(lease)
        new = note.received_bytes - note.counted_bytes
        if new:
            note.counted_bytes = note.received_bytes
            self.cells[self._leases + lease * LEASE_CELLS + LEASE_BYTES] = note.received_bytes
            row = note.row
            row.received_bytes += new
            self.cells[row.at + RECEIVED_BYTES] = row.received_bytes

    def settle(
        self, lease: int, outcome: int, now_ns: int, sent_bytes: int, first_ns: int = 0
    ) -> None:
        """Give the claim back; exactly once per lease, which the caller sees to.

        `first_ns`: when the response began, of one that `streaming` was not told of; 0 for none.
        """
        cells = self.cells
        note = self._notes[lease]
        assert note is not None, "no such lease"
        row = note.row
        at = row.at
        assert row.own > 0, "settled more leases than opened"
        if note.stage < _WAITING:
            self._sent(row)
        note.stage = _FREE
        cells[self._leases + lease * LEASE_CELLS + STAGE] = _FREE
        micros = (now_ns - note.began_ns) // 1000
        bits = micros.bit_length()  # histogram_cell, inlined: calls cost more
        cell = 8 * (bits - 4) + (micros >> (bits - 4)) if bits > 4 else micros
        if cell >= HISTOGRAM_CELLS:
            cell = HISTOGRAM_CELLS - 1
        served = outcome == _SERVED
        part = at if note.drawn else at + APART
        cells[(part if served else at + APART) + LATENCY + cell] += 1
        row.latency_us = total = row.latency_us + micros
        cells[at + LATENCY_SUM_US] = total
        if first_ns == now_ns and first_ns:  # a response of one read began when it ended
            cells[part + FIRST_BYTE + cell] += 1
            row.first_byte_us = total = row.first_byte_us + micros
            cells[at + FIRST_BYTE_SUM_US] = total
        elif first_ns:
            self._first_byte(note, first_ns)
        if sent_bytes:
            row.sent_bytes = total = row.sent_bytes + sent_bytes
            cells[at + SENT_BYTES] = total
        new = note.received_bytes - note.counted_bytes
        if new:
            row.received_bytes = total = row.received_bytes + new
            cells[at + RECEIVED_BYTES] = total
        if served and part == at:
            row.served = total = row.served + 1
            cells[at + ATTEMPTS + _SERVED] = total
        else:
            cells[part + ATTEMPTS + outcome] += 1
        row.settled = total = row.settled + 1
        cells[at + SETTLED] = total
        row.own -= 1
        self.free.append(lease)
        if self.on_settled is not None:
            self.on_settled(row.slot)

    def _note(self, lease: int) -> LeaseNote:
        note = self._notes[lease]
        assert note is not None, "no such lease"
        return note

    def _advance(self, lease: int, stage: int) -> None:
        self._note(lease).stage = stage
        self.cells[self._leases + lease * LEASE_CELLS + STAGE] = stage

    def _sent(self, row: SlotRow) -> None:
        row.unsent -= 1
        if self.on_sent is not None and row.unsent == 0:
            self.on_sent(row.slot)

    def _first_byte(self, note: LeaseNote, first_ns: int) -> None:
        row = note.row
        micros = (first_ns - note.began_ns) // 1000
        part = row.at if note.drawn else row.at + APART
        self.cells[part + FIRST_BYTE + histogram_cell(micros)] += 1
        row.first_byte_us += micros
        self.cells[row.at + FIRST_BYTE_SUM_US] = row.first_byte_us

    def look_around(self) -> None:
        """Find the rows of other living workers; as often as one may appear."""
        segment = self._segment
        rows = range(segment.layout.rows)
        self.peers = [r for r in rows if r != self._row and self.cells[segment.base(r) + PID]]
        self._peer_bases = [segment.slot_base(row, 0) for row in self.peers]

    def in_flight(self, slot: int) -> int:
        """Leases on the slot over all workers; a race can only overstate it, but for a worker that
        began after the last look around.

        Cost: an attribute, and two cells for each other worker that lives.
        """
        row = self._rows[slot]
        held = row.own if row is not None else 0
        for base in self._peer_bases:
            at = base + slot * SLOT_CELLS
            settled: int = self.cells[at + SETTLED]  # first
            held += self.cells[at + ACCEPTED] - settled
        return held

    def held(self, slot: int) -> int:
        """Leases that this worker holds on the slot."""
        row = self._rows[slot]
        return row.own if row is not None else 0

    def unsent(self, slot: int) -> int:
        """Of those, the ones that are connecting or sending."""
        row = self._rows[slot]
        return row.unsent if row is not None else 0

    def lease_bytes(self, lease: int) -> int:
        """Bytes that the lease's instance has sent so far."""
        return self._note(lease).received_bytes

    def waiting_for(self, section: int) -> int:
        """Requests of the model that wait for room, over all workers."""
        return self._segment.waiting(section)

    # -- requests, which may take several leases or none

    def ended(self, slot: int, outcome: int) -> None:
        """A client's request is over; its last attempt was on the slot.

        One that was served is counted by its attempt alone: there is exactly one such attempt.
        """
        if outcome != _SERVED:
            self.cells[self._slots + slot * SLOT_CELLS + REQUESTS + outcome] += 1

    def refused(self, section: int, refusal: Refusal) -> None:
        self.cells[self._segment.section_base(self._row, section) + REFUSED + refusal.cell] += 1

    def answered(self) -> None:
        """A client's request was answered from the table itself."""
        self.cells[self._head + ANSWERED] += 1

    def replayed(self, section: int, served: bool) -> None:
        """A request that had been sent again is over."""
        at = self._segment.section_base(self._row, section)
        self.cells[at + (REPLAYS_SERVED if served else REPLAYS_FAILED)] += 1

    def wait_began(self, section: int) -> None:
        self.cells[self._segment.section_base(self._row, section) + WAIT_BEGUN] += 1

    def wait_ended(self, section: int, waited_us: int) -> None:
        at = self._segment.section_base(self._row, section)
        self.cells[at + WAIT + histogram_cell(waited_us)] += 1
        self.cells[at + WAIT_SUM_US] += waited_us
        self.cells[at + WAIT_ENDED] += 1

    def beat(self, now_ns: int) -> None:
        self.cells[self._head + BEAT_NS] = now_ns

    def serves(self, generation: int) -> None:
        self.cells[self._head + GENERATION] = generation

    def connected(self) -> None:
        self.cells[self._head + CONNECTIONS] += 1
        self.cells[self._head + CONNECTIONS_ACCEPTED] += 1

    def disconnected(self) -> None:
        self.cells[self._head + CONNECTIONS] -= 1

    def gauge(self, cell: int, value: int) -> None:
        """Set one of the row's own gauges: POOLED, BODIES_BYTES."""
        self.cells[self._head + cell] = value
