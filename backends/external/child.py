"""The server as a process: started behind a guard, listened to, and ended.

Floor 3, I/O.
What it writes goes on to our standard error as it is, and its last lines are kept: they are the
reason when it dies. `exited` is set once nothing is left of it.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from backends.external.guard import END, EXIT_NO_COMMAND

log = logging.getLogger(__name__)

GUARD: Final = "backends.external.guard"
LINES: Final = 3  # of its last ones, in a reason
LINE_MAX: Final = 300  # characters of each
KEPT_BYTES: Final = 8192
LAST_WORDS_S: Final = 1.0  # for the end of its output, once it has ended
# A restart would change nothing: wrong arguments (argparse, EX_USAGE), EX_CONFIG of sysexits.h, and
# how a shell says that there is no such command or that it may not be run.
USELESS: Final = frozenset({2, 64, 78, 126, EXIT_NO_COMMAND})


@dataclass(frozen=True, slots=True)
class Exit:
    status: int  # negative: the signal
    last: str  # what it said last

    @property
    def is_useless(self) -> bool:
        """Starting it again would change nothing."""
        return self.status in USELESS

    def __str__(self) -> str:
        if self.status < 0:
            how = f"was ended by signal {-self.status} ({signal.Signals(-self.status).name})"
        else:
            how = f"exited with status {self.status}"
        return f"the server {how}; it said last: {self.last}" if self.last else f"the server {how}"


class Child:
    def __init__(
        self,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        sweep: Callable[[], None] = lambda: None,
    ) -> None:
        """`sweep` ends what a guard that was killed itself has left to us."""
        self._command = command
        self._environment = dict(environment)
        self._sweep = sweep
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._tail = _Tail()
        self._process: subprocess.Popen[bytes] | None = None
        self._life = -1  # our end of the pipe whose end is the end of the guard
        self._telling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        theirs, self._life = os.pipe()
        output, written = os.pipe()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: self._tail, os.fdopen(output, "rb", 0))
        try:
            # Not asyncio's: with this one no handler of a fork runs, and gRPC has some.
            process = subprocess.Popen(  # noqa: ASYNC220 - it returns once the guard is there
                [sys.executable, "-P", "-m", GUARD, str(theirs), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                pass_fds=(theirs,),
                env=self._environment,
                start_new_session=True,  # a terminal's Ctrl-C is for us: we drain first
            )
        finally:
            os.close(theirs)
            os.close(written)
        self._process = process
        pidfd = os.pidfd_open(process.pid)
        loop.add_reader(pidfd, self._ended, pidfd)
        # No more of the command line than the program: the rest may hold a key.
        log.info("server started", extra={"guard": process.pid, "program": self._command[0]})

    async def stop(self, kill_after_s: float) -> None:
        """Returns when nothing is left of it: SIGTERM to its group, then SIGKILL to all below."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)  # nothing, once it has ended
        try:
            async with asyncio.timeout(kill_after_s):
                await asyncio.shield(self.exited)
        except TimeoutError:
            log.warning("server killed", extra={"after_s": kill_after_s})
            process.send_signal(END)
            await asyncio.shield(self.exited)

    def _ended(self, pidfd: int) -> None:
        """The guard has, and with it all that was below it."""
        assert self._process is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(pidfd)
        os.close(pidfd)
        os.close(self._life)
        status = self._process.wait()
        self._sweep()
        self._telling = loop.create_task(self._tell(status), name="child")

    async def _tell(self, status: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._tail.ended.wait()
        self.exited.set_result(Exit(status, self._tail.last()))


class _Tail(asyncio.Protocol):
    """Passes on what the server writes, and keeps the end of it."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._kept: deque[bytes] = deque()
        self._bytes = 0

    def data_received(self, data: bytes) -> None:
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()
        self._kept.append(data[-KEPT_BYTES:])
        self._bytes += len(self._kept[-1])
        while self._bytes - len(self._kept[0]) >= KEPT_BYTES:
            self._bytes -= len(self._kept.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def last(self) -> str:
        text = b"".join(self._kept).decode(errors="replace")
        lines = [" ".join(line.split()) for line in text.splitlines()]
        return " | ".join([line[:LINE_MAX] for line in lines if line][-LINES:])
