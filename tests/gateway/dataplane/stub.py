"""An instance for live tests: it answers at once, or holds a request until the test says more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self


class Held:
    """One request that arrived; the test answers it."""

    def __init__(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        self.head = head
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def begin(self) -> None:
        """A stream's head and its first event, 11 bytes of it."""
        self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"
        )

    def end(self) -> None:
        self.send(b"0\r\n\r\n")


class StubInstance:
    """`held`: requests to /hold, in order; others are answered with their path."""

    def __init__(self) -> None:
        self.held: asyncio.Queue[Held] = asyncio.Queue()
        self.port = 0
        self.left = 0  # connections that ended while a request was held
        self.served = 0

    async def start(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b" /hold" in head:
                    self.held.put_nowait(Held(head, writer))
                else:
                    path = head.split(b" ", 2)[1]
                    self.served += 1
                    length = b"content-length: %d" % len(path)
                    writer.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n" + path)
        writer.close()

    async def close(self) -> None:
        self._server.close()


@contextlib.asynccontextmanager
async def stub_instance() -> AsyncIterator[StubInstance]:
    instance = await StubInstance().start()
    try:
        yield instance
    finally:
        await instance.close()
