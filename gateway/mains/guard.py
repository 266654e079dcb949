"""The guard of one instance: a small process that starts it, writes its log, and leaves nothing.

Floor 5, I/O.
Whatever command a model is served by, its end is the end of everything it has started: when the
command exits, when the supervisor says so (END), and when the life pipe ends, because then the
supervisor is gone. Only when nothing is left does the guard exit, by the command's own status: its
end says that the device is free. It tells the supervisor on a pipe, one line each: `pid N`;
`failed REASON` when nothing was started; `ended STATUS`, with `oom` when the kernel ran short of
memory meanwhile. The pipe may be gone: then nobody has to be told.
"""

import argparse
import os
import selectors
import signal
import socket
import subprocess
import time
from contextlib import suppress
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import Final

from gateway.launch.capture import Capture
from gateway.launch.logfile import LogFile, Writer
from sluicegate.processes import (
    adopt_orphans,
    die_with_parent,
    end_descendants,
    leave_as,
    oom_kills,
)

END: Final = signal.SIGUSR1  # from the supervisor: end everything now
FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
EXIT_FAILED: Final = 127  # as a shell exits when there is no such program
PIPE_BYTES: Final = 1 << 20  # the most that everybody may ask for: pipe(7)
LOG_WAIT_S: Final = 1.0  # for the last lines, on a disk that may hang
READ_BYTES: Final = 1 << 16
READS_MAX: Final = 16  # in a row, before signals are looked at again


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gateway.mains.guard", description="of one instance")
    parser.add_argument("--life-fd", type=int, required=True)
    parser.add_argument("--said-fd", type=int, required=True, help="where the supervisor is told")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--log-max-bytes", type=int, required=True)
    parser.add_argument("--instance-id", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("command", nargs="+", help="behind --")
    return parser.parse_args(given)


class Guard:
    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._capture = Capture(given.instance_id, given.model, given.version)
        self._exits: dict[int, int] = {}  # of all children, by pid
        self._ending = False
        self._pid = 0
        self._output = -1

    def run(self) -> int:
        """The command's exit status, negative for a signal, once nothing is left of it."""
        adopt_orphans()
        os.set_inheritable(self._given.said_fd, False)
        self._selector = selectors.DefaultSelector()
        self._watch_signals()
        ooms = oom_kills()
        try:
            log = LogFile(self._given.log, self._given.log_max_bytes)
            self._start()
            self._let_go()
        except OSError as exc:
            self._say(f"failed {self._given.command[0]}: {exc}")
            return EXIT_FAILED
        self._writer = Writer(log)  # a thread: nothing is forked from here on
        self._say(f"pid {self._pid}")
        self._selector.register(self._given.life_fd, selectors.EVENT_READ, self._on_life)
        while self._pid not in self._exits and not self._ending:
            for key, _ in self._selector.select():
                key.data()
        end_descendants(self._exits)
        self._on_output()
        self._write(self._capture.finish(time.time()))
        self._writer.finish(LOG_WAIT_S)
        status = self._exits[self._pid]
        short = status == -signal.SIGKILL and not self._ending and oom_kills() > ooms
        self._say(f"ended {status} oom" if short else f"ended {status}")
        return status

    def _start(self) -> None:
        """In a process group of its own, so that what it signals as a group is not us."""
        self._output, theirs = os.pipe()
        os.set_blocking(self._output, False)
        with suppress(OSError):  # a smaller one does too
            fcntl(self._output, F_SETPIPE_SZ, PIPE_BYTES)
        self._selector.register(self._output, selectors.EVENT_READ, self._on_output)
        try:
            command = subprocess.Popen(
                self._given.command,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                pass_fds=(self._given.life_fd,),
                process_group=0,
                preexec_fn=_begin,  # fork is safe: there is one thread so far
            )
        finally:
            os.close(theirs)
        command.returncode = 0  # reaped by us: keeps Popen from reaping or warning
        self._pid = command.pid

    def _let_go(self) -> None:
        """Of the supervisor's own output: whoever reads that may wait for its end, which comes when
        the supervisor has been taken over and we go on. Our last words go to the log.
        """
        fd = os.open(self._given.log, os.O_WRONLY | os.O_APPEND)
        for number in (1, 2):
            os.dup2(fd, number)
        os.close(fd)

    # -- what can happen

    def _watch_signals(self) -> None:
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake = wake  # kept open for the life of the process
        for number in (signal.SIGCHLD, END, *FORWARDED):
            signal.signal(number, lambda *_: None)
        signals = [*FORWARDED, signal.SIGCHLD, END]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)  # a mask is inherited
        self._selector.register(woken, selectors.EVENT_READ, lambda: self._on_signals(woken))

    def _on_signals(self, woken: socket.socket) -> None:
        for number in woken.recv(64):
            if number == END:
                self._ending = True
            elif number in FORWARDED and self._pid not in self._exits:
                with suppress(ProcessLookupError):
                    os.kill(self._pid, number)
        self._reap()

    def _on_life(self) -> None:
        """The supervisor is gone, however that came."""
        self._ending = True

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self._exits[found[0]] = os.waitstatus_to_exitcode(found[1])
                if found[0] != self._pid:
                    del self._exits[found[0]]  # an orphan that has ended by itself

    def _on_output(self) -> None:
        for _ in range(READS_MAX):
            try:
                received = os.read(self._output, READ_BYTES)
            except BlockingIOError:
                return
            if not received:  # closed by the command, which may well go on
                with suppress(KeyError):
                    self._selector.unregister(self._output)
                return
            self._write(self._capture.feed(received, time.time()))

    def _write(self, lines: bytes) -> None:
        for missed in self._writer.put(lines) if lines else ():
            self._capture.missed(missed)

    def _say(self, line: str) -> None:
        with suppress(OSError):
            os.write(self._given.said_fd, f"{' '.join(line.split())}\n".encode())


def _begin() -> None:
    """In the command's process, before it is the command. A shell's background job ignores the
    keyboard's signals, and with it everything that it starts: they are the terminal's matter."""
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    leave_as(Guard(arguments()).run())
