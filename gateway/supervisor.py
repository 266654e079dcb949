"""The supervisor: holds sockets, shared memory and children, and does what control says.

Floor 4, I/O, no decisions.   Owner: the main thread of `sluicegate serve`.
It outlives a crash of control and of any worker; when it dies itself, everything below ends with
it (life pipes, and a death signal for control and workers). Children are spawned, never forked. The
one thing it does by itself is to start control again. `giving` and `taking` are the two sides of a
take-over, and each of them may be absent: most gateways never meet another one.
"""

import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.children import Child, start
from gateway.controllink import ControlLink
from gateway.messages import (
    Children,
    CutHeld,
    Exit,
    Exited,
    Frozen,
    Held,
    Kill,
    Message,
    Serving,
    Signalled,
    Spawn,
    Spawned,
    SpawnFailed,
)
from gateway.takeover.giving import Giving
from gateway.takeover.offer import shared
from gateway.takeover.taking import Taking
from sluicegate.processes import adopt_orphans, children, kill

log = logging.getLogger(__name__)

CONTROL: Final = "control"
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
EXIT_UNUSABLE: Final = 78  # control says: starting me again would change nothing (EX_CONFIG)
EXIT_CUT: Final = 1  # children were killed with what they held
EXIT_NOT_TAKEN: Final = 1  # the gateway that was to be taken over goes on
SHORT_LIFE_S: Final = 5.0  # a control that dies sooner is started again more slowly
RESTART_MAX_S: Final = 5.0
STOP_WAIT_S: Final = 5.0  # for killed children to be gone at the very end
PATIENCE_S: Final = 20.0  # from a second signal to Exit: cutting takes a moment, killing up to ten


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
        self._released: set[int] = set()  # still our children, and a successor's instances
        self._put_off: list[Kill] = []  # of instances that are not ours before the commit
        self._early = b""  # signals to end before the gateway is ours
        self.giving: Giving | None = None
        self.taking: Taking | None = None

    @property
    def stands_by(self) -> bool:
        """What was offered to us is still the predecessor's."""
        return self.taking is not None and not self.taking.committed

    @property
    def _awaits_answer(self) -> bool:
        """We have asked for the commit: the gateway may be ours already, and ends if we do."""
        return self.stands_by and self.taking is not None and self.taking.asked

    @property
    def given_away(self) -> bool:
        return self.giving is not None and self.giving.given

    # -- the loop

    def serve(self) -> int:
        """Run until control says Exit; the exit code it gave."""
        adopt_orphans()
        self._watch_signals()
        for side in (self.giving, self.taking):
            if side is not None:
                side.begin()
        self._start_control()
        while self._running:
            self.serve_ready(self._wait_s())
            now = time.monotonic()
            if self.giving is not None:
                self.giving.ticked(now)
            if self._patience_ends is not None and now >= self._patience_ends:
                log.error("control has not ended the gateway, ending without it")
                self.exit_code = EXIT_CUT
                self._running = False
            elif self._restart_at is not None and now >= self._restart_at:
                self._start_control()
            elif self.given_away and not self.children:
                self._running = False  # control died, and the workers have finished without it
        self._end_children()
        return self.exit_code

    def serve_ready(self, wait_s: float | None) -> None:
        """Whatever is ready, but nothing that the ones before it have ended: of a child, the pidfd
        and what its guard says are often ready at once."""
        for key, mask in self._selector.select(wait_s):
            current = self._selector.get_map().get(key.fd)
            if current is not None and current.data is key.data:
                key.data(mask)

    def _wait_s(self) -> float | None:
        asked = self.giving.due if self.giving is not None else None
        due = [at for at in (self._restart_at, self._patience_ends, asked) if at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def watch(self, what: int | socket.socket, then: Callable[[int], None]) -> None:
        self._selector.register(what, selectors.EVENT_READ, then)

    def unwatch(self, what: int | socket.socket) -> None:
        self._selector.unregister(what)

    def _watch_signals(self) -> None:
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._wake = wake  # kept open for the life of the process
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # a mask is inherited
        self.watch(woken, lambda _: self._on_signals(woken.recv(64)))

    def _on_signals(self, numbers: bytes) -> None:
        if self.stands_by:  # with the commit the file is read anyway
            self._early += numbers.replace(bytes([signal.SIGHUP]), b"")
            if len(self._early) > self._awaits_answer:
                self.fail("asked to end before it had taken over")
            return
        for number in numbers:
            if number == signal.SIGHUP:
                self.tell(Signalled(self._signals, reload=True))
                continue
            if self.giving is not None:
                self.giving.cancel("the running gateway is asked to end")
            self._signals += 1
            if self._signals == 2:
                self._patience_ends = time.monotonic() + PATIENCE_S
            elif self._signals > 2:
                self._patience_ends = time.monotonic()
            self.tell(Signalled(self._signals, reload=False))

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
        command = self._control_command + (("--stand-by",) if self.stands_by else ())
        try:
            self._spawn(Spawn(CONTROL, command, {n: n for n in names}, {}, False))
        except OSError as exc:
            ours.close()
            self._start_later(exc)
            return
        finally:
            theirs.close()
            del self.descriptors["supervisor"]
        self._link = ControlLink(ours, self._selector, self._carry_out, self._unlinked)
        pids = {name: child.shown_pid for name, child in self.children.items() if name != CONTROL}
        labels = {name: child.label for name, child in self.children.items() if child.label}
        self.tell(Children(pids, self._workers, labels))
        if self._signals:
            self.tell(Signalled(self._signals, reload=False))
        if self.taking is not None:
            self.taking.control_began()

    def _start_later(self, exc: OSError) -> None:
        """The machine lacks something now; what runs goes on, and we try again."""
        log.error("control cannot be started, trying again", extra={"reason": str(exc)})
        self._restart_at = time.monotonic() + RESTART_MAX_S

    def _spawn(self, order: Spawn) -> None:
        child = start(order, self.descriptors)
        self.children[order.name] = child
        self._watch_child(order.name, child)
        if child.said_fd < 0 and order.name != CONTROL:
            self.tell(Spawned(order.name, child.pid))

    def _watch_child(self, name: str, child: Child) -> None:
        self.watch(child.pidfd, lambda _: self._on_exit(name, child))
        if child.said_fd >= 0:
            self.watch(child.said_fd, lambda _: self._on_said(name, child))

    def _on_said(self, name: str, child: Child) -> None:
        """Its guard tells which process the instance is, or why there is none."""
        said_fd, known = child.said_fd, child.instance_pid
        child.hear()
        if child.said_fd < 0:
            self._selector.unregister(said_fd)
        if child.instance_pid != known:
            self.tell(Spawned(name, child.instance_pid))

    def _on_exit(self, name: str, child: Child) -> None:
        if child.said_fd >= 0:
            self._on_said(name, child)
        self._selector.unregister(child.pidfd)
        status = child.reap()
        if child.pid in self._released:
            self._released.remove(child.pid)
            self._sweep()  # what a killed guard leaves is given to us, and the successor knows none
            return
        if self.children.get(name) is child:
            del self.children[name]
        exited = Exited(name, child.shown_pid, status, child.oom)
        if name == CONTROL:
            self._on_control_exit(child, status)
        elif child.failed:
            self.tell(SpawnFailed(name, child.failed))
        elif child.handed_over and not child.ended:  # the guard itself was killed
            if child.adopted:  # what it leaves is not given to us
                child.end_group()
            self._owed.append(exited)
            self._sweep()
        else:
            self.tell(exited)

    def _sweep(self) -> None:
        """End what killed guards have left to us; only then are their instances gone."""
        ours = {child.pid for child in self.children.values()}
        for pid in children(os.getpid()) - ours - self._strays - self._released:
            kill([pid])
            self._strays.add(pid)
            pidfd = os.pidfd_open(pid)
            self.watch(pidfd, partial(self._on_stray_exit, pid, pidfd))
        if not self._strays:
            owed, self._owed = self._owed, []
            for exited in owed:
                self.tell(exited)

    def _on_stray_exit(self, pid: int, pidfd: int, _: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        os.waitpid(pid, 0)
        self._strays.remove(pid)
        self._sweep()  # what it had started is ours now

    def _on_control_exit(self, child: Child, status: int | None) -> None:
        if self._link is not None:
            self._link.ready(selectors.EVENT_READ)  # its last orders may still be there
        if not self._running:
            return
        if status == EXIT_UNUSABLE and not self._served:  # later, workers go on with what they have
            self.exit_code = status
            self._running = False
            return
        if self._awaits_answer:  # which starts control again, or ends us
            log.warning("control died", extra={"status": status})
            return
        if self.stands_by:
            self.fail(f"its control ended with status {status}")
            return
        if self.given_away:  # the next control would claim the store: it is the successor's
            log.error("control died, workers finish without it", extra={"status": status})
            self._patience_ends = time.monotonic() + PATIENCE_S
            return
        if self.giving is not None:
            self.giving.control_died()
        lived_s = time.monotonic() - child.started
        self._short_lives = self._short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        wait_s = min(RESTART_MAX_S, 0.1 * 2**self._short_lives) if self._short_lives else 0.0
        log.warning("control died, starting it again", extra={"status": status, "in_s": wait_s})
        self._restart_at = time.monotonic() + wait_s

    def _end_children(self) -> None:
        """Kill what is left, with all that it has started, and wait until it is gone."""
        if self.stands_by:
            self.children = {name: one for name, one in self.children.items() if not one.adopted}
        for child in self.children.values():
            child.signal(signal.SIGKILL)
        deadline = time.monotonic() + STOP_WAIT_S
        while (self.children or self._strays) and time.monotonic() < deadline:
            self.serve_ready(deadline - time.monotonic())

    # -- control's side

    def tell(self, message: Message) -> None:
        if self._link is not None:  # else its successor begins with the whole picture
            self._link.say(message)

    def _unlinked(self) -> None:
        self._link = None

    def _carry_out(self, order: Message) -> None:
        match order:
            case _ if not self._running:
                pass  # given before it was killed, and read behind our own end
            case Spawn(name) if name in self.children:  # what runs is never lost sight of
                self.tell(SpawnFailed(name, f"a child called {name} still runs"))
            case Spawn():
                try:
                    self._spawn(order)
                except (OSError, KeyError) as exc:
                    self.tell(SpawnFailed(order.name, f"{order.command[0]}: {exc}"))
            case Kill(name, number) if name in self.children:
                if self.stands_by and self.children[name].adopted:
                    self._put_off.append(order)
                else:
                    self.children[name].signal(number)
            case Kill():
                pass  # it has ended meanwhile; Exited is on its way
            case Serving():
                self._served = True
                if self.taking is not None:
                    self.taking.serving()
            case Frozen() if self.giving is not None:
                self.giving.frozen()
            case Held() if self.giving is not None:
                self.giving.held(order)
            case CutHeld(instance) if self.taking is not None:
                self.taking.cut(instance)
            case Exit(code):
                self.exit_code = code
                self._running = False
            case _:
                raise AssertionError(f"control may not say {type(order).__name__}")

    # -- a take-over's side

    def hindrance(self) -> str:
        if self._signals:
            return "the running gateway is closing: start without --take-over when it has ended"
        if not self._served or self.stands_by:
            return "the running gateway does not serve yet: nothing is lost by stopping it"
        if self._link is None:
            return "control of the running gateway has died and is started again: try again then"
        if self.taking is not None and self.taking.predecessor:
            return (
                "the running gateway has taken over itself just now, and its predecessor (pid "
                f"{self.taking.predecessor}) still finishes requests: try again when that has ended"
            )
        return ""

    def release(self) -> None:
        gone = {name: child for name, child in self.children.items() if child.handed_over}
        for name, child in gone.items():
            del self.children[name]
            self._released.add(child.pid)
            if child.said_fd >= 0:  # its pidfd stays: who has started it has to reap it
                self._selector.unregister(child.said_fd)
                os.close(child.said_fd)
                child.said_fd = -1
        for name in shared(self.descriptors):
            os.close(self.descriptors.pop(name))

    def adopt(self) -> None:
        for name, child in self.children.items():
            if child.adopted:
                self._watch_child(name, child)
        for order in self._put_off:
            self._carry_out(order)
        if CONTROL not in self.children:
            self._restart_at = time.monotonic()
        if self._early:
            self._on_signals(self._early)

    def fail(self, why: str) -> None:
        log.error("not taken over, the running gateway goes on", extra={"reason": why})
        if self.taking is not None:
            self.taking.give_up()
        self.exit_code = EXIT_NOT_TAKEN
        self._running = False
