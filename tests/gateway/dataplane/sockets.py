"""A plane on real sockets: the test is its clients and its instances, byte for byte.

The loop is uvloop, as in a worker; the clock is the test's. What a peer sends is in the kernel when
`send` returns, so two peers can act in one instant, before the gateway gets to look.
"""

import asyncio
import contextlib
import functools
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, ParamSpec

import uvloop

from gateway.dataplane.accept import ClientConnection
from gateway.records import Bounds, Timeouts
from tests.gateway.dataplane.rig import Rig
from tests.gateway.plain import BOUNDS, TIMEOUTS, route, table, target, version

PATIENCE_S: Final = 300.0  # for what takes a millisecond on a machine with nothing else to do
READ_BYTES: Final = 1 << 18
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: closing sends RST

P = ParamSpec("P")


def on_uvloop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The test on the loop that workers run on."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*args, **kwargs))

    return run


class Peer:
    """The other end of one of the gateway's connections. `received`: all that has been read."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.received = b""
        self._taken = 0
        self.ended = ""  # eof | reset

    def send(self, data: bytes) -> None:
        """At once, for what a socket's buffer holds."""
        assert self.sock.send(data) == len(data)

    async def send_all(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                read = await asyncio.get_running_loop().sock_recv(self.sock, READ_BYTES)
        except ConnectionError:
            self.ended = "reset"
            return
        self.received += read
        if not read:
            self.ended = "eof"

    async def some(self) -> bytes:
        """Whatever comes next, once something has come."""
        if self._taken == len(self.received):
            await self._read()
        return self._take(len(self.received))

    async def until(self, mark: bytes) -> bytes:
        """What came since the last such call, up to and with the mark."""
        while (at := self.received.find(mark, self._taken)) < 0:
            assert not self.ended, f"{self.ended} after {self.received[self._taken :]!r}"
            await self._read()
        return self._take(at + len(mark))

    async def exactly(self, count: int) -> bytes:
        while len(self.received) < self._taken + count:
            assert not self.ended, f"{self.ended} after {self.received[self._taken :]!r}"
            await self._read()
        return self._take(self._taken + count)

    def _take(self, end: int) -> bytes:
        taken = self.received[self._taken : end]
        self._taken = end
        return taken

    async def end(self) -> str:
        """How the gateway ends the connection; what came until then is in `received`."""
        while not self.ended:
            await self._read()
        return self.ended

    async def rest(self) -> bytes:
        """All that comes until the gateway closes in order."""
        assert await self.end() == "eof"
        return self._take(len(self.received))

    async def answer(self) -> bytes:
        """The next response whole, if it has a length: head and body."""
        head = await self.until(b"\r\n\r\n")
        (length,) = (
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        return head + await self.exactly(length)

    def finish(self) -> None:
        """Say that nothing more is sent."""
        self.sock.shutdown(socket.SHUT_WR)

    def leave(self, how: str = "close") -> None:
        """`close`, or `reset` it."""
        if how == "reset":
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.sock.close()


class Street:
    """The gateway in the middle, and a listening socket for each instance (slots 1, 2...)."""

    def __init__(
        self, instances: int, limit: int, bounds: Bounds, timeouts: Timeouts, **changes: Any
    ) -> None:
        self._doors = {n: socket.create_server(("127.0.0.1", 0)) for n in range(1, instances + 1)}
        for door in self._doors.values():
            door.setblocking(False)
        targets = [target(n, door.getsockname()[1], limit) for n, door in self._doors.items()]
        plan = route(version(*targets), **changes)
        self.rig = Rig(table(1, plan, bounds=bounds, timeouts=timeouts))
        self.plane = self.rig.plane
        self._loop = asyncio.get_running_loop()
        self.plane.loop = self._loop
        self.plane.new_socket = socket.socket
        self._peers: list[Peer] = []

    async def open(self) -> None:
        make = functools.partial(ClientConnection, self.plane)
        factory: Any = make  # a protocol by its methods, not by its class
        self._server = await self._loop.create_server(factory, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]

    def peer(self, sock: socket.socket) -> Peer:
        self._peers.append(peer := Peer(sock))
        return peer

    async def client(self) -> Peer:
        sock = socket.socket()
        sock.setblocking(False)
        await self._loop.sock_connect(sock, ("127.0.0.1", self._port))
        return self.peer(sock)

    async def dialled(self, slot: int = 1) -> Peer:
        """The gateway's next connection to this instance."""
        async with asyncio.timeout(PATIENCE_S):
            sock, _ = await self._loop.sock_accept(self._doors[slot])
        return self.peer(sock)

    def waits_to_be_accepted(self, slot: int = 1) -> bool:
        """Whether the gateway has dialled this instance once more."""
        try:
            sock, _ = self._doors[slot].accept()
        except BlockingIOError:
            return False
        self.peer(sock)
        return True

    async def asked(self, request: bytes, slot: int = 1) -> tuple[Peer, Peer]:
        """A client whose request is out on a connection of its own: both ends."""
        client = await self.client()
        client.send(request)
        instance = await self.dialled(slot)
        await instance.until(b"\r\n\r\n")
        return client, instance

    async def left(self) -> None:
        """Returns when the gateway has seen the end of one more client connection."""
        left = asyncio.Event()
        self.plane.on_left = left.set
        async with asyncio.timeout(PATIENCE_S):
            await left.wait()

    def in_flight(self) -> int:
        return len(list(self.rig.segment.leases(0)))

    async def close(self) -> None:
        self._server.close()
        for peer in self._peers:
            peer.sock.close()
        for client in list(self.plane.clients):
            client.transport.abort()
        idle: list[Any] = self.plane.pool.retain(())
        for connection in idle:
            connection.abandon()
        await asyncio.sleep(0)
        for door in self._doors.values():
            door.close()
        self.rig.close()


@contextlib.asynccontextmanager
async def street(
    instances: int = 1,
    limit: int = 1000,
    bounds: Bounds = BOUNDS,
    timeouts: Timeouts = TIMEOUTS,
    **changes: Any,
) -> AsyncIterator[Street]:
    """`changes` are of the route."""
    made = Street(instances, limit, bounds, timeouts, **changes)
    await made.open()
    try:
        yield made
        made.rig.check()
    finally:
        await made.close()
