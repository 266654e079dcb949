"""Where a request's body ends, and what of it goes on.

Floor 1, pure.   Flow: parse -> [body] -> relay
One reader per client connection, begun anew for each request.
"""

from gateway.errors import GatewayError
from gateway.wire.chunks import ChunkReader
from gateway.wire.heads import RequestHead


class BodyReader:
    """`part`: what the last input brought, raw for a body that streams, content for one that is
    collected. `size`: content so far. `done`: the request is whole."""

    __slots__ = ("_chunks", "_left", "_size_max", "done", "part", "size")

    def __init__(self) -> None:
        self._chunks: ChunkReader | None = None
        self._left = self._size_max = 0
        self.done = True
        self.part = b""
        self.size = 0

    def begin(self, head: RequestHead, collects: bool, size_max: int) -> None:
        """Raises: GatewayError for a length that is too large."""
        self._size_max = size_max
        if head.length > size_max:
            raise self._too_large()
        self._chunks = ChunkReader(collects) if head.chunked else None
        self._left = max(head.length, 0)
        self.done = not head.chunked and self._left == 0
        self.part = b""
        self.size = 0

    def feed(self, received: bytes) -> int:
        """How many of the bytes belong to this body.

        Raises: GatewayError.
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
        if self.size > self._size_max:
            raise self._too_large()
        self.done = chunks.done
        if chunks.payload is not None:
            self.part = b"".join(chunks.payload)
            chunks.payload = []
        else:
            self.part = received[: chunks.kept]
            if chunks.done and chunks.owes_end:
                self.part += b"\r\n"
        return used

    def _too_large(self) -> GatewayError:
        return GatewayError("body_too_large", f"a body of more than {self._size_max} bytes")
