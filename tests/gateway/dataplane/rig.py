"""The data plane without sockets: real connections' objects on fake transports and a fake clock.

A test plays both ends: it feeds bytes to a client's transport and reads what went to the instance.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from gateway.dataplane.accept import ClientConnection
from gateway.dataplane.instance import InstanceConnection
from gateway.dataplane.plane import Plane
from gateway.dataplane.stages import SETTLED
from gateway.dataplane.sweep import sweep
from gateway.errors import REFUSALS
from gateway.messages import Suspected
from gateway.records import Outcome, RouteTable, Stage
from gateway.state.ledger import NO_LEASE, Ledger
from gateway.state.shared import (
    ACCEPTED,
    ANSWERED,
    REFUSED,
    REQUESTS,
    Layout,
    Segment,
    create,
)
from gateway.state.shared import (
    SETTLED as SETTLED_CELL,
)

NS: Final = 1_000_000_000
LAYOUT: Final = Layout(rows=2, slots=8, sections=3, leases=64)


class FakeSocket:
    """Of a transport, or of a dial. `code`: what connecting has come to so far. `codes` and `said`
    are by port, as FakeLoop has them."""

    def __init__(
        self, codes: dict[int, int], said: dict[int, bytes | OSError], takes: int = 0
    ) -> None:
        self.options: list[tuple[Any, ...]] = []
        self.open = True
        self.sent = b""
        self._takes = takes
        self.code = 0
        self.port = 0
        self._codes = codes
        self._said = said

    def setsockopt(self, *option: Any) -> None:
        self.options.append(option)

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def connect_ex(self, address: tuple[str, int]) -> int:
        """Under way at first, as on this machine too."""
        if not self.port:
            self.port = address[1]
            self.code = self._codes.get(self.port, 0)
            return errno.EINPROGRESS
        return self.code

    def getsockopt(self, level: int, option: int) -> int:
        return self.code

    def recv(self, size: int, flags: int) -> bytes:
        assert self.open
        said = self._said.get(self.port, BlockingIOError())
        if isinstance(said, OSError):
            raise said
        return said

    def getsockname(self) -> tuple[str, int]:
        return ("10.0.0.1", 77)

    def send(self, data: bytes) -> int:
        assert self.open
        if not self._takes:
            raise BlockingIOError
        self.sent += data[: self._takes]
        return min(len(data), self._takes)

    def detach(self) -> None:
        assert self.open
        self.open = False

    close = detach


class FakeTransport:
    """A transport that keeps what is written. `closed`: "" | closed | aborted."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.out = b""
        self.closed = ""
        self.reading = True
        self.eof_written = False
        self.socket = FakeSocket({}, {})
        self.lost = False
        self.full = False  # the next write fills the buffer

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("10.0.0.9", 5), "sockname": ("10.0.0.1", 77), "socket": self.socket}[
            name
        ]

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.out += data
        if self.full:
            self.full = False
            self.protocol.pause_writing()

    def take(self) -> bytes:
        taken, self.out = self.out, b""
        return taken

    def is_closing(self) -> bool:
        return bool(self.closed)

    def close(self) -> None:
        self.closed = self.closed or "closed"

    def abort(self) -> None:
        self.closed = "aborted"

    def write_eof(self) -> None:
        self.eof_written = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    # -- what the other end does

    def feed(self, data: bytes) -> None:
        assert self.reading
        if not self.closed:
            self.protocol.data_received(data)

    def feed_eof(self) -> None:
        if not self.closed and not self.protocol.eof_received():
            self.close()
            self.end()

    def end(self, exc: Exception | None = None) -> None:
        """The connection is gone; once."""
        if not self.lost:
            self.lost = True
            self.close()
            self.protocol.connection_lost(exc)


class FakeLoop:
    """Connects at once, or refuses ports, or leaves dials waiting. `codes`: other errors, by port;
    `said`: what the other end of a port does before it is sent anything."""

    def __init__(self) -> None:
        self.refused: set[int] = set()
        self.no_descriptor: set[int] = set()  # ports that we have no descriptor to dial with
        self.stuck: set[int] = set()
        self.codes: dict[int, int] = {}
        self.said: dict[int, bytes | OSError] = {}
        self.takes = 1 << 20  # bytes of each write that a socket takes
        self.takes_no_socket = False
        self.instances: list[FakeTransport] = []  # in order of connecting
        self.sockets: list[FakeSocket] = []  # of dials to addresses
        self.writers: dict[FakeSocket, Callable[[], None]] = {}
        self._loop = asyncio.get_running_loop()

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._loop.create_task(coroutine)

    def call_soon(self, function: Callable[..., None], *given: Any) -> None:
        self._loop.call_soon(function, *given)

    def new_socket(self, family: int, kind: int, protocol: int) -> FakeSocket:
        codes = dict.fromkeys(self.stuck, errno.EINPROGRESS)
        codes |= dict.fromkeys(self.refused, errno.ECONNREFUSED)
        codes |= dict.fromkeys(self.no_descriptor, errno.EMFILE)
        self.sockets.append(sock := FakeSocket({**codes, **self.codes}, self.said, self.takes))
        return sock

    def add_writer(self, sock: FakeSocket, function: Callable[[], None]) -> None:
        self.writers[sock] = function

    def remove_writer(self, sock: FakeSocket) -> None:
        del self.writers[sock]

    def made(self, protocol: InstanceConnection) -> FakeTransport:
        return FakeTransport(protocol)

    def shake_hands(self, code: int) -> None:
        """The handshake of the only dial that waits comes to this."""
        ((sock, tell),) = self.writers.items()
        sock.code = code
        tell()

    async def create_connection(
        self,
        factory: Callable[[], InstanceConnection],
        host: str = "",
        port: int = 0,
        sock: FakeSocket | None = None,
    ) -> tuple[FakeTransport, InstanceConnection]:
        assert (host == "") == (sock is not None)
        if self.takes_no_socket:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        protocol = factory()
        transport = self.made(protocol)
        if sock is not None:
            transport.out = sock.sent
        made = self._loop.create_future()

        def connect() -> None:
            self.instances.append(transport)
            protocol.connection_made(transport)
            transport.reading = True  # as uvloop has it
            made.set_result(None)

        self._loop.call_soon(connect)
        await made
        return transport, protocol


