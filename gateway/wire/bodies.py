"""Where a request's body ends, and what of it goes on.

Floor 1, pure.   Flow: parse -> [body] -> relay
One reader per client connection, begun anew for each request.
"""

from gateway.wire.chunks import ChunkReader
from gateway.wire.heads import RequestHead


class BodyReader:
    """`part`: what the last input brought, raw for a body that streams, content for one that is
    collected. `size`: content so far. `done`: the request is whole."""

    __slots__ = ("_chunks", "_collects", "_left", "done", "part", "size")

    def __init__(self) -> None:
        self._chunks: ChunkReader | None = None
        self._collects = False
        self._left = 0
        self.done = True
        self.part = b""
        self.size = 0

    def begin(self, head: RequestHead, collects: bool) -> None:
        self._chunks = ChunkReader(collects) if head.chunked else None
        self._collects = collects
        self._left = max(head.length, 0)
        self.done = not head.chunked and self._left == 0
        self.part = b""
        self.size = 0

    def feed(self, received: bytes) -> int:
        """How many of the bytes belong to this body.

        Raises: BadFraming.
        """
        chunks = self._chunks
        if chunks is None:
            part = received if len(received) <= self._left else received[: self._left]
            self.part = part
            self._left -= len(part)
            self.size += len(part)
            self.done = self._left == 0
            return len(part)
        used = chunks.feed(received)
        self.size = chunks.size
        self.done = chunks.done
        if chunks.payload is not None:
            self.part = b"".join(chunks.payload)
            chunks.payload = []
        else:
            self.part = received[: chunks.kept]
            if chunks.done and chunks.owes_end:
                self.part += b"\r\n"
        return used
