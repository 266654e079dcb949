"""What is known of the response that passes: how it reaches the client, and how it counts.

Floor 2, no I/O.
Owner: the exchange it is a part of, which fills it anew for each response.
"""

from gateway.records import Outcome
from gateway.wire.compose import CHUNKED_LINE, CLOSE, KEEP, response_head
from gateway.wire.events import EventScanner
from gateway.wire.framing import CHUNKED, UNTIL_CLOSE, told_length
from gateway.wire.heads import RequestHead, ResponseHead


class Answer:
    """`keep`: the client's connection serves on after it. `dechunks`: an HTTP/1.0 client gets
    content and a close in place of chunks. `out`: head bytes that have not been written yet."""

    __slots__ = ("_framing", "_status", "dechunks", "keep", "out", "scanner")

    def __init__(self) -> None:
        self._framing = self._status = 0
        self.dechunks = self.keep = False
        self.out = b""
        self.scanner: EventScanner | None = None

    def begin(
        self,
        head: ResponseHead,
        framing: int,
        request: RequestHead,
        may_keep: bool,
        ours: bytes,
        date: bytes,
    ) -> bool:
        """Make the client's head; True when content is wanted without its transfer coding."""
        self._status = head.status
        self._framing = framing
        modern = request.start.minor == 1
        self.dechunks = framing == CHUNKED and not modern
        self.keep = may_keep and framing != UNTIL_CLOSE and not self.dechunks
        length = told_length(head, framing)
        if length >= 0:
            lines = b"content-length: %d" % length
        else:
            lines = CHUNKED_LINE if framing == CHUNKED and modern else b""
        if not (self.keep and modern):
            connection = KEEP if self.keep else CLOSE
            lines = lines + b"\r\n" + connection if lines else connection
        self.out = response_head(head, lines, ours, date)
        scans = head.events and not head.encoded and 200 <= head.status < 300
        self.scanner = EventScanner() if scans else None
        return scans or self.dechunks

    def watch(self, raw: bytes, content: list[bytes] | None) -> bytes:
        """What to write for these body bytes, behind a head that still waits."""
        scanner = self.scanner
        if scanner is not None:
            if content is None:
                scanner.feed(raw)
            else:
                for part in content:
                    scanner.feed(part)
        if self.dechunks and content is not None:
            raw = b"".join(content)
        if self.out:
            raw = self.out + raw
            self.out = b""
        return raw

    def judged(self, content_bytes: int, generates: bool) -> Outcome:
        """How the complete response counts; `generates`: it had to carry something."""
        status, scanner = self._status, self.scanner
        if status >= 500:
            return Outcome.INSTANCE_ERROR
        if scanner is not None:
            scanner.finish()
            if scanner.failed:
                return Outcome.INSTANCE_ERROR
        answered = content_bytes > 0 and (scanner is None or scanner.answered)
        return Outcome.EMPTY if generates and status < 300 and not answered else Outcome.SERVED

    def hides_a_cut(self) -> bool:
        """A body without a length ends with its connection: only a reset tells a cut one."""
        return self._framing == UNTIL_CLOSE or self.dechunks
