"""Polls one instance and watches it, on paper."""

from typing import TYPE_CHECKING

from gateway.fleet import events as e
from gateway.fleet.status import Status
from tests.sim.agenda import Entry, Wire, hop_s
from tests.sim.instance import SimInstance

if TYPE_CHECKING:
    from tests.sim.control import Control


CALL_S = 3.0
NS = 1_000_000_000


class Follower:
    """Polls one instance and watches it: `controlplane/poll.py` without gRPC."""

    def __init__(self, control: "Control", name: str, grpc: str) -> None:
        self.control, self.name, self.grpc = control, name, grpc
        self.agenda, self.rng = control.agenda, control.world.rng
        self.over = False
        self._busy = self._asked = False
        self._next: Entry | None = None
        self._watched: SimInstance | None = None
        self._stream = Wire(self.agenda, self.rng)

    def begin(self) -> None:
        self.agenda.later(0.0, self._poll)
        self.agenda.later(hop_s(self.rng), self._open)

    def end(self) -> None:
        self.over = True
        if self._watched is not None and self in self._watched.watchers:
            self._watched.watchers.remove(self)

    # -- polls

    def poll_now(self) -> None:
        if self._busy:
            self._asked = True
        else:
            self.agenda.later(0.0, self._poll)

    def _poll(self) -> None:
        if self.over or self._busy:
            return
        if self._next is not None:
            self._next.cancel()
        self._busy, self._asked = True, False
        rules = self.control.fleet.settings.poll
        began = self.agenda.now
        done: list[bool] = []

        def over() -> bool:
            """Whether this poll has been answered before; it has from now on."""
            if done or self.over:
                return True
            done.append(True)
            self._busy = False
            wait_s = max(
                0.0, began + rules.interval_s * self.rng.uniform(0.9, 1.1) - self.agenda.now
            )
            self._next = self.agenda.later(0.0 if self._asked else wait_s, self._poll)
            return False

        def failed(reason: str, slow: bool) -> None:
            if not over():
                sample = self.control.folds.sample(self.name)
                now = self.agenda.now
                self.control.post(e.PollFailed(self.name, self.grpc, reason, slow, *sample, now))

        def at_instance(to: SimInstance) -> None:
            if self.agenda.now < to.garbled_until:
                self.agenda.later(hop_s(self.rng), lambda: failed("it makes no sense", False))
            elif self.agenda.now >= to.slow_until and self.agenda.now >= to.deaf_until:
                status = to.status()
                self.agenda.later(hop_s(self.rng), lambda: answered(status))

        def answered(status: Status) -> None:
            if not over():
                self.say(e.Source.POLL, status)

        def arrives() -> None:
            to = self.control.world.at_grpc(self.grpc)
            if to is None:
                failed("unavailable", False)
            else:
                to.does(lambda: at_instance(to))

        self.agenda.later(hop_s(self.rng), arrives)
        self.agenda.later(rules.timeout_s, lambda: failed("deadline exceeded", True))

    def say(self, source: e.Source, status: Status) -> None:
        sample = self.control.folds.sample(self.name)
        now = self.agenda.now
        self.control.post(
            e.Observed(self.name, source, self.grpc, "127.0.0.1", status, *sample, now)
        )

    # -- the stream

    def _open(self) -> None:
        to = self.control.world.at_grpc(self.grpc)
        if self.over:
            return
        if to is None or to.frozen:
            self._open_later()
            return
        self._watched = to
        to.watchers.append(self)
        self.hear(to.status())

    def _open_later(self) -> None:
        interval_s = self.control.fleet.settings.poll.interval_s
        self.agenda.later(interval_s * self.rng.uniform(0.5, 1.0), self._open)

    def hear(self, status: Status) -> None:
        self._stream.send(lambda: None if self.over else self.say(e.Source.WATCH, status))

    def stream_broke(self) -> None:
        if self._watched is not None and self in self._watched.watchers:
            self._watched.watchers.remove(self)
        self._watched = None
        if not self.over:
            self._open_later()
