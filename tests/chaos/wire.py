"""HTTP/1.1 as a client speaks it, on a plain stream: every byte of an answer is accounted for.

Floor 3, I/O.
It never sends anything twice, never reconnects by itself, and knows its own port: what a pooled
client library hides is what a chaos run has to see.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

HEAD_MAX: Final = 1 << 16
ANSWER_S: Final = 120.0  # the longest silence: beyond it, a request hangs


class Broken(Exception):
    """The connection ended, or fell silent, before the answer was whole."""


@dataclass(frozen=True, slots=True)
class Head:
    status: int
    fields: dict[str, str]  # names in lower case

    @property
    def keeps(self) -> bool:
        return self.fields.get("connection", "").lower() != "close"


class Connection:
    """One kept connection to the gateway; one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.port: int = writer.get_extra_info("sockname")[1]

    @classmethod
    async def open(cls, address: str) -> "Connection":
        """Raises: Broken when nobody accepts."""
        host, _, port = address.rpartition(":")
        try:
            async with asyncio.timeout(ANSWER_S):
                return cls(*await asyncio.open_connection(host, int(port), limit=HEAD_MAX))
        except OSError as exc:  # TimeoutError is one
            raise Broken(f"no connection: {type(exc).__name__}") from None

    @property
    def ended(self) -> bool:
        """The gateway has closed it while nothing was asked."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def send(self, data: bytes) -> None:
        """Raises: Broken; an early answer may be there all the same."""
        if self._writer.is_closing():
            raise Broken("closed")
        try:
            self._writer.write(data)
            async with asyncio.timeout(ANSWER_S):
                await self._writer.drain()
        except OSError as exc:
            raise Broken(f"not sent: {type(exc).__name__}") from None

    async def head(self) -> Head:
        first, *lines = (await self._upto(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        fields = {name.lower(): value.strip() for name, _, value in pairs}
        return Head(int(first.split(" ")[1]), fields)

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """The content as it comes, framing taken off; returns at its proper end only."""
        if head.fields.get("transfer-encoding", "") != "chunked":
            yield await self._exactly(int(head.fields["content-length"]))
            return
        while size := int((await self._upto(b"\r\n")).partition(b";")[0], 16):
            piece = await self._exactly(size + 2)
            assert piece.endswith(b"\r\n"), "a chunk of another length than it says"
            yield piece[:-2]
        assert await self._upto(b"\r\n") == b"\r\n", "a trailer where there should be none"

    def close(self) -> None:
        self._writer.close()

    async def _upto(self, mark: bytes) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._reader.readuntil(mark)
        except TimeoutError:
            raise Broken(f"silent for {ANSWER_S:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise Broken(type(exc).__name__) from None

    async def _exactly(self, size: int) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._reader.readexactly(size)
        except TimeoutError:
            raise Broken(f"silent for {ANSWER_S:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as exc:
            raise Broken(type(exc).__name__) from None
