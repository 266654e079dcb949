"""The supervisor's end of the socket to control: orders in, what became of them out.

Floor 3, I/O.   Owner: the supervisor; one for each life of control.
Nothing here waits: what control has not read yet is kept, and sent when it reads again.
"""

import selectors
import socket
from collections.abc import Callable

from gateway.messages import LineBuffer, Message, encode


class ControlLink:
    """heard: called with each order. ended: control has closed its end."""

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        heard: Callable[[Message], None],
        ended: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._selector = selector
        self._heard = heard
        self._ended = ended
        self._incoming = LineBuffer()
        self._outgoing = bytearray()
        selector.register(sock, selectors.EVENT_READ, self.ready)

    def say(self, message: Message) -> None:
        self._outgoing += encode(message)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._sock.send(self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:  # it is gone: its exit says so
            self._outgoing.clear()
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        wanted = both if self._outgoing else selectors.EVENT_READ
        self._selector.modify(self._sock, wanted, self.ready)

    def ready(self, mask: int) -> None:
        """The socket can be read, or written, or both."""
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if not mask & selectors.EVENT_READ:
            return
        received = b""
        try:
            while chunk := self._sock.recv(1 << 16):
                received += chunk
        except BlockingIOError:
            ended = False
        except OSError:
            ended = True
        else:
            ended = True
        for message in self._incoming.feed(received):
            self._heard(message)
        if ended:
            self._selector.unregister(self._sock)
            self._sock.close()
            self._ended()
