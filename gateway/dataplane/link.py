"""The worker's connection to control, one after another: control may restart, workers go on.

Floor 3, I/O.
The supervisor holds the listening socket, so connecting works while control starts; where it does
not, this tries again. What is said while nobody listens is lost: a new control asks anew.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from gateway.messages import LineBuffer, Message, encode

UNREAD_BYTES: Final = 262_144  # beyond what the kernel holds: control is busy with other things
RETRY_S: Final = 0.1  # control starts within half a second; connecting costs microseconds


class Link(asyncio.Protocol):
    """`hello` makes the first message of a connection, `heard` gets every message of control."""

    def __init__(self, path: str, hello: Callable[[], Message], heard: Callable[[Message], None]):
        self._path = path
        self._hello = hello
        self._heard = heard
        self._transport: Any = None
        self._lines = LineBuffer()
        self._ended = asyncio.Event()

    async def keep(self) -> None:
        """Stay connected until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._ended.clear()
            try:
                await loop.create_unix_connection(lambda: self, self._path)
            except OSError:
                await asyncio.sleep(RETRY_S)
                continue
            await self._ended.wait()

    def say(self, message: Message) -> None:
        if self._transport is not None:
            self._transport.write(encode(message))

    def say_if_read(self, message: Message) -> bool:
        """Say what may be lost, unless control is behind; False for nothing said."""
        transport = self._transport
        if transport is None or transport.get_write_buffer_size() > UNREAD_BYTES:
            return False
        transport.write(encode(message))
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._lines = LineBuffer()
        self.say(self._hello())

    def data_received(self, data: bytes) -> None:
        for message in self._lines.feed(data):
            self._heard(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._ended.set()
