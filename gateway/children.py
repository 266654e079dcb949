"""Child processes of the supervisor: started, signalled, and what an instance's guard says of it.

Floor 3, I/O: Linux.   Owner: the supervisor.
Control and workers are children themselves. An instance stands behind a guard (mains/guard.py),
which is the child: signals go to it, it ends when nothing of the instance is left, and it says on a
pipe which process the instance is and how that ended. An adopted one came with a take-over: the
gateway that has started it is gone, or is going.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gateway.messages import Spawn
from gateway.takeover.adopted import status_of

SAID: Final = "said"  # `{said}` in a guard's command: the number of its pipe to us
END: Final = signal.SIGUSR1  # to a guard: end everything below you


@dataclass(slots=True)
class Child:
    pid: int  # of the process that was started: an instance's guard
    pidfd: int
    handed_over: bool  # an instance, behind its guard: goes along at a take-over
    started: float  # CLOCK_MONOTONIC, seconds
    said_fd: int = -1  # what the guard says; goes along too
    heard: bytes = field(default=b"", repr=False)
    instance_pid: int = 0  # as the guard says
    failed: str = ""  # why nothing was started
    ended: bool = False  # nothing is left of the instance
    status: int | None = None  # by which it ended, as the guard says
    oom: bool = False  # and the kernel killed for want of memory meanwhile
    adopted: bool = False  # not our child: nobody but its parent can reap it
    label: str = ""  # control's, see Spawn

    @property
    def shown_pid(self) -> int:
        """The process that people look for."""
        return self.instance_pid or self.pid

    def hear(self) -> None:
        """Take in what its guard has said; the end of it closes the pipe."""
        while self.said_fd >= 0:
            try:
                received = os.read(self.said_fd, 4096)
            except BlockingIOError:
                break
            if not received:
                os.close(self.said_fd)
                self.said_fd = -1
            self.heard += received
        *lines, self.heard = self.heard.split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            if word == "pid":
                self.instance_pid = int(rest)
            elif word == "failed":
                self.failed = rest
            elif word == "ended":
                status, _, short = rest.partition(" ")
                self.ended, self.status, self.oom = True, int(status), short == "oom"

    def reap(self) -> int | None:
        """How it ended, once its pidfd says that it has; None: not to be known."""
        try:
            if self.adopted:  # a guard's word is known on every kernel
                return self.status if self.ended else status_of(self.pid, self.pidfd)
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        finally:
            os.close(self.pidfd)

    def end_group(self) -> None:
        """Kill what a killed guard has left, as far as it has stayed in the instance's group."""
        with suppress(ProcessLookupError):
            if self.instance_pid:
                os.killpg(self.instance_pid, signal.SIGKILL)

    def signal(self, number: int) -> None:
        """SIGKILL ends everything that the child has started, too."""
        with suppress(ProcessLookupError):
            if number != signal.SIGKILL:
                signal.pidfd_send_signal(self.pidfd, number)
            elif self.handed_over:
                signal.pidfd_send_signal(self.pidfd, END)
                signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)  # it may have been stopped
            else:
                os.killpg(self.pid, signal.SIGKILL)  # not reaped yet: the number is its own


def start(order: Spawn, held: Mapping[str, int]) -> Child:
    """A process in a group of its own (vfork and exec, never a plain fork).

    held: the supervisor's descriptors by name. Raises: OSError; KeyError, when one is not held.
    """
    numbers = {name: held[source] for name, source in order.descriptors.items()}
    said, theirs = os.pipe() if order.handed_over else (-1, -1)
    if order.handed_over:
        os.set_blocking(said, False)
        numbers[SAID] = theirs
    try:
        process = subprocess.Popen(
            [_filled(part, numbers) for part in order.command],
            pass_fds=tuple(numbers.values()),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **order.environment},
            process_group=0,
        )
    except OSError:
        if said >= 0:
            os.close(said)
        raise
    finally:
        if theirs >= 0:
            os.close(theirs)
    process.returncode = 0  # reaped through the pidfd: keeps Popen from reaping or warning
    pidfd = os.pidfd_open(process.pid)
    begun = time.monotonic()
    return Child(process.pid, pidfd, order.handed_over, begun, said, label=order.label)


def _filled(part: str, numbers: Mapping[str, int]) -> str:
    for name, number in numbers.items():
        part = part.replace(f"{{{name}}}", str(number))
    return part
