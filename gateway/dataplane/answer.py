"""What is known of the response that passes: how it reaches the client, and how it counts.

Floor 2, no I/O.
Owner: the exchange it is a part of, which fills it anew for each response.
"""

from typing import Final

from gateway.records import Outcome
from gateway.wire.compose import CLOSE, KEEP, response_head
from gateway.wire.events import EventScanner
from gateway.wire.framing import CHUNKED, UNTIL_CLOSE, told_framing
from gateway.wire.heads import RequestHead, ResponseHead

NO_LINES: Final[list[bytes]] = []  # never appended to

# As plain integers: reading an enum member costs three times as much.
_SERVED: Final = int(Outcome.SERVED)
_EMPTY: Final = int(Outcome.EMPTY)
_INSTANCE_ERROR: Final = int(Outcome.INSTANCE_ERROR)


class Answer:
    """`keep`: the client's connection serves on after it. `dechunks`: an HTTP/1.0 client gets
    content and a close in place of chunks. `out`: head lines that have not been written yet, with
    a place for body bytes at their end. `scanner`: looks at an event stream that passes."""

    __slots__ = ("_framing", "dechunks", "keep", "out", "scanner", "status")

    def __init__(self) -> None:
        self._framing = self.status = 0
        self.dechunks = self.keep = False
        self.out = NO_LINES
        self.scanner: EventScanner | None = None

    def begin(
        self,
        head: ResponseHead,
        framing: int,
        request: RequestHead,
        may_keep: bool,
        ours: bytes,
        date: bytes,
    ) -> None:
        """Make the client's head."""
        status = head.status
        self.status = status
        self._framing = framing
        modern = request.start.minor == 1
        self.dechunks = framing == CHUNKED and not modern
        self.keep = keep = may_keep and framing != UNTIL_CLOSE and not self.dechunks
        said = b"" if self.dechunks else told_framing(head, framing)
        if not (keep and modern):
            connection = KEEP if keep else CLOSE
            said = b"%s\r\n%s" % (said, connection) if said else connection
        self.out = response_head(head, said, ours, date)
        if head.events and not head.encoded and 200 <= status < 300:
            self.scanner = EventScanner()
        else:
            self.scanner = None

    def behind_head(self, body: bytes) -> bytes:
        """Head and first body bytes, in one piece."""
        lines = self.out
        self.out = NO_LINES
        lines[-1] = body
        return b"\r\n".join(lines)

    def judged(self, content_bytes: int, generates: bool) -> int:
        """The outcome of the complete response; `generates`: it had to carry something."""
        status, scanner = self.status, self.scanner
        if status >= 500:
            return _INSTANCE_ERROR
        if scanner is not None:
            scanner.finish()
            if scanner.failed:
                return _INSTANCE_ERROR
        answered = content_bytes > 0 and (scanner is None or scanner.answered)
        return _EMPTY if generates and status < 300 and not answered else _SERVED

    def hides_a_cut(self) -> bool:
        """A body without a length ends with its connection: only a reset tells a cut one."""
        return self._framing == UNTIL_CLOSE or self.dechunks
