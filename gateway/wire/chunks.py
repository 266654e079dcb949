"""The chunked coding, walked and checked but not rebuilt: what was received is what is sent on.

Floor 1, pure.
Strict on purpose: size lines of digits only, CRLF everywhere (RFC 9112 section 7.1); what one hop
repairs, the next one reads differently. Trailers are consumed and not passed on: merged into a
head they would be header fields that nobody judged (RFC 9110 section 6.5.1).
"""

import re
from typing import Final

from gateway.errors import BadFraming
from gateway.wire.lines import FIELD

SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t -~\x80-\xff]*+)?\r\n")
SIZE_LINE_BYTES: Final = 4096  # extensions are unknown in practice; llhttp and Go stop there too
TRAILERS_BYTES: Final = 16_384

_SIZE: Final = 0
_DATA: Final = 1
_DATA_END: Final = 2
_TRAILERS: Final = 3
_DONE: Final = 4

LAST: Final = b"0\r\n\r\n"


class ChunkReader:
    """Where a chunked body is, and where it ends.

    `kept`: how many leading bytes of the last input are to be passed on. `owes_end`: the body is
    over and its empty line was cut away with the trailers: write CRLF. `size`: bytes of content so
    far. `payload`: a list that content is appended to, or None where nobody wants it.
    """

    __slots__ = ("_left", "_line", "_state", "_trailers", "kept", "owes_end", "payload", "size")

    def __init__(self, collects: bool) -> None:
        self._state = _SIZE
        self._left = 0
        self._line = b""
        self._trailers = 0
        self.kept = 0
        self.owes_end = False
        self.size = 0
        self.payload: list[bytes] | None = [] if collects else None

    @property
    def done(self) -> bool:
        return self._state == _DONE

    def feed(self, received: bytes) -> int:
        """How many of the bytes belong to this body; fewer than all only when it is over.

        Raises: BadFraming; nothing of this input may be passed on then.
        """
        at = 0
        end = len(received)
        self.kept = -1
        while at < end and self._state != _DONE:
            if self._state == _DATA:
                taken = min(self._left, end - at)
                if self.payload is not None:
                    self.payload.append(received[at : at + taken])
                at += taken
                self._left -= taken
                if self._left == 0:
                    self._state = _DATA_END
            elif self._state == _DATA_END:
                at = self._data_end(received, at)
            else:
                at = self._read_line(received, at)
        if self.kept < 0:
            self.kept = at
        return at

    def _data_end(self, received: bytes, at: int) -> int:
        taken = received[at : at + 2 - len(self._line)]
        self._line += taken
        if not b"\r\n".startswith(self._line):
            raise BadFraming("chunk data is not followed by CRLF")
        if len(self._line) == 2:
            self._line = b""
            self._state = _SIZE
        return at + len(taken)

    def _read_line(self, received: bytes, at: int) -> int:
        """Past the next size or trailer line, or past all of it when it is not whole yet."""
        newline = received.find(b"\n", at)
        after = len(received) if newline < 0 else newline + 1
        line = self._line + received[at:after]
        if newline < 0:
            if len(line) > SIZE_LINE_BYTES:
                raise BadFraming("a chunk's line is too long")
            if self._state == _TRAILERS:
                self._cut(at)
            self._line = line
            return after
        begun_before = bool(self._line)
        self._line = b""
        if self._state == _SIZE:
            self._size_line(line)
        else:
            self._trailer_line(line, at, begun_before)
        return after

    def _size_line(self, line: bytes) -> None:
        match = SIZE_LINE.fullmatch(line)
        if match is None or len(line) > SIZE_LINE_BYTES:
            raise BadFraming("a chunk does not begin with its size")
        self._left = int(match[1], 16)
        self.size += self._left
        self._state = _DATA if self._left else _TRAILERS

    def _trailer_line(self, line: bytes, at: int, begun_before: bool) -> None:
        if line == b"\r\n":
            self._state = _DONE
            if self._trailers or begun_before:
                self._cut(at)
                self.owes_end = True
            return
        self._cut(at)
        self._trailers += len(line)
        if self._trailers > TRAILERS_BYTES:
            raise BadFraming("trailers are too long")
        if line[-2:] != b"\r\n" or FIELD.fullmatch(line[:-2]) is None:
            raise BadFraming("a trailer is not `name: value`")

    def _cut(self, at: int) -> None:
        """Nothing from here on is passed on."""
        if self.kept < 0:
            self.kept = at
