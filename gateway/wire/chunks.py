"""The chunked coding, walked and checked but not rebuilt: what was received is what is sent on.

Floor 1, pure.
Strict on purpose: size lines of digits only, CRLF everywhere (RFC 9112 section 7.1); what one hop
repairs, the next one reads differently. Trailers are consumed and not passed on: merged into a
head they would be header fields that nobody judged (RFC 9110 section 6.5.1).
"""

import re
from typing import Final

from gateway.errors import BadFraming
from gateway.wire.events import EventScanner
from gateway.wire.lines import FIELD

SIZE_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t -~\x80-\xff]*+)?\r\n")
SIZE_LINE_BYTES: Final = 4096  # extensions are unknown in practice; llhttp and Go stop there too
TRAILERS_BYTES: Final = 16_384

# The value of a hexadecimal digit, by its byte; 16 for what is none.
DIGIT: Final = bytes(
    int(chr(c), 16) if chr(c) in "0123456789abcdefABCDEF" else 16 for c in range(256)
)
DIGITS_MAX: Final = 15  # as SIZE_LINE has it
CR: Final = 13
LF: Final = 10

_SIZE: Final = 0
_DATA: Final = 1
_DATA_END: Final = 2
_TRAILERS: Final = 3
_DONE: Final = 4


class ChunkReader:
    """Where a chunked body is, and where it ends.

    `kept`: how many leading bytes of the last input are to be passed on. `owes_end`: the body is
    over and its empty line was cut away with the trailers: write CRLF. `size`: bytes of content so
    far. `payload`: a list that content is appended to, or None where nobody wants it. `scanner`
    is shown the content where it lies.
    """

    __slots__ = (
        "_left",
        "_line",
        "_state",
        "_trailers",
        "kept",
        "owes_end",
        "payload",
        "scanner",
        "size",
    )

    def __init__(self, collects: bool, scanner: EventScanner | None = None) -> None:
        self._state = _SIZE
        self._left = 0
        self._line = b""
        self._trailers = 0
        self.kept = 0
        self.owes_end = False
        self.size = 0
        self.payload: list[bytes] | None = [] if collects else None
        self.scanner = scanner

    @property
    def done(self) -> bool:
        return self._state == _DONE

    def feed(self, received: bytes) -> int:
        """How many of the bytes belong to this body; fewer than all only when it is over.

        Cost: a few steps per chunk whose lines lie whole in this input and carry no extension;
        other lines are cut out and matched.
        Raises: BadFraming; nothing of this input may be passed on then.
        """
        at = 0
        end = len(received)
        self.kept = -1
        while at < end and self._state != _DONE:
            if self._state == _DATA:
                at = self._data(received, at, end)
            elif self._state == _DATA_END:
                at = self._data_end(received, at)
            elif self._line:
                at = self._read_line(received, at)
            else:
                at = self._plain_line(received, at, end)
        if self.kept < 0:
            self.kept = at
        return at

    def _data(self, received: bytes, at: int, end: int) -> int:
        """Past what is here of a chunk's data, and past its CRLF where that is here too."""
        after = min(at + self._left, end)
        if self.payload is not None:
            self.payload.append(received[at:after])
        if self.scanner is not None:
            self.scanner.look(received, at, after)
        self._left -= after - at
        if self._left:
            return after
        if after + 1 < end and received[after] == CR and received[after + 1] == LF:
            self._state = _SIZE
            return after + 2
        self._state = _DATA_END
        return after

    def _plain_line(self, received: bytes, at: int, end: int) -> int:
        """Past a size line of digits only, or the empty line after the last one; others are read
        with all their rights."""
        size = 0
        cr = at
        if self._state == _SIZE:
            while cr < end and DIGIT[received[cr]] < 16:
                size = 16 * size + DIGIT[received[cr]]
                cr += 1
            if cr == at or cr - at > DIGITS_MAX:
                return self._read_line(received, at)
        elif self._trailers:
            return self._read_line(received, at)
        if cr + 1 >= end or received[cr] != CR or received[cr + 1] != LF:
            return self._read_line(received, at)
        if self._state == _SIZE:
            self._begin_chunk(size)
        else:
            self._state = _DONE
        return cr + 2

    def _begin_chunk(self, size: int) -> None:
        self._left = size
        self.size += size
        self._state = _DATA if size else _TRAILERS

    def _data_end(self, received: bytes, at: int) -> int:
        """Past what is here of the CRLF behind a chunk's data."""
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
        self._begin_chunk(int(match[1], 16))

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
