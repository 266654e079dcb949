"""HTTP instances that note when requests come, and callers that never stop asking.

Floor 3, I/O.
Both are in one process and on one loop, so a moment is the same moment on both sides.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CALLERS: Final = 16  # connections; on two workers, all on one of them once in 30,000 runs
PAUSE_S: Final = 0.006  # of each: a request every 0.4 ms, and a fraction of a core


class Arrivals:
    """When requests came to one instance, in loop time."""

    def __init__(self) -> None:
        self.last = 0.0
        self._next: asyncio.Future[float] | None = None

    def came(self, now: float) -> None:
        self.last = now
        if self._next is not None and not self._next.done():
            self._next.set_result(now)

    def next(self) -> "asyncio.Future[float]":
        """The moment of the next one."""
        self._next = asyncio.get_running_loop().create_future()
        return self._next


class Answering(asyncio.Protocol):
    """Requests without a body, each of which comes whole."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._arrivals.came(asyncio.get_running_loop().time())
        self._transport.write(ANSWER * data.count(b"\r\n\r\n"))


@asynccontextmanager
async def instance() -> AsyncIterator[tuple[str, Arrivals]]:
    """An HTTP server's address, and what comes to it."""
    arrivals = Arrivals()
    server = await asyncio.get_running_loop().create_server(
        lambda: Answering(arrivals), "127.0.0.1", 0
    )
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", arrivals


@asynccontextmanager
async def calling(address: str, model: str, callers: int = CALLERS) -> AsyncIterator[None]:
    """Requests for the model, all the time; whatever the answer is."""
    tasks = [asyncio.create_task(_call(address, model)) for _ in range(callers)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _call(address: str, model: str) -> None:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        while True:
            writer.write(f"GET / HTTP/1.1\r\nHost: g\r\nx-model: {model}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
            await asyncio.sleep(PAUSE_S)
    finally:
        writer.close()