class Rig:
    def __init__(self, published: RouteTable, leases: int = 64) -> None:
        self.fd = create(Layout(LAYOUT.rows, LAYOUT.slots, LAYOUT.sections, leases))
        self.segment = Segment(self.fd)
        self.ledger = Ledger(self.segment, 0)
        self.now = NS
        self.suspected: list[Suspected] = []
        loop: Any = FakeLoop()
        self.plane = Plane(loop, self.ledger, Random(7), self.clock, self.suspected.append)
        self.use(loop)
        self.publish(published)

    def use(self, loop: FakeLoop) -> None:
        self.loop = loop
        stands_in: Any = loop
        self.plane.loop = stands_in
        self.plane.new_socket = loop.new_socket

    def clock(self) -> int:
        return self.now

    def publish(self, published: RouteTable) -> None:
        assert self.plane.publish(published)
        for waiter in self.plane.waitroom.everyone():
            waiter.reviewed()
        self.plane.waitroom.wake_all()

    def client(self) -> FakeTransport:
        protocol = ClientConnection(self.plane)
        transport = FakeTransport(protocol)
        protocol.connection_made(transport)
        return transport

    def later(self, seconds: float) -> None:
        """Time passes, and the sweep comes round every second of it."""
        end = self.now + int(seconds * NS)
        while self.now < end:
            self.now = min(self.now + NS, end)
            sweep(self.plane, self.now)

    async def dialled(self) -> None:
        """Dials that can end have ended."""
        for _ in range(4):  # a task's start, the connection, its callback, one to spare
            await asyncio.sleep(0)

    async def asked(self, request: bytes) -> tuple[FakeTransport, FakeTransport]:
        """A client whose request is out to an instance: both ends."""
        client = self.client()
        client.feed(request)
        await self.dialled()
        return client, self.busy(client)

    def busy(self, client: FakeTransport) -> FakeTransport:
        """The instance connection that carries the client's request."""
        exchange = client.protocol.exchange
        (carrying,) = [i for i in self.loop.instances if i.protocol.listener is exchange]
        return carrying

    def outcomes(self) -> dict[str, int]:
        """How requests ended, by outcome or refusal; those that none ended in are left out."""
        counts: dict[str, int] = {}
        for slot in range(self.segment.layout.slots):
            totals = self.segment.slot_totals(slot)
            for outcome in Outcome:
                name = outcome.name.lower()
                counts[name] = counts.get(name, 0) + totals[REQUESTS + outcome]
        for section in range(self.segment.layout.sections):
            totals = self.segment.section_totals(section)
            for code, row in REFUSALS.items():
                counts[code] = counts.get(code, 0) + totals[REFUSED + row.cell]
        counts["answered"] = self.segment.head(0)[ANSWERED]
        return {name: count for name, count in counts.items() if count}

    def check(self) -> None:
        """What must hold at every moment."""
        live = [c.exchange for c in self.plane.clients if c.exchange.stage != SETTLED]
        held = sum(1 for exchange in live if exchange.claim.held)
        totals = [self.segment.slot_totals(slot) for slot in range(self.segment.layout.slots)]
        assert sum(t[ACCEPTED] - t[SETTLED_CELL] for t in totals) == held
        stages = [lease.stage for lease in self.segment.leases(0)]
        assert len(stages) == held + stages.count(Stage.UNPLACED)
        listed = [exchange.claim for exchange in live if exchange.claim.listed != NO_LEASE]
        assert stages.count(Stage.UNPLACED) == len(listed)
        assert all(claim.unplaced and not claim.held for claim in listed)
        assert self.plane.waitroom.size == sum(1 for exchange in live if exchange.claim.waits)
        assert self.segment.waiting(1) == self.plane.waitroom.size
        assert self.plane.held_bytes == sum(exchange.body.size for exchange in live)
        routes = self.plane.cell.read().tallies.values()
        assert sum(tally.held for tally in routes) == held

    def close(self) -> None:
        """No dial has left a socket behind."""
        assert [sock for sock in self.loop.sockets if sock.open] == list(self.loop.writers)
        os.close(self.fd)


def post(body: bytes = b'{"model":"m"}', *fields: bytes, path: bytes = b"/v1/completions") -> bytes:
    lines = [b"POST %s HTTP/1.1" % path, b"host: g", b"content-length: %d" % len(body), *fields]
    return b"\r\n".join([*lines, b"", body])


def get(path: bytes = b"/x", *fields: bytes) -> bytes:
    return b"\r\n".join([b"GET %s HTTP/1.1" % path, b"host: g", *fields, b"", b""])


def ok(body: bytes = b"fine", *fields: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"content-length: %d" % len(body), *fields]
    return b"\r\n".join([*lines, b"", body])


def code_of(answer: bytes) -> str:
    """The code of an answer of our own, "" for one that was relayed."""
    head = answer.partition(b"\r\n\r\n")[0]
    found = [line for line in head.split(b"\r\n") if line.startswith(b"x-sluicegate-error: ")]
    return found[0].partition(b": ")[2].decode() if found else ""


def status_of(answer: bytes) -> int:
    return int(answer[9:12])
