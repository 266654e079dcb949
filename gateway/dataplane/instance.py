"""A connection to an instance: finds the end of each response and passes the bytes on.

Floor 3, I/O.   Flow: dial -> [instance] -> relay
Every read of the socket is one call to the listener, so a token is never held back. What comes
while nobody listens, or after the end of a response, costs the connection: the next client would
get it (RFC 9112 section 11.2).
"""

from typing import Any, Final

from gateway.dataplane.plane import Plane
from gateway.errors import BadFraming, GatewayError
from gateway.state.pool import Pooled
from gateway.wire.chunks import ChunkReader
from gateway.wire.events import EventScanner
from gateway.wire.framing import CHUNKED, COUNTED, NOTHING, UNTIL_CLOSE, response_framing
from gateway.wire.heads import ResponseHead

_HEAD: Final = -1  # instead of a framing: the head is being read
HEAD_END: Final = b"\r\n\r\n"


class Listener:
    """Who sent a request and is told of its response; methods are called in this order.

    `scanner`: is shown the content of the response, from `answered` on.
    """

    __slots__ = ("scanner",)

    scanner: EventScanner | None

    def dialled(self, connection: "InstanceConnection") -> None:
        """The dial that it waited for has ended; nothing has been sent."""
        raise NotImplementedError

    def unreachable(self, error: GatewayError) -> None:
        """That dial has failed: the instance was not there, or not in time; or we could not try."""
        raise NotImplementedError

    def interim(self, head: ResponseHead) -> None:
        """A 1xx other than 101."""
        raise NotImplementedError

    def answered(self, head: ResponseHead, framing: int) -> bool:
        """The final head; True to be given chunked content without its coding."""
        raise NotImplementedError

    def passed(self, out: bytes, received: int) -> None:
        """Body bytes to pass on (none with a bare head), of so many that were received."""
        raise NotImplementedError

    def goes_on(self) -> None:
        """The response is not complete with the read that its head came in."""
        raise NotImplementedError

    def ended(self, content_bytes: int, owes_end: bool) -> None:
        """The response is complete. `owes_end`: write CRLF in place of dropped trailers."""
        raise NotImplementedError

    def broken(self, why: str) -> None:
        """What came is no response."""
        raise NotImplementedError

    def lost(self) -> None:
        """The connection ended before the response did."""
        raise NotImplementedError

    def upload_blocked(self, blocked: bool) -> None:
        """The instance does not read (or reads again) what is written to it."""
        raise NotImplementedError


