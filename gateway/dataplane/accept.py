"""A connection to a client: reads requests, one at a time and in order, and hands them on.

Floor 3, I/O.   Flow: [accept] -> parse -> asking -> match -> pick -> relay
Between a request's last byte and its answer, further input is kept up to the size of a head, so
that a client that leaves is noticed at once; beyond that, reading stops. After an answer that came
before the whole request, input is read and dropped for a moment: closing at once would reset the
connection, and the client would lose the very answer (RFC 9112 section 9.6).
"""

import logging
import re
from typing import Any, Final

from gateway.dataplane.asking import Asking
from gateway.dataplane.caller import (
    HEAD,
    HELD_BODY,
    LINGER_NS,
    NOTHING,
    NS,
    OVER,
    REST,
    STREAMED_BODY,
)
from gateway.dataplane.plane import Plane
from gateway.dataplane.stages import DIALLING, UNPLACED
from gateway.errors import BadFraming, GatewayError
from gateway.routing.match import locate
from gateway.wire.compose import refusal

log = logging.getLogger(__name__)

IDLE_GRACE_S: Final = 2.0  # at our end, for a kept-alive client that is just about to ask again
EMPTY_LINES: Final = re.compile(rb"(?:\r\n)+")
HEAD_END: Final = b"\r\n\r\n"
CR: Final = 13


