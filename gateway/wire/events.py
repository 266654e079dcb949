"""Watching an event stream pass by: did it carry an answer, did it carry an error?

Floor 1, pure.
An instance that fails in mid-stream has sent its 200 long ago; it says so in an event. Only the
beginnings of lines are looked at, so an answer that talks about errors is no error. The beginning
of an unfinished line is carried over to the next read, wherever TCP cut it.
Source: the WHATWG server-sent events format; `data: {"error": ...}` as OpenAI and vLLM send it.
"""

import re
from typing import Final

CARRY_BYTES: Final = 96  # enough of a line to judge it; the rest of a longer one is skipped

DONE: Final = re.compile(rb"data: ?\[DONE\]\s*")
ERROR: Final = re.compile(
    rb'event: ?error\s*$|data: ?\s*\{\s*"(?:error"\s*:\s*(?!null|\s)|object"\s*:\s*"error")'
)
LINE_END: Final = re.compile(rb"\r\n|\n|\r")
LF: Final = 10


class EventScanner:
    """What one event stream has shown so far."""

    __slots__ = ("_carry", "answered", "failed")

    def __init__(self) -> None:
        self._carry = b""
        self.answered = False  # a data event other than [DONE] has passed
        self.failed = False

    def look(self, received: bytes, at: int, after: int) -> None:
        """Look at the content that lies between two places of an input.

        Cost: one search, once the stream has answered, where it ends with a line.
        """
        if (
            self.answered
            and not self._carry
            and received[after - 1] == LF
            and received.find(b"error", at, after) < 0  # in every line that ERROR matches
        ):
            return
        self.feed(received[at:after])

    def feed(self, content: bytes) -> None:
        """Look at content as the stream carries it, without transfer coding."""
        # An LF cut off from its CR makes an empty line, which says nothing.
        lines = LINE_END.split(content) if b"\r" in content else content.split(b"\n")
        lines[0] = self._carry + lines[0]
        for i in range(len(lines) - 1):
            self._judge(lines[i])
        # The rest of a line longer than that is appended and cut off again: still its beginning.
        self._carry = lines[-1][:CARRY_BYTES]

    def finish(self) -> None:
        """The stream is over; a last line without its end counts too."""
        self._judge(self._carry)
        self._carry = b""

    def _judge(self, line: bytes) -> None:
        first = line[:1]
        if first == b"d" and line[:5] == b"data:":
            if not self.answered:
                self.answered = line[5:6] != b"" and DONE.fullmatch(line) is None
            if ERROR.match(line):
                self.failed = True
        elif first == b"e" and ERROR.match(line):
            self.failed = True
