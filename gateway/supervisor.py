"""The supervisor: holds sockets, shared memory and children, and does what control says.

Floor 4, I/O, no decisions.   Owner: the main thread of `sluicegate serve`.
It outlives a crash of control and of any worker; when it dies itself, everything below ends with
it (life pipes, and a death signal for control and workers). Children are spawned, never forked. The
one thing it does by itself is to start control again.
"""

import json
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from gateway.children import Child, start
from gateway.messages import (
    Children,
    Exit,
    Exited,
    Kill,
    LineBuffer,
    Message,
    Serving,
    Signalled,
    Spawn,
    Spawned,
    SpawnFailed,
    encode,
)
from gateway.processes import adopt_orphans, children, kill

log = logging.getLogger(__name__)

CONTROL: Final = "control"
EXIT_UNUSABLE: Final = 78  # control says: starting me again would change nothing (EX_CONFIG)
EXIT_CUT: Final = 1  # children were killed with what they held
SHORT_LIFE_S: Final = 5.0  # a control that dies sooner is started again more slowly
RESTART_MAX_S: Final = 5.0
STOP_WAIT_S: Final = 5.0  # for killed children to be gone at the very end
PATIENCE_S: Final = 20.0  # from a second signal to Exit: cutting takes a moment, killing up to ten


@dataclass(slots=True)
class ControlLink:
    """The socket to the control process; what it has not read yet waits here."""

    sock: socket.socket
    incoming: LineBuffer = field(default_factory=LineBuffer)
    outgoing: bytearray = field(default_factory=bytearray)


