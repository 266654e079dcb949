"""A client connection's own end: how it is paused, told to close, and cut.

Floor 3, I/O.
What an exchange needs of its client, and nothing of requests.
"""

import socket
import struct
from typing import Any, Final

from gateway.dataplane.plane import Plane
from gateway.errors import GatewayError
from gateway.wire.compose import ways
from gateway.wire.heads import RequestHead

NS: Final = 1_000_000_000
LINGER_NS: Final = 2 * NS  # a round trip and a slow client's next write; nginx waits 5 s
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: closing sends RST

# What is being read.
HEAD: Final = 0
HELD_BODY: Final = 1  # its JSON names the model
STREAMED_BODY: Final = 2
NOTHING: Final = 3  # the whole request is here
REST: Final = 4  # dropped: the connection is ending
OVER: Final = 5


class Caller:
    """`reading`: one of the states above. `blocked`: the client does not read what we write.
    `deadline_ns`: when the sweep ends the connection, 0 for never. `peer`: its address."""

    __slots__ = (
        "_way",
        "_way_to",
        "blocked",
        "deadline_ns",
        "peer",
        "pending",
        "plane",
        "read_held",
        "reading",
        "transport",
    )

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.transport: Any = None
        self.peer = b""
        self._way = self._way_to = b""  # the lines made last, and the host that they name
        self.pending = b""  # read, and not yet used
        self.reading = HEAD
        self.deadline_ns = 0
        self.blocked = self.read_held = False

    # -- for the exchange; requests belong to ClientConnection

    def go_on(self) -> None:
        """The request has found its instance: ask for the body, if the client waits to be asked."""
        raise NotImplementedError

    def answer(self, error: GatewayError) -> None:
        """Nothing has been sent: tell the client why."""
        raise NotImplementedError

    def finished(self, keep: bool) -> None:
        """The response is out."""
        raise NotImplementedError

    def way(self, head: RequestHead, instance: bytes) -> bytes:
        """The lines of `ways`; most clients ask for one host again and again."""
        if head.forwarded_for or not head.host or head.start.minor == 0:
            return ways(head, instance, self.peer)
        if head.host != self._way_to:
            self._way_to = head.host
            self._way = ways(head, instance, self.peer)
        return self._way

    def hold_upload(self, held: bool) -> None:
        """Stop (or go on) reading the request body."""
        if self.reading == STREAMED_BODY:
            self.hold_reading(held)

    def cut(self, hidden: bool) -> None:
        """End the connection visibly; `hidden`: a mere close would look like a whole answer."""
        self.reading = OVER
        self.pending = b""
        self.deadline_ns = self.plane.clock() + LINGER_NS
        if hidden:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.transport.abort()
        else:
            self.transport.close()  # an unfinished body; what the instance sent still goes out

    # -- for ourselves

    def hold_reading(self, held: bool) -> None:
        if held != self.read_held and not self.transport.is_closing():
            self.read_held = held
            if held:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def due_in(self, limit_s: float) -> None:
        self.deadline_ns = self.plane.now + int(limit_s * NS) if limit_s else 0

    def close(self) -> None:
        """What is written still goes out, unless the client takes too long to read it."""
        self.reading = OVER
        self.due_in(self.plane.timeouts.client_idle_s)
        self.transport.close()

    def linger(self) -> None:
        """Say that we are done, and let the client finish its sentence."""
        self.reading = REST
        self.pending = b""
        self.deadline_ns = self.plane.clock() + LINGER_NS
        self.hold_reading(False)
        self.transport.write_eof()
