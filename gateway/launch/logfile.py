"""A log file of bounded size: when it is full it becomes `NAME.1`, and a new one begins.

Floor 3, I/O.   Owner: the guard of the instance.
A disk that takes no more costs lines; it holds nobody up. Nor does one that hangs: a thread of its
own waits for it, because whoever guards a process has to hear of its end meanwhile.
"""

import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Final

QUEUE_MAX: Final = 16  # pieces that wait for the disk; each is what one read has become


class LogFile:
    """path: of the file that is written to. max_bytes: of it, and of the one before it.

    Raises: OSError, when it cannot be opened at the start.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._torn = False  # the last line is in the file in part
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = self._open()

    def write(self, lines: bytes) -> bool:
        """Whole lines, which stay in one file; False when the disk does not take them."""
        if self._torn:
            lines = b"\n" + lines
        try:
            if self._fd < 0:
                self._fd = self._open()
            if self._size and self._size + len(lines) > self._max_bytes:
                self._rotate()
            written = os.write(self._fd, lines)
        except OSError:
            return False
        self._size += written
        self._torn = written < len(lines)
        return not self._torn

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = os.fstat(fd).st_size
        return fd

    def _rotate(self) -> None:
        with suppress(FileNotFoundError):  # somebody has moved it, or removed it
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self.close()
        self._fd = self._open()


class Writer:
    """The thread that writes to a log file; begun after the last fork."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self._waiting: Queue[bytes] = Queue(QUEUE_MAX)
        self._refused: deque[bytes] = deque()  # by the disk, since the last `put`
        self._thread = Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def put(self, lines: bytes) -> list[bytes]:
        """Have the lines written; never waits. What the disk did not take so far comes back."""
        missed = [self._refused.popleft() for _ in range(len(self._refused))]
        try:
            self._waiting.put_nowait(lines)
        except Full:
            missed.append(lines)
        return missed

    def finish(self, wait_s: float) -> None:
        """Let it write what is left, for so long."""
        try:
            self._waiting.put(b"", timeout=wait_s)
        except Full:
            return
        self._thread.join(wait_s)

    def _run(self) -> None:
        while lines := self._waiting.get():
            if not self._log.write(lines):
                self._refused.append(lines)
