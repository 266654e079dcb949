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
from gateway.state.shared import (
    ACCEPTED,
    ANSWERED,
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
    LEASE_SLOT,
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
    START_NS,
    WAIT,
    WAIT_BEGUN,
    WAIT_ENDED,
    WAIT_SUM_US,
    Segment,
)

NO_LEASE = -1

# As plain integers: reading an enum member costs three times as much.
_FREE: Final = int(Stage.FREE)
_CONNECTING: Final = int(Stage.CONNECTING)
_SENDING: Final = int(Stage.SENDING)
_WAITING: Final = int(Stage.WAITING)
_STREAMING: Final = int(Stage.STREAMING)


class Ledger:
    """The writing side of a row.

    `free` holds lease ids; an empty list means that the gateway is at its own bound. `on_settled`
    is called with the slot after each settling: whoever waits for room, or for empty, hangs there.
    """

    __slots__ = (
        "_head",
        "_leases",
        "_row",
        "_segment",
        "_sequence",
        "_slots",
        "_unsent",
        "bytes",
        "cells",
        "free",
        "in_flight",
        "on_sent",
        "on_settled",
    )

    def __init__(self, segment: Segment, row: int) -> None:
        self._segment = segment
        self._row = row
        self.bytes = segment.bytes
        self.cells = segment.cells
        self._head = segment.base(row)
        self._slots = self._head + HEAD_CELLS
        self._leases = self._head + segment.layout.leases_at
        self._sequence = 0
        self._unsent = [0] * segment.layout.slots  # leases that are connecting or sending
        self.free = list(range(segment.layout.leases))
        self.in_flight = segment.in_flight  # leases on a slot over all workers
        self.on_settled: Callable[[int], None] | None = None
        self.on_sent: Callable[[int], None] | None = None
        self.cells[self._head + PID] = os.getpid()

    # -- leases

    def open(self, slot: int, section: int, request_id: int, client_id: bytes, now_ns: int) -> int:
        """A new lease on the slot, CONNECTING; NO_LEASE when every record is held."""
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
            0,
            now_ns,
            0,
            _CONNECTING,
            0,
            client_id[:CLIENT_ID_BYTES],
            sequence,
        )
        self._unsent[slot] += 1
        self.cells[self._slots + slot * SLOT_CELLS + ACCEPTED] += 1
        return lease

    def sending(self, lease: int, connection: int) -> None:
        """The request goes out now, on the connection with this local port."""
        at = self._leases + lease * LEASE_CELLS
        self.cells[at + CONNECTION] = connection
        self.cells[at + STAGE] = _SENDING

    def waiting(self, lease: int) -> None:
        """The whole request has been handed to the connection."""
        at = self._leases + lease * LEASE_CELLS
        cells = self.cells
        if cells[at + STAGE] < _WAITING:
            cells[at + STAGE] = _WAITING
            self._sent(cells[at + LEASE_SLOT])

    def streaming(self, lease: int, now_ns: int) -> None:
        """The first byte of the response has come. An early answer may overtake the request."""
        at = self._leases + lease * LEASE_CELLS
        cells = self.cells
        slot = cells[at + LEASE_SLOT]
        if cells[at + STAGE] < _WAITING:
            self._sent(slot)
        cells[at + STAGE] = _STREAMING
        micros = (now_ns - cells[at + START_NS]) // 1000
        base = self._slots + slot * SLOT_CELLS
        shift = max(micros.bit_length() - 4, 0)  # histogram_cell, inlined: a call costs more
        cells[base + FIRST_BYTE + min(8 * shift + (micros >> shift), HISTOGRAM_CELLS - 1)] += 1
        cells[base + FIRST_BYTE_SUM_US] += micros

    def received(self, lease: int, count: int) -> None:
        """`count` more bytes have come from the instance."""
        at = self._leases + lease * LEASE_CELLS
        cells = self.cells
        cells[at + LEASE_BYTES] += count
        cells[self._slots + cells[at + LEASE_SLOT] * SLOT_CELLS + RECEIVED_BYTES] += count

    def settle(self, lease: int, outcome: int, now_ns: int, sent_bytes: int) -> None:
        """Give the claim back; exactly once per lease, which the caller sees to."""
        at = self._leases + lease * LEASE_CELLS
        cells = self.cells
        slot = cells[at + LEASE_SLOT]
        if cells[at + STAGE] < _WAITING:
            self._sent(slot)
        cells[at + STAGE] = _FREE
        base = self._slots + slot * SLOT_CELLS
        micros = (now_ns - cells[at + START_NS]) // 1000
        shift = max(micros.bit_length() - 4, 0)
        cells[base + LATENCY + min(8 * shift + (micros >> shift), HISTOGRAM_CELLS - 1)] += 1
        cells[base + LATENCY_SUM_US] += micros
        cells[base + SENT_BYTES] += sent_bytes
        cells[base + ATTEMPTS + outcome] += 1
        cells[base + SETTLED] += 1
        assert cells[base + SETTLED] <= cells[base + ACCEPTED], "settled more leases than opened"
        self.free.append(lease)
        if self.on_settled is not None:
            self.on_settled(slot)

    def _sent(self, slot: int) -> None:
        self._unsent[slot] -= 1
        if self.on_sent is not None and self._unsent[slot] == 0:
            self.on_sent(slot)

    # -- what is read back

    def held(self, slot: int) -> int:
        """Leases that this worker holds on the slot."""
        at = self._slots + slot * SLOT_CELLS
        return self.cells[at + ACCEPTED] - self.cells[at + SETTLED]

    def unsent(self, slot: int) -> int:
        """Of those, the ones that are connecting or sending."""
        return self._unsent[slot]

    def lease_bytes(self, lease: int) -> int:
        """Bytes that the lease's instance has sent so far."""
        return self.cells[self._leases + lease * LEASE_CELLS + LEASE_BYTES]

    def waiting_for(self, section: int) -> int:
        """Requests of the model that wait for room, over all workers."""
        return self._segment.waiting(section)

    # -- requests, which may take several leases or none

    def ended(self, slot: int, outcome: Outcome) -> None:
        """A client's request is over; its last attempt was on the slot."""
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
        shift = max(waited_us.bit_length() - 4, 0)
        self.cells[at + WAIT + min(8 * shift + (waited_us >> shift), HISTOGRAM_CELLS - 1)] += 1
        self.cells[at + WAIT_SUM_US] += waited_us
        self.cells[at + WAIT_ENDED] += 1

    # -- the row's head

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
