"""What an instance writes to its standard output and error, as log lines that say who wrote it.

Floor 2, no I/O.   Owner: the guard of the instance.
Every line becomes one JSON document with `instance_id` and `model_version`: what is one already
keeps its fields, anything else becomes its `message`, whatever bytes it is made of. Length of a
line and bytes a second are bounded; what is over is dropped and counted, never waited for.
"""

from contextlib import suppress
from typing import Any, Final

import orjson

LINE_MAX: Final = 32_768  # bytes; a longer line is written in pieces
BYTES_PER_S_MAX: Final = 4 << 20  # of one instance: far above any log, below what fills a disk


class Capture:
    """Bytes as they come, whole log lines as they go."""

    def __init__(self, instance_id: str, model: str, version: str) -> None:
        self._always = {"instance_id": instance_id, "model": model, "model_version": version}
        self._rest = b""
        self._second = 0  # the second that is counted
        self._taken = 0  # bytes in it
        self._dropped = 0  # lines since the last notice

    def feed(self, received: bytes, at: float) -> bytes:
        """The lines that are whole now, each with its newline. `at`: wall clock, seconds."""
        notice = self._notice(at)
        if self._taken > BYTES_PER_S_MAX:
            self._dropped += received.count(b"\n")
            self._rest = b""
            return notice
        *lines, rest = (self._rest + received).split(b"\n")
        while len(rest) >= LINE_MAX:
            lines.append(rest[:LINE_MAX])
            rest = rest[LINE_MAX:]
        self._rest = rest
        taken = b"".join(self._document(line, at) for line in lines if line.strip())
        self._taken += max(len(received), len(taken))
        return notice + taken

    def missed(self, lines: bytes) -> None:
        """The disk did not take these."""
        self._dropped += lines.count(b"\n")

    def finish(self, at: float) -> bytes:
        """What is left at the end, whole or not."""
        left = self._document(self._rest, at) if self._rest.strip() else b""
        self._rest = b""
        self._second = 0
        return self._notice(at) + left

    def _notice(self, at: float) -> bytes:
        """In a new second: how much of the last ones was dropped."""
        if int(at) == self._second:
            return b""
        self._second, self._taken = int(at), 0
        dropped, self._dropped = self._dropped, 0
        if not dropped:
            return b""
        text = f"{dropped} lines dropped: too many in a second, or the disk took no more"
        return self._plain(text, "warning", at)

    def _document(self, line: bytes, at: float) -> bytes:
        if len(line) <= LINE_MAX and line.startswith(b"{"):
            with suppress(TypeError, ValueError):  # not JSON, or deeper than can be written
                return _dumped(orjson.loads(line) | self._always)
        pieces = (line[n : n + LINE_MAX] for n in range(0, len(line), LINE_MAX))
        return b"".join(
            self._plain(piece.decode(errors="backslashreplace"), "info", at) for piece in pieces
        )

    def _plain(self, text: str, level: str, at: float) -> bytes:
        line = {"at": round(at, 3), "level": level, "message": text.rstrip("\r"), **self._always}
        return _dumped(line)


def _dumped(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