class ClientConnection(Asking):
    """One client. Owner: its transport and, while a request is under way, its exchange."""

    __slots__ = (
        "_finishing",
        "_moved",
        "_pumping",
        "_quiet_since_ns",
        "_searched",
    )

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane)
        self._quiet_since_ns = 0
        self._moved = False  # body bytes have come since the last sweep
        self._finishing = False  # the client will send nothing more
        self._searched = 0  # bytes of `_pending` that hold no end of a head; 0: none has begun
        self._pumping = False

    # -- what the transport tells

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        plane = self.plane
        plane.clients[self] = None
        plane.ledger.connected()
        if len(plane.clients) > plane.clients_max:
            transport.abort()  # what is left of descriptors belongs to the requests that are here
        peer = transport.get_extra_info("peername")
        self.peer = peer[0].encode() if isinstance(peer, tuple) else b"unknown"  # RFC 7239 6.2
        plane.tick()
        self._await_head()

    def data_received(self, data: bytes) -> None:
        try:
            reading = self.reading
            if reading == HEAD:
                self.pending = self.pending + data if self.pending else data
                if self.blocked:
                    self._hold_surplus()
                else:
                    self._pump()
            elif reading in (HELD_BODY, STREAMED_BODY):
                self._moved = True
                self.read_body(data)
                self._pump()
            elif reading == NOTHING:
                self.pending += data
                self._hold_surplus()
        except Exception:  # a bug costs this client its connection, and nobody else anything
            log.exception("a request broke the data plane")
            self.transport.abort()

    def _hold_surplus(self) -> None:
        """What cannot be used yet is kept up to the size of a head; a body has its own bounds."""
        if self.reading in (HEAD, NOTHING):
            self.hold_reading(len(self.pending) > self.plane.head_max_bytes)
        elif self.reading == HELD_BODY:
            self.hold_reading(False)

    def eof_received(self) -> bool:
        """A client that ends its side has left; with `half_close` "serve" it may still listen."""
        asked = self.reading == NOTHING or (self.blocked and self.pending != b"")
        if asked and self.plane.bounds.half_close == "serve":
            self._finishing = True
            return True
        self._leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        plane = self.plane
        plane.clients.pop(self, None)
        plane.ledger.disconnected()
        if plane.on_left is not None:
            plane.on_left()

    def _leave(self) -> None:
        self.reading = OVER
        self.pending = b""
        self.deadline_ns = self.plane.tick() + LINGER_NS  # it may never read what is still written
        self.exchange.client_gone()

    def pause_writing(self) -> None:
        self.blocked = True
        self.exchange.download_blocked(True)

    def resume_writing(self) -> None:
        self.blocked = False
        self.exchange.download_blocked(False)
        self._pump()
        self._hold_surplus()

    # -- heads

    def _await_head(self) -> None:
        """Between requests."""
        self.reading = HEAD
        self._searched = 0
        plane = self.plane
        if plane.closing:
            self.due_in(IDLE_GRACE_S)
        else:
            self.deadline_ns = plane.now + plane.client_idle_ns if plane.client_idle_ns else 0

    def _pump(self) -> None:
        """Serve what has been read, one request after the other; never from inside itself."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while self.reading == HEAD and self.pending and not self.blocked:
                if not self._read_head():
                    break
        finally:
            self._pumping = False
        if self._finishing and self.reading == HEAD and not self.blocked:
            self.transport.close()  # all that it asked is answered

    def _read_head(self) -> bool:
        """Begin the request whose head stands first; False when it is not whole yet."""
        head_max = self.plane.head_max_bytes
        data = self.pending
        if data[0] == CR and data[:2] == b"\r\n":  # RFC 9112 2.2: empty lines before are ignored
            self.pending = data = EMPTY_LINES.sub(b"", data, count=1)
            self._searched = min(self._searched, 1)  # not 0: the head's deadline goes on
        end = data.find(HEAD_END, self._searched)
        if end < 0 or end > head_max:
            self._incomplete(data, head_max)
            return False
        self._searched = 0
        try:
            self.head.read(data[:end])
            where = locate(self.head)
        except GatewayError as exc:
            self._bad_head(exc)
            return False
        self.deadline_ns = 0
        self.begin(where, data, end + 4)
        return True

    def _incomplete(self, data: bytes, head_max: int) -> None:
        if len(data) > head_max:
            code = "head_too_large" if b"\r\n" in data[:head_max] else "target_too_long"
            self._bad_head(GatewayError(code, f"a request head of more than {head_max} bytes"))
        elif data.count(b"\n") != data.count(b"\r\n"):
            self._bad_head(BadFraming("a line of the head ends without CR", "bad_request"))
        elif data:
            if self._searched == 0:
                self.plane.tick()
                self.due_in(self.plane.timeouts.client_head_s)
            self._searched = max(len(data) - 3, 1)

    def _bad_head(self, error: GatewayError) -> None:
        """There is no request to speak of, but it counts as one, and it is the last."""
        self.head.forget()
        self.exchange.begin()
        self.reading = REST
        self.exchange.refuse(error)

    # -- what the exchange asks for

    def answer(self, error: GatewayError) -> None:
        if self.transport.is_closing():
            self.reading = OVER
            return
        keep = self.may_keep()
        request_id, date = self.exchange.client_id, self.plane.date
        said = self.connection_line(keep)
        self.transport.write(refusal(error, request_id, date, said, self.head.start))
        self.finished(keep)

    def finished(self, keep: bool) -> None:
        if self.transport.is_closing():
            return
        if keep:
            self._await_head()
            if self.pending or self._finishing:
                self._pump()
            if self.read_held:
                self._hold_surplus()
        elif self.reading == NOTHING and not self.read_held and not self.pending:
            self.close()
        else:
            whole = self.reading == NOTHING
            self.linger()
            if whole:  # it may take its time to read: the answer, not the rest, is what counts
                self.due_in(self.plane.timeouts.client_idle_s)

    # -- time

    def swept(self, now: int) -> None:
        """Once a second: has a deadline passed?"""
        if self.deadline_ns and now >= self.deadline_ns:
            self._late()
        elif self.reading in (HELD_BODY, STREAMED_BODY):
            limit_s = self.plane.timeouts.client_body_idle_s
            stage = self.exchange.stage
            ours = self.read_held or self.owes_go_on
            if self.reading == STREAMED_BODY:
                ours = ours or stage in (UNPLACED, DIALLING)
            if self._moved or ours or not self._quiet_since_ns:
                self._moved = False
                self._quiet_since_ns = now
            elif limit_s and now - self._quiet_since_ns >= limit_s * NS:
                text = f"no byte of the body in {limit_s:g} s"
                self.exchange.client_broke(GatewayError("request_timed_out", text))
        else:
            self._quiet_since_ns = 0

    def _late(self) -> None:
        if self.reading == HEAD and self.pending and not self.blocked:
            self._bad_head(GatewayError("request_timed_out", "the head took too long"))
        elif self.reading == HEAD:
            self.close()
            self.deadline_ns = self.plane.clock() + LINGER_NS
        else:
            self.transport.abort()

    def end_if_idle(self) -> None:
        """We are closing: a connection without a request has no reason to stay."""
        if self.reading == HEAD and not self.pending:
            self.close()
