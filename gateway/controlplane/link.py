"""The door on which workers find control: tables and questions out, answers in.

Floor 3, I/O.   Flow: decide -> Tell -> [link] -> worker; worker -> [link] -> events -> decide
A connection belongs to nobody until it has said Hello. What a worker says becomes an event; nothing
is decided here, and nothing is remembered but who sits at which row.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from gateway.fleet.events import (
    BeatsWentStale,
    DialFailed,
    Event,
    LeasesCut,
    SlotEmptied,
    SlotSent,
    WorkerAcked,
    WorkerLinked,
    WorkerUnlinked,
)
from gateway.messages import (
    Ack,
    Empty,
    Hello,
    LineBuffer,
    Message,
    Publish,
    Sampled,
    Sent,
    Suspected,
    WereCut,
    encode,
)
from gateway.state.shared import BEAT_NS, PID, Segment

log = logging.getLogger(__name__)

UNREAD_MAX: Final = 64 << 20  # bytes a worker has not read: far above any table; then it is cut off
STALE_NS: Final = 500_000_000  # five beats missed: its queue is accepted by a neighbour
LOOK_S: Final = 0.1  # as often as workers beat


class WorkerLink(asyncio.Protocol):
    """One connection; `row` is -1 until its Hello."""

    def __init__(self, links: "WorkerLinks") -> None:
        self._links = links
        self._buffer = LineBuffer()
        self.transport: asyncio.Transport | None = None
        self.row = -1
        self.pid = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._links.open.add(self)

    def data_received(self, data: bytes) -> None:
        for message in self._buffer.feed(data):
            self._links.heard(self, message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.open.discard(self)
        self._links.lost(self)

    def send(self, line: bytes) -> None:
        assert self.transport is not None, "connected"
        if self.transport.get_write_buffer_size() > UNREAD_MAX:
            log.warning("worker does not read, link cut", extra={"row": self.row, "pid": self.pid})
            self.transport.abort()
            return
        self.transport.write(line)


class WorkerLinks:
    """Owner of every worker's connection."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self._rows: dict[int, WorkerLink] = {}
        self.open: set[WorkerLink] = set()
        self.on_sampled: Callable[[Sampled], None] | None = None  # the recorder, when there is one
        self._encoded: tuple[int, bytes] = (0, b"")  # one table goes to many

    def connection(self) -> WorkerLink:
        return WorkerLink(self)

    def tell(self, row: int, message: Message) -> None:
        """Send it, if the row is connected; if not, its next Hello starts over."""
        link = self._rows.get(row)
        if link is not None:
            link.send(self._line(message))

    def _line(self, message: Message) -> bytes:
        if not isinstance(message, Publish):
            return encode(message)
        generation = message.table.generation
        if self._encoded[0] != generation:
            self._encoded = (generation, encode(message))
        return self._encoded[1]

    def heard(self, link: WorkerLink, message: Message) -> None:
        now = asyncio.get_running_loop().time()
        row = link.row
        match message:
            case Hello(index, row, pid, generation, compiled, waits):
                link.row, link.pid = row, pid
                self._rows[row] = link
                self._post(WorkerLinked(index, row, pid, generation, now, compiled, waits))
            case _ if row < 0:
                raise ValueError(f"{type(message).__name__} before Hello")
            case Ack(generation):
                self._post(WorkerAcked(row, generation, now))
            case Sent(_, token):
                self._post(SlotSent(row, token, now))
            case Empty(_, token):
                self._post(SlotEmptied(row, token, now))
            case WereCut(token, lost):
                self._post(LeasesCut(row, token, lost, now))
            case Sampled():
                if self.on_sampled is not None:
                    self.on_sampled(message)
            case Suspected(slot, reason):
                self._post(DialFailed(slot, reason, now))
            case _:
                raise ValueError(f"{type(message).__name__} is not for control")

    def lost(self, link: WorkerLink) -> None:
        if self._rows.get(link.row) is link:
            del self._rows[link.row]
            now = asyncio.get_running_loop().time()
            self._post(WorkerUnlinked(link.row, link.pid, now))


async def watch_beats(
    segment: Segment, rows: Callable[[], dict[int, int]], post: Callable[[Event], None]
) -> None:
    """Say which rows' beats are stale, each time that set changes. `rows`: pid to row.

    The one place that looks again and again: a stopped process can tell nobody that it is.
    """
    loop = asyncio.get_running_loop()
    stale: frozenset[int] = frozenset()
    while True:
        await asyncio.sleep(LOOK_S)
        now_ns = int(loop.time() * 1_000_000_000)
        found = frozenset(
            row
            for row in rows().values()
            if segment.cells[segment.base(row) + PID]
            and now_ns - segment.cells[segment.base(row) + BEAT_NS] > STALE_NS
        )
        if found != stale:
            stale = found
            post(BeatsWentStale(stale, loop.time()))
