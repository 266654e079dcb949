"""The guard of a server: starts it, and leaves nothing of it behind.

Floor 5, I/O.
The end of the agent, however that comes, ends the life pipe, and that ends whatever the server has
started, in whatever session. SIGTERM goes to the server's process group; END, from the agent, ends
everything now. The guard exits last, as the command did: its end says that the device is free.
"""

import os
import selectors
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Final

from sluicegate.processes import adopt_orphans, die_with_parent, end_descendants, leave_as

END: Final = signal.SIGUSR1
EXIT_NO_COMMAND: Final = 127  # as a shell exits


class Guard:
    def __init__(self, life_fd: int, command: list[str]) -> None:
        self._life_fd = life_fd
        self._command = command
        self._exits: dict[int, int] = {}  # by pid
        self._ending = False
        self._pid = 0

    def run(self) -> int:
        """The command's exit status, negative for a signal, once nothing is left of it."""
        adopt_orphans()
        os.set_inheritable(self._life_fd, False)
        selector = selectors.DefaultSelector()
        woken = self._watch_signals()
        try:
            self._start()
        except OSError as exc:
            print(f"{self._command[0]}: {exc.strerror}", file=sys.stderr, flush=True)
            return EXIT_NO_COMMAND
        selector.register(woken, selectors.EVENT_READ, lambda: self._on_signals(woken))
        selector.register(self._life_fd, selectors.EVENT_READ, self._on_life)
        while self._pid not in self._exits and not self._ending:
            for key, _ in selector.select():
                key.data()
        end_descendants(self._exits)
        return self._exits[self._pid]

    def _start(self) -> None:
        """In a process group of its own, which SIGTERM goes to whole."""
        command = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=die_with_parent,  # fork is safe: there is one thread
        )
        command.returncode = 0  # reaped by us: keeps Popen from reaping or warning
        self._pid = command.pid

    def _watch_signals(self) -> socket.socket:
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake = wake  # kept open for the life of the process
        numbers = (signal.SIGCHLD, signal.SIGTERM, END)
        for number in numbers:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)  # a mask is inherited
        return woken

    def _on_signals(self, woken: socket.socket) -> None:
        for number in woken.recv(64):
            if number == END:
                self._ending = True
            elif number == signal.SIGTERM and self._pid not in self._exits:
                with suppress(ProcessLookupError):
                    os.killpg(self._pid, signal.SIGTERM)
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self._exits[found[0]] = os.waitstatus_to_exitcode(found[1])

    def _on_life(self) -> None:
        self._ending = True


if __name__ == "__main__":
    leave_as(Guard(int(sys.argv[1]), sys.argv[2:]).run())
