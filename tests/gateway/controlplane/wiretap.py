"""A TCP road to a gRPC server that counts what the server's side says of pings, and can freeze."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

HEAD: Final = 9  # octets of an HTTP/2 frame's head (RFC 9113, section 4.1)
PING, GOAWAY, ACK = 6, 7, 1


class Wiretap:
    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self.connections = 0
        self.goaways = 0
        self.pings = 0  # that the server acknowledged
        self.pinged = asyncio.Event()  # at each of them
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def pings_until(self, count: int) -> None:
        while self.pings < count:
            self.pinged.clear()
            await self.pinged.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        there = asyncio.create_task(self._up(reader, far_writer))
        back = asyncio.create_task(self._down(far_reader, writer))
        self._tasks |= {there, back}

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self.flowing.wait()
            writer.write(data)
        writer.close()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readexactly(HEAD)
                body = await reader.readexactly(int.from_bytes(head[:3], "big"))
                self.goaways += head[3] == GOAWAY
                if head[3] == PING and head[4] & ACK:
                    self.pings += 1
                    self.pinged.set()
                await self.flowing.wait()
                writer.write(head + body)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


@asynccontextmanager
async def tapped(target: str) -> AsyncIterator[tuple[str, Wiretap]]:
    """An address that leads to the target, and what is heard on the way."""
    tap = Wiretap(target)
    server = await asyncio.start_server(tap._connected, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", tap
    finally:
        server.close()
        for task in tap._tasks:
            task.cancel()
        await asyncio.gather(*tap._tasks, return_exceptions=True)
