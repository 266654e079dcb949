"""The one writer of where an instance stands, and those who want to know of each change.

Floor 2, no I/O.   Owner: the instance's event loop; nothing else writes.
Three parties give orders: the gateway (gRPC, or its answer to a beat), the operating system
(SIGTERM), and the load that fails. All of them come through here, in any order and any number of
times, and a repeated order is answered with what is already going on.
A drain alone cuts nothing, however late it gets: it may hold the instance out for days. Only a stop
has a deadline that is acted on.
"""

from collections.abc import Callable
from dataclasses import dataclass

from backends.gate import Gate
from backends.lifecycle import Event, Standing, follow, progressed
from sluicegate.v1.states import Phase, State

Told = Callable[[], None]


class OrderRefused(Exception):
    """An order that makes no sense in this state; the message says which would."""


def asked_or(asked_s: float, default_s: float) -> float:
    """The grace of an order; proto3 cannot tell 0 from nothing, so 0 asks for the default.

    Who wants no grace at all forces the stop.
    """
    return asked_s if asked_s > 0 else default_s


@dataclass(frozen=True, slots=True)
class Drained:
    """The answer to a drain."""

    already: bool  # one was running: this is that one
    remaining_s: float  # until its deadline


class Life:
    """One life of one instance id."""

    def __init__(self, instance_id: str, gate: Gate) -> None:
        self.standing = Standing(instance_id)
        self.stop_at: float | None = None  # loop time at which what is still held is cut
        self.overdue_at: float | None = None  # loop time by which it should have ended, in ERROR
        self._gate = gate
        self._drain_at = 0.0  # loop time; means something in DRAINING only
        self._drains = 0  # ever begun; the number of the last one
        self._watchers: dict[int, Told] = {}
        self._watchers_ever = 0
        self._phase_began = 0.0
        self._spent_s: dict[Phase, float] = {}

    # --- who wants to know --------------------------------------------------------------------

    def watch(self, then: Told) -> Told:
        """Call `then` after each change; what comes back ends that.

        It must not raise and must not change this life: it is called in the middle of a change.
        """
        self._watchers_ever += 1
        number = self._watchers_ever
        self._watchers[number] = then

        def unwatch() -> None:
            self._watchers.pop(number, None)

        return unwatch

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def spent_ms(self, *phases: Phase) -> float:
        """How long the phases took that are over."""
        return 1000 * sum(self._spent_s.get(phase, 0.0) for phase in phases)

    @property
    def is_stopping(self) -> bool:
        return self.stop_at is not None

    # --- on the way to READY ------------------------------------------------------------------

    def begin(self, now: float) -> None:
        self._phase_began = now

    def progress(self, phase: Phase, share: float, reason: str, now: float) -> None:
        """`share` of `phase` is done.

        Ignored here: a report of the model thread that arrives after the load was given up.
        """
        if self.standing.state is State.INITIALIZING:
            self._change(progressed(self.standing, phase, share, reason), now)

    def verified(self, now: float, reason: str = "") -> None:
        self._change(follow(self.standing, Event.VERIFIED, reason), now)

    def fail(self, reason: str, now: float) -> None:
        """Ignored here: a second failure, and one of an instance that is gone already."""
        if self.standing.state not in (State.ERROR, State.STOPPED):
            self._change(follow(self.standing, Event.FAILED, reason), now)

    # --- orders -------------------------------------------------------------------------------

    def drain(self, grace_s: float, reason: str, now: float) -> Drained:
        """Refuse new work from now on.

        Raises: OrderRefused unless READY or DRAINING.
        """
        if self.standing.state is State.DRAINING:
            until = self._drain_at if self.stop_at is None else self.stop_at
            return Drained(True, max(0.0, until - now))
        if self.standing.state is not State.READY:
            raise OrderRefused(f"nothing to drain in {self.standing.state.name}; it can be stopped")
        self._drain_at = now + grace_s
        self._drains += 1
        drain = self._drains
        self._change(follow(self.standing, Event.DRAIN_ASKED, reason), now)
        self._gate.when_empty(lambda: self._emptied(drain))
        return Drained(False, grace_s)

    def resume(self, now: float) -> None:
        """Take work again.

        Raises: OrderRefused unless READY already, or DRAINING without a stop.
        """
        if self.is_stopping:
            raise OrderRefused("it is stopping, and a stop cannot be taken back")
        if self.standing.state is State.READY:
            return
        if self.standing.state is not State.DRAINING:
            raise OrderRefused(f"nothing to resume in {self.standing.state.name}")
        self._change(follow(self.standing, Event.RESUMED), now)

    def stop(self, grace_s: float, reason: str, now: float) -> None:
        """Drain if READY, then end at the latest in `grace_s`; a later stop can only hasten it."""
        if self.standing.state is State.STOPPED:
            return
        if self.standing.state is State.READY:
            self.drain(grace_s, reason, now)
        stop_at = now + grace_s
        self.stop_at = stop_at if self.stop_at is None else min(self.stop_at, stop_at)
        self._tell()

    def stopped(self, reason: str, now: float) -> None:
        self._change(follow(self.standing, Event.STOPPED, reason), now)

    # --- inside -------------------------------------------------------------------------------

    def _emptied(self, drain: int) -> None:
        # A drain that was resumed may become empty long after; by then it is nobody's news.
        if self.standing.state is State.DRAINING and drain == self._drains:
            reason = f"{self.standing.reason}; nothing is in flight".lstrip("; ")
            self.standing = follow(self.standing, Event.EMPTIED, reason)
            self._tell()

    def _change(self, standing: Standing, now: float) -> None:
        old = self.standing
        if old.phase is not standing.phase:
            self._spent_s[old.phase] = now - self._phase_began
            self._phase_began = now
        self.standing = standing
        self._tell()

    def _tell(self) -> None:
        for told in tuple(self._watchers.values()):
            told()
