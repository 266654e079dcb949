"""A real worker process, with a test in the place of supervisor and control.

The test holds the segment and the listening sockets, publishes tables and hears what is answered.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

from gateway.messages import Ack, Hello, LineBuffer, Message, Publish, encode
from gateway.records import RouteTable
from gateway.state.shared import Layout, Segment, create

PATIENCE_S: Final = 300.0  # for what takes milliseconds on a machine with nothing else to do
LAYOUT: Final = Layout(rows=4, slots=16, sections=4, leases=1024)

M = TypeVar("M")


class WorkerProcess:
    """One worker, its sockets and its control connection. Made by `running`."""

    def __init__(
        self,
        folder: Path,
        index: int = 0,
        row: int = 0,
        layout: Layout = LAYOUT,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._arguments = tuple(arguments)
        self.index = index
        self.row = row
        self._environment = {**os.environ, **(environment or {})}
        self.segment_fd = create(layout)
        self.segment = Segment(self.segment_fd)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self.listener.getsockname()[1]
        self.neighbour = socket.create_server(("127.0.0.1", 0), backlog=1024)  # of index + 1
        self.neighbour_port: int = self.neighbour.getsockname()[1]
        self.process: asyncio.subprocess.Process | None = None
        self.heard: asyncio.Queue[Message] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None
        self._life_read, self._life_write = os.pipe()

    async def start(self) -> Self:
        path = str(self.folder / "control")
        self._server = await asyncio.start_unix_server(self._hear, path)
        own, other = self.listener.fileno(), self.neighbour.fileno()
        listening = f"{self.index}:{own},{self.index + 1}:{other}"
        descriptors = (self.segment_fd, self._life_read, own, other)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "gateway.mains.worker", "--index", str(self.index), "--row", str(self.row)),
            *("--control", path, "--segment-fd", str(self.segment_fd)),
            *("--life-fd", str(self._life_read), "--listen-fds", listening),
            *("--parent", str(os.getpid()), "--log-format", "text", *self._arguments),
            pass_fds=descriptors,
            env=self._environment,
        )
        await self.hears(Hello)
        return self

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        lines = LineBuffer()
        while received := await reader.read(65_536):
            for message in lines.feed(received):
                self.heard.put_nowait(message)
        writer.close()

    def say(self, message: Message) -> None:
        assert self._writer is not None
        self._writer.write(encode(message))

    async def hears(self, kind: type[M]) -> M:
        """The next message of this kind; others before it are dropped."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.heard.get()
                if isinstance(message, kind):
                    return message

    async def publish(self, published: RouteTable) -> None:
        """Returns when the worker serves it."""
        self.say(Publish(published))
        while (await self.hears(Ack)).generation != published.generation:
            pass

    async def hang_up(self) -> None:
        """Control ends; the next connection is another control."""
        assert self._writer is not None
        self._writer.close()
        await self._writer.wait_closed()

    async def greeted(self) -> Hello:
        return await self.hears(Hello)

    def end_life(self) -> None:
        """The supervisor ends."""
        os.close(self._life_write)
        self._life_write = -1

    async def connect(self, port: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port or self.port)

    async def exited(self) -> int:
        assert self.process is not None
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()

    async def end(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()
        self._server.close()
        if self._writer is not None:
            self._writer.close()
        self.listener.close()
        self.neighbour.close()
        for fd in (self.segment_fd, self._life_read, self._life_write):
            if fd >= 0:
                os.close(fd)


@contextlib.asynccontextmanager
async def running(
    folder: Path, layout: Layout = LAYOUT, environment: Mapping[str, str] | None = None
) -> AsyncIterator[WorkerProcess]:
    worker = WorkerProcess(folder, layout=layout, environment=environment)
    try:
        yield await worker.start()
    finally:
        await worker.end()