class InstanceConnection(Pooled):
    """`used`: it has carried a response before, so the instance may be closing it right now.
    `early`: what stands in for a transport that the loop has yet to make."""

    __slots__ = (
        "_asked_head",
        "_chunks",
        "_content_bytes",
        "_framing",
        "_head",
        "_left",
        "_paused",
        "_pending",
        "_plane",
        "_reusable",
        "_stalled",
        "early",
        "listener",
        "port",
        "slot",
        "transport",
        "used",
    )

    def __init__(self, plane: Plane, slot: int) -> None:
        super().__init__()
        self._plane = plane
        self.slot = slot
        self.transport: Any = None
        self.early: Any = None
        self.listener: Listener | None = None
        self.port = 0
        self.used = False
        self._head = ResponseHead(plane.response_memo, plane.response_starts)
        self._chunks: ChunkReader | None = None
        self._pending = b""
        self._framing = _HEAD
        self._left = 0
        self._content_bytes = 0
        self._asked_head = self._paused = False
        self._stalled = False  # the instance does not read what was written
        self._reusable = True

    # -- what the relay does with it

    def take(self, listener: Listener, asked_head: bool) -> None:
        """Carry this listener's exchange from now on."""
        self.listener = listener
        self._asked_head = asked_head
        self._framing = _HEAD
        self._content_bytes = 0

    def release(self, request_complete: bool) -> None:
        """The exchange is over: keep the connection if both directions are complete."""
        self.listener = None
        if self._paused:
            self._pause(False)
        plane = self._plane
        table = plane.cell.table
        if (
            self._reusable
            and request_complete
            and not self._stalled
            and not self.transport.is_closing()
            and table is not None
            and self.slot in table.owners
            and not plane.closing
            and plane.pool.checkin(self.slot, self, plane.now)
        ):
            self.used = True
            return
        if request_complete and not self._stalled:
            self.transport.close()
        else:
            self.transport.abort()

    def abandon(self) -> None:
        """The exchange failed or was given up: the instance sees it at once."""
        self.listener = None
        if self.transport is not None:
            self.transport.abort()

    def pause(self, paused: bool) -> None:
        """The client does not read (or reads again): neither do we."""
        if self.listener is not None:
            self._pause(paused)

    def _pause(self, paused: bool) -> None:
        if paused != self._paused and not self.transport.is_closing():
            self._paused = paused
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _hold_on(self) -> None:
        if self._paused and not self.transport.is_closing():
            self.transport.pause_reading()

    # -- what the transport tells

    def connection_made(self, transport: Any) -> None:
        early = self.early
        self.early = None
        self.transport = transport
        if early is None:
            self.port = transport.get_extra_info("sockname")[1]
            return
        early.gives_way(transport)
        if self._paused:  # uvloop begins to read after this call, whatever was said in it
            self._plane.loop.call_soon(self._hold_on)

    def data_received(self, data: bytes) -> None:
        listener = self.listener
        if listener is None:  # nobody asked
            self._plane.pool.drop(self.slot, self)
            self.transport.abort()
            return
        if self._framing == CHUNKED:
            self._read_chunks(listener, data)
        elif self._framing == _HEAD:
            self._read_head(listener, data)
        else:
            self._read_body(listener, data)

    def _read_head(self, listener: Listener, data: bytes) -> None:
        searched = at = 0  # where the head begins that is looked for
        if self._pending:
            searched = max(len(self._pending) - 3, 0)
            data = self._pending + data
            self._pending = b""
        head_max = self._plane.head_max_bytes
        while True:
            end = data.find(HEAD_END, searched)
            if end < 0 or end - at > head_max:
                self._incomplete(listener, data[at:], head_max)
                return
            try:
                self._head.read(data[at:end])
            except BadFraming as exc:
                listener.broken(exc.message)
                return
            searched = at = end + 4
            status = self._head.status
            if status >= 200:
                break
            if status == 101:
                listener.broken("a switch of protocols that nobody asked for")
                return
            listener.interim(self._head)
            if at == len(data):
                return
        self._begin_body(listener, data[at:])

    def _incomplete(self, listener: Listener, data: bytes, head_max: int) -> None:
        if len(data) > head_max:
            listener.broken(f"a response head of more than {head_max} bytes")
        elif data.count(b"\n") != data.count(b"\r\n"):
            listener.broken("a line of the response head ends without CR")
        else:
            self._pending = data

    def _begin_body(self, listener: Listener, data: bytes) -> None:
        head = self._head
        self._framing = framing = response_framing(head, self._asked_head)
        self._reusable = head.keep_alive and framing != UNTIL_CLOSE
        dechunks = listener.answered(head, framing)
        if not self._serves(listener):  # it took the answer for a refusal and left
            return
        if framing == CHUNKED:
            self._chunks = ChunkReader(dechunks, listener.scanner)
            if data:
                self._read_chunks(listener, data)
            else:
                listener.passed(b"", 0)
        else:
            self._left = head.length
            self._read_body(listener, data)
        # It may carry another request by now, of the same client: that one has no head yet.
        if self._serves(listener) and self._framing != _HEAD:
            listener.goes_on()

    def _serves(self, listener: Listener) -> bool:
        """Whether it is still the one who is told; asked anew, since any call may change that."""
        return self.listener is listener

    def _read_body(self, listener: Listener, data: bytes) -> None:
        """A body that is not chunked, or none."""
        framing = self._framing
        size = len(data)
        if framing == COUNTED:
            if size > self._left:
                size = self._left
                data = data[:size]
                self._reusable = False
        elif framing == NOTHING and size:
            size = 0
            data = b""
            self._reusable = False
        if size and listener.scanner is not None:
            listener.scanner.look(data, 0, size)
        self._content_bytes += size
        listener.passed(data, size)
        if framing == COUNTED:
            self._left -= size
            if self._left == 0:
                listener.ended(self._content_bytes, False)
        elif framing == NOTHING:
            listener.ended(0, False)

    def _read_chunks(self, listener: Listener, data: bytes) -> None:
        chunks = self._chunks
        assert chunks is not None
        try:
            used = chunks.feed(data)
        except BadFraming as exc:
            listener.broken(exc.message)
            return
        if used < len(data):
            self._reusable = False
        kept = chunks.kept
        content = chunks.payload
        if content is not None:
            chunks.payload = []
            data = b"".join(content)
        elif kept < len(data):
            data = data[:kept]
        listener.passed(data, kept)
        if chunks.done:
            self._chunks = None
            listener.ended(chunks.size, chunks.owes_end)

    def eof_received(self) -> bool:
        """Decided here, not in connection_lost: that waits until all is written."""
        self._gone(True)
        self.transport.abort()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone(False)

    def _gone(self, in_order: bool) -> None:
        listener = self.listener
        self.listener = None
        self._reusable = False
        self._plane.pool.drop(self.slot, self)
        if listener is None:
            return
        if self._framing == UNTIL_CLOSE and in_order:
            listener.ended(self._content_bytes, False)
        else:
            listener.lost()

    def pause_writing(self) -> None:
        self._stalled = True
        if self.listener is not None:
            self.listener.upload_blocked(True)

    def resume_writing(self) -> None:
        self._stalled = False
        if self.listener is not None:
            self.listener.upload_blocked(False)