class Supervisor:
    """Descriptors by name, children by name, and a loop that serves control.

    control_command: with `{name}` where a descriptor's number belongs.
    """

    def __init__(
        self, descriptors: dict[str, int], control_command: tuple[str, ...], workers: int
    ) -> None:
        self.descriptors = descriptors
        self.children: dict[str, Child] = {}
        self.exit_code = 0
        self._control_command = control_command
        self._workers = workers
        self._selector = selectors.DefaultSelector()
        self._link: ControlLink | None = None
        self._running = True
        self._short_lives = 0
        self._restart_at: float | None = None
        self._signals = 0
        self._served = False  # control once said that every worker serves
        self._patience_ends: float | None = None  # asked twice to end; control must answer by then
        self._strays: set[int] = set()  # what a killed guard has left to us
        self._owed: list[Exited] = []  # told when there are none

    # -- the loop

    def serve(self) -> int:
        """Run until control says Exit; the exit code it gave."""
        adopt_orphans()
        self._watch_signals()
        self._start_control()
        while self._running:
            for key, mask in self._selector.select(self._wait_s()):
                key.data(mask)
            now = time.monotonic()
            if self._patience_ends is not None and now >= self._patience_ends:
                log.error("control has not ended the gateway, ending without it")
                self.exit_code = EXIT_CUT
                self._running = False
            elif self._restart_at is not None and now >= self._restart_at:
                self._start_control()
        self._end_children()
        return self.exit_code

    def _wait_s(self) -> float | None:
        due = [at for at in (self._restart_at, self._patience_ends) if at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _watch(self, what: int | socket.socket, then: Callable[[int], None]) -> None:
        self._selector.register(what, selectors.EVENT_READ, then)

    def _watch_signals(self) -> None:
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake = wake  # kept open for the life of the process
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        self._watch(woken, lambda _: self._on_signals(woken.recv(64)))

    def _on_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number == signal.SIGHUP:
                self._tell(Signalled(self._signals, reload=True))
                continue
            self._signals += 1
            if self._signals == 2:
                self._patience_ends = time.monotonic() + PATIENCE_S
            elif self._signals > 2:
                self._patience_ends = time.monotonic()
            self._tell(Signalled(self._signals, reload=False))

    # -- children

    def _start_control(self) -> None:
        self._restart_at = None
        try:
            ours, theirs = socket.socketpair()
        except OSError as exc:
            self._start_later(exc)
            return
        self.descriptors["supervisor"] = theirs.fileno()
        names = ("segment", "life", "supervisor", "door", "admin")
        spawn = Spawn(CONTROL, self._control_command, {n: n for n in names}, {}, False)
        try:
            self._spawn(spawn)
        except OSError as exc:
            ours.close()
            self._start_later(exc)
            return
        finally:
            theirs.close()
            del self.descriptors["supervisor"]
        ours.setblocking(False)
        self._link = link = ControlLink(ours)
        self._watch(ours, lambda mask: self._on_link(link, mask))
        pids = {name: child.shown_pid for name, child in self.children.items() if name != CONTROL}
        self._tell(Children(pids, self._workers))
        if self._signals:
            self._tell(Signalled(self._signals, reload=False))

    def _start_later(self, exc: OSError) -> None:
        """The machine lacks something now; what runs goes on, and we try again."""
        log.error("control cannot be started, trying again", extra={"reason": str(exc)})
        self._restart_at = time.monotonic() + RESTART_MAX_S

    def _spawn(self, order: Spawn) -> None:
        child = start(order, self.descriptors)
        self.children[order.name] = child
        self._watch(child.pidfd, lambda _: self._on_exit(order.name, child))
        if child.said_fd >= 0:
            self._watch(child.said_fd, lambda _: self._on_said(order.name, child))
        elif order.name != CONTROL:
            self._tell(Spawned(order.name, child.pid))

    def _on_said(self, name: str, child: Child) -> None:
        """Its guard tells which process the instance is, or why there is none."""
        said_fd, known = child.said_fd, child.instance_pid
        child.hear()
        if child.said_fd < 0:
            self._selector.unregister(said_fd)
        if child.instance_pid != known:
            self._tell(Spawned(name, child.instance_pid))

    def _on_exit(self, name: str, child: Child) -> None:
        if child.said_fd >= 0:
            self._on_said(name, child)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        del self.children[name]
        exited = Exited(name, child.shown_pid, status, child.oom)
        if name == CONTROL:
            self._on_control_exit(child, status)
        elif child.failed:
            self._tell(SpawnFailed(name, child.failed))
        elif child.handed_over and not child.ended:  # the guard itself was killed
            self._owed.append(exited)
            self._sweep()
        else:
            self._tell(exited)

    def _sweep(self) -> None:
        """End what killed guards have left to us; only then are their instances gone."""
        ours = {child.pid for child in self.children.values()}
        for pid in children(os.getpid()) - ours - self._strays:
            kill([pid])
            self._strays.add(pid)
            pidfd = os.pidfd_open(pid)
            self._watch(pidfd, partial(self._on_stray_exit, pid, pidfd))
        if not self._strays:
            owed, self._owed = self._owed, []
            for exited in owed:
                self._tell(exited)

    def _on_stray_exit(self, pid: int, pidfd: int, _: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        os.waitpid(pid, 0)
        self._strays.remove(pid)
        self._sweep()  # what it had started is ours now

    def _on_control_exit(self, child: Child, status: int) -> None:
        if self._link is not None:
            self._on_link(self._link, selectors.EVENT_READ)  # its last orders may still be there
        if not self._running:
            return
        if status == EXIT_UNUSABLE and not self._served:  # later, workers go on with what they have
            self.exit_code = status
            self._running = False
            return
        lived_s = time.monotonic() - child.started
        self._short_lives = self._short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        wait_s = min(RESTART_MAX_S, 0.1 * 2**self._short_lives) if self._short_lives else 0.0
        log.warning("control died, starting it again", extra={"status": status, "in_s": wait_s})
        self._restart_at = time.monotonic() + wait_s

    def _end_children(self) -> None:
        """Kill what is left, with all that it has started, and wait until it is gone."""
        for child in self.children.values():
            child.signal(signal.SIGKILL)
        deadline = time.monotonic() + STOP_WAIT_S
        while (self.children or self._strays) and time.monotonic() < deadline:
            for key, mask in self._selector.select(deadline - time.monotonic()):
                key.data(mask)

    # -- control's side

    def _tell(self, message: Message) -> None:
        if self._link is None:
            return  # its successor begins with the whole picture
        self._link.outgoing += encode(message)
        self._flush(self._link)

    def _flush(self, link: ControlLink) -> None:
        try:
            while link.outgoing:
                del link.outgoing[: link.sock.send(link.outgoing)]
        except BlockingIOError:
            pass
        except OSError:  # it is gone: its exit says so
            link.outgoing.clear()
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        wanted = both if link.outgoing else selectors.EVENT_READ
        if link is self._link:
            self._selector.modify(link.sock, wanted, lambda mask: self._on_link(link, mask))

    def _on_link(self, link: ControlLink, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush(link)
        if not mask & selectors.EVENT_READ:
            return
        received = b""
        try:
            while chunk := link.sock.recv(1 << 16):
                received += chunk
        except BlockingIOError:
            ended = False
        except OSError:
            ended = True
        else:
            ended = True
        for message in link.incoming.feed(received):
            self._carry_out(message)
        if ended:
            self._selector.unregister(link.sock)
            link.sock.close()
            self._link = None

    def _carry_out(self, order: Message) -> None:
        match order:
            case Spawn():
                try:
                    self._spawn(order)
                except (OSError, KeyError) as exc:
                    self._tell(SpawnFailed(order.name, f"{order.command[0]}: {exc}"))
            case Kill(name, number) if name in self.children:
                self.children[name].signal(number)
            case Kill():
                pass  # it has ended meanwhile; Exited is on its way
            case Serving():
                self._served = True
            case Exit(code):
                self.exit_code = code
                self._running = False
            case _:
                raise AssertionError(f"control may not say {type(order).__name__}")


def write_whereabouts(path: Path, document: dict[str, object]) -> None:
    """Say where this gateway listens, for the command line and for tests; whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=2) + "\n")
    fresh.replace(path)
