"""What all connections of one worker share.

Floor 3, no I/O of its own.
Owner: the worker's event loop. `clock` is the one clock of this plane (CLOCK_MONOTONIC in
nanoseconds, as in the segment): deadlines are numbers of it, compared once a second by the sweep.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from gateway.messages import Suspected
from gateway.records import Bounds, RouteTable, Timeouts
from gateway.state.budget import Budget
from gateway.state.cell import Cell
from gateway.state.ledger import Ledger
from gateway.state.pool import Pool
from gateway.state.waitroom import Waitroom
from gateway.wire.compose import date_line
from gateway.wire.heads import RequestLine
from gateway.wire.lines import REQUEST_NAMES, RESPONSE_NAMES, LineMemo

NS: Final = 1_000_000_000
NUMBER_BITS: Final = 32  # requests of one worker's life, before its number's random part moves
HEX: Final = tuple(b"%02x" % number for number in range(256))


class Plane:
    """`closing`: answers say so, nothing new is accepted. `held_bytes`: bodies kept in memory.

    `clients_max`: client connections at once; a further one is reset. The four limits in bytes and
    nanoseconds are those of the table that every request asks for.
    """

    __slots__ = (
        "_number",
        "_number_begins",
        "bodies_max_bytes",
        "bounds",
        "budget",
        "cell",
        "client_idle_ns",
        "clients",
        "clients_max",
        "clock",
        "closing",
        "date",
        "dials",
        "head_max_bytes",
        "held_bytes",
        "ledger",
        "loop",
        "new_socket",
        "now",
        "on_left",
        "pool",
        "replay_max_bytes",
        "request_memo",
        "request_starts",
        "response_memo",
        "response_starts",
        "ring",
        "rng",
        "sampler",
        "suspect",
        "timeouts",
        "trace",
        "waitroom",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ledger: Ledger,
        rng: Random,
        clock: Callable[[], int],
        suspect: Callable[[Suspected], None],
        clients_max: int = sys.maxsize,
    ) -> None:
        self.loop = loop
        self.ledger = ledger
        self.rng = rng
        self.clock = clock
        self.suspect = suspect
        self.cell = Cell()
        self.pool = Pool()
        self.waitroom = Waitroom()
        self.new_socket: Callable[..., Any] = socket.socket  # for a dial
        self.budget = Budget()
        self.clients_max = clients_max
        self.clients: dict[Any, None] = {}  # in order of arrival
        self.dials: set[asyncio.Task[None]] = set()
        self.request_memo = LineMemo(REQUEST_NAMES)
        self.response_memo = LineMemo(RESPONSE_NAMES)
        self.request_starts: dict[bytes, RequestLine] = {}
        self.response_starts: dict[bytes, tuple[int, int, bytes]] = {}
        # The table's, one attribute away; all 0 before the first, when nothing is accepted.
        self.bounds = Bounds(0, 0, 0, 0, 0, 0, "abort")
        self.timeouts = Timeouts(0, 0, 0, 0, 0, 0, 0, 0)
        self.head_max_bytes = self.replay_max_bytes = self.bodies_max_bytes = 0
        self.client_idle_ns = 0
        self.now = clock()
        self.date = date_line(0)
        self.closing = False
        self.held_bytes = 0
        self.on_left: Callable[[], None] | None = None  # a client connection has ended
        self.sampler: Any = None  # a Sampler, while requests are sampled
        self.ring: Callable[[int, int, int], None] | None = None  # see `bells`
        # 31 random bits above 32 counted ones: unique over workers, lives and take-overs.
        self._number = rng.getrandbits(63 - NUMBER_BITS) << NUMBER_BITS
        self._number_begins = b"%014x" % (self._number >> 8)  # all digits but the last two
        self.trace = b"%016x" % (rng.getrandbits(63) | 1)  # first half of the traces we start

    def publish(self, table: RouteTable) -> bool:
        """Serve this table from now on; False for one that is older than the one in force."""
        if not self.cell.publish(table, self.tick()):
            return False
        self.ledger.reread()
        self.bounds = table.bounds
        self.timeouts = table.timeouts
        self.head_max_bytes = table.bounds.head_max_bytes
        self.replay_max_bytes = table.bounds.replay_max_bytes
        self.bodies_max_bytes = table.bounds.route_body_total_bytes
        self.client_idle_ns = int(table.timeouts.client_idle_s * NS)
        self.pool.idle_ns = int(table.timeouts.pool_idle_s * NS)
        return True

    def tick(self) -> int:
        """The time. `now` is the last one that was read: enough for limits of seconds."""
        self.now = now = self.clock()
        return now

    def next_number(self) -> int:
        """The gateway's id of a new request; never 0, below 2**63 (a signed cell)."""
        self._number = number = self._number + 1
        if number & 0xFF == 0:
            self._number_begins = b"%014x" % (number >> 8)
        return number

    def number_text(self) -> bytes:
        """The last id in hexadecimal, 16 digits."""
        return self._number_begins + HEX[self._number & 0xFF]

    def start(self, dial: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Dialling by name is the one thing that needs a task; it is kept until it ends."""
        task = self.loop.create_task(dial)
        self.dials.add(task)
        task.add_done_callback(self.dials.discard)
        return task

    def freed(self, slot: int) -> None:
        """A lease on the slot was given back: whoever waits for its version may go."""
        if self.waitroom.size and self.cell.table is not None:
            owner = self.cell.table.owners.get(slot)
            if owner is not None:
                self.waitroom.wake((owner[0].model, owner[1].name))
