"""Workers and clients on paper: the real worker, plane, claim, picking and ledger, no sockets.

What is made up is bytes: a request is dialled, sent, answered and ended by entries of the agenda.
What its failures lead to is a short form of `dataplane/relay.py`, on the real tables of replays.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, cast

from gateway.dataplane import stages
from gateway.dataplane.claim import Claim
from gateway.dataplane.link import Link
from gateway.dataplane.plane import Plane
from gateway.dataplane.stages import next_stage
from gateway.dataplane.worker import Worker
from gateway.errors import REFUSALS, GatewayError
from gateway.messages import Hello, Message, Suspected
from gateway.records import BLAMES_INSTANCE, Outcome
from gateway.routing.admit import not_ready
from gateway.routing.pick import NO_KEY
from gateway.routing.replay import Decision, Failure, decide
from gateway.state.ledger import Ledger
from gateway.state.shared import PID
from tests.sim.agenda import Then, Wire, hop_s
from tests.sim.instance import SimInstance

if TYPE_CHECKING:
    from tests.sim.control import Control
    from tests.sim.world import World

NS = 1_000_000_000
LOOK_S = 0.1  # as often as a worker beats
UNUSED = REFUSALS["bad_request"]


class PaperLoop:
    """What a worker asks of its loop: to be called later, while it lives and is not stopped."""

    def __init__(self, later: Callable[[float, Then], None]) -> None:
        self._later = later

    def call_later(self, delay: float, callback: Any, *args: Any) -> None:
        self._later(delay, lambda: callback(*args))

    def call_soon(self, callback: Any, *args: Any) -> None:
        self._later(0.0, lambda: callback(*args))


class PaperLink(Link):
    """The link to control: words travel on wires, and are lost where nobody listens."""

    process: "SimWorker"

    def say(self, message: Message) -> None:
        self.process.says(message)


class RealWorker(Worker):
    def hello(self) -> Message:
        return self._hello()


class SimWorker:
    """One worker process. `control`: the one that it is linked to."""

    def __init__(self, world: "World", index: int, row: int, pid: int) -> None:
        self.world, self.index, self.row, self.pid = world, index, row, pid
        self.alive, self.frozen = True, False
        self.frozen_at = self.thawed_at = 0.0
        self.backlog: list[Then] = []
        self.control: Control | None = None
        self.inward = Wire(world.agenda, world.rng)
        self.outward = Wire(world.agenda, world.rng)
        self.requests: dict[int, Request] = {}
        self.ledger = Ledger(world.segment, row)
        world.segment.cells[world.segment.base(row) + PID] = pid
        self.plane = Plane(
            cast(asyncio.AbstractEventLoop, PaperLoop(self.later)),
            self.ledger,
            Random(world.rng.getrandbits(32)),
            lambda: int(world.agenda.now * NS),
            self.says,
        )
        self.worker = RealWorker(self.plane, index, row, "", {})
        link = PaperLink("", self.worker.hello, self.worker.heard)
        link.process = self
        self.worker.link = link
        self.worker.finished = Finished(self)  # type: ignore[assignment]

    # -- time passes for it only while it runs

    def later(self, delay_s: float, then: Then) -> None:
        self.world.agenda.later(delay_s, lambda: self.does(then))

    def does(self, then: Then) -> None:
        if not self.alive:
            return
        if self.frozen:
            self.backlog.append(then)
        else:
            then()

    def freeze(self) -> None:
        if self.alive and not self.frozen:
            self.frozen, self.frozen_at = True, self.world.agenda.now

    def thaw(self) -> None:
        if not self.frozen:
            return
        self.frozen = False
        self.thawed_at = self.world.agenda.now
        backlog, self.backlog = self.backlog, []
        for then in backlog:
            self.does(then)

    def die(self, status: int) -> None:
        if not self.alive:
            return
        self.alive = False
        for request in tuple(self.requests.values()):
            request.worker_died()
        self.world.worker_ended(self, status)

    # -- its link

    def connect(self, control: "Control") -> None:
        """Again whenever there is somebody; words on the old link are lost with it."""
        self.control = control
        said = self.worker.hello()
        assert isinstance(said, Hello), said
        self.says(replace(said, pid=self.pid))

    def says(self, message: Message | Suspected) -> None:
        control = self.control
        if control is not None:
            self.inward.send(lambda: control.heard(self, message))

    def hears(self, control: "Control", message: Message) -> None:
        """What was written before control died is read all the same."""
        self.outward.send(
            lambda: self.does(
                lambda: self.worker.heard(message) if self.control is control else None
            )
        )

    def unlinked(self, control: "Control") -> None:
        if self.control is control:
            self.control = None

    # -- clients

    @property
    def accepts(self) -> bool:
        table = self.plane.cell.table
        return self.alive and not self.frozen and table is not None and not self.plane.closing

    def holds(self, slot: int) -> int:
        """Leases on the slot, by the requests themselves and not by any counter."""
        return sum(r.claim.held and r.claim.target.slot == slot for r in self.requests.values())


class Finished:
    """An asyncio.Event that ends the process."""

    def __init__(self, process: SimWorker) -> None:
        self._process = process

    def set(self) -> None:
        self._process.later(hop_s(self._process.world.rng), lambda: self._process.die(0))


class Request:
    """One client's request, from its head to its end; a waiter, and its own connection."""

    def __init__(
        self, worker: SimWorker, model: str, pin: str, key: int, seconds: float, harmless: bool
    ) -> None:
        self.worker, self.plane, self.world = worker, worker.plane, worker.world
        self.seconds, self.harmless = seconds, harmless
        self.claim = Claim(self.plane, self)
        self.claim.restart()
        self.number = self.plane.next_number()
        self.client_id = b""
        self.began_ns = self.plane.tick()
        self.stage = next_stage(stages.SETTLED, stages.BEGAN)
        self.failed = int(Outcome.SERVED)
        self.over = ""
        self.leased = False
        self._on: SimInstance | None = None
        self._attempt = 0
        self.plane.budget.requests += 1.0
        self.plane.clients[self] = None
        worker.requests[self.number] = self
        try:
            route = self.plane.cell.read().routes.get(model)
            if route is None:
                raise GatewayError("unknown_model", f"no model named {model}")
            self.claim.aim(route, pin, b"", key if key >= 0 else NO_KEY)
            if not self._place(False):
                self._wait()
        except GatewayError as exc:
            self.refuse(exc)

    @property
    def exchange(self) -> "Request":
        return self

    def end_if_idle(self) -> None:
        """Its client asks once, so it is never idle."""

    # -- on its way

    def _place(self, first: bool) -> bool:
        if not self.claim.find(first):
            return False
        self.claim.open(self.number, b"", self.plane.tick(), 1, 0)
        self.leased = True
        self.stage = next_stage(self.stage, stages.DIAL_BEGAN)
        self.world.opened(self)
        self._attempt += 1
        attempt = self._attempt
        target = self.claim.target
        self.worker.later(hop_s(self.world.rng), lambda: self._dialled(attempt, target.slot))
        return True

    def _wait(self) -> None:
        self.claim.wait(self.number, b"", self.plane.clock())
        timeout_s = self.claim.route.queue_timeout_ns / NS
        self.worker.later(timeout_s, self._waited)
        self.worker.later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        if self.claim.waits:
            self.plane.waitroom.wake_all()
            self.worker.later(LOOK_S, self._look_again)

    def _waited(self) -> None:
        if self.claim.waits and self.claim.waited_too_long(self.plane.clock()):
            self.refuse(self.claim.no_room("none came free"))

    def woken(self) -> bool:
        try:
            return self._place(True)
        except GatewayError as exc:
            self.refuse(exc)
            return True

    def reviewed(self) -> None:
        if self.claim.waits:
            try:
                self.claim.read_table_again()
            except GatewayError as exc:
                self.refuse(exc)
            else:
                self.claim.change_queue()

    def _current(self, attempt: int) -> bool:
        return not self.over and attempt == self._attempt and self.claim.held

    def _dialled(self, attempt: int, slot: int) -> None:
        if not self._current(attempt):
            return
        one = self.world.at_http(self.claim.target.port)
        if one is None:
            error = GatewayError("connect_failed", "connection refused")
            self.plane.suspect(Suspected(slot, error.message))
            self._fail(Failure.CONNECT_FAILED, Outcome.CONNECT_FAILED, error)
            return
        self.plane.ledger.sending(self.claim.lease, one.number)
        self.stage = next_stage(self.stage, stages.ATTACHED)
        self._on = one
        one.connected[self] = None
        self.worker.later(hop_s(self.world.rng), lambda: self._sent(attempt, one))

    def _sent(self, attempt: int, one: SimInstance) -> None:
        if not self._current(attempt):
            return
        if not one.alive:
            self.broken(one)
            return
        self.plane.ledger.waiting(self.claim.lease)
        self.stage = next_stage(self.stage, stages.SENT)
        one.does(lambda: self._arrived(attempt, one))

    def _arrived(self, attempt: int, one: SimInstance) -> None:
        if not self._current(attempt) or not self.worker.alive:
            return
        if not one.admit(self):
            self.worker.later(hop_s(self.world.rng), lambda: self._refused(attempt))
            return
        self._goes_on(attempt, one, self.seconds / 2, self._begun)
        self._goes_on(attempt, one, self.seconds, self._ended)

    def _goes_on(
        self, attempt: int, one: SimInstance, delay_s: float, then: Callable[[int], None]
    ) -> None:
        def due() -> None:
            late_s = one.stuck_until - self.world.agenda.now
            if late_s > 0:
                self.world.agenda.later(late_s + delay_s / 8, lambda: one.does(due))
            elif self.number in one.holds:
                self.worker.later(hop_s(self.world.rng), lambda: then(attempt))

        self.world.agenda.later(delay_s, lambda: one.does(due))

    def _refused(self, attempt: int) -> None:
        if self._current(attempt):
            error = not_ready(self.claim.route, self.claim.version.name)
            self._fail(Failure.REFUSED, Outcome.REFUSED, error)

    def _begun(self, attempt: int) -> None:
        if self._current(attempt) and self.stage == stages.AWAITING:
            self.stage = next_stage(self.stage, stages.ANSWERED)
            ledger, lease = self.plane.ledger, self.claim.lease
            ledger.streaming(lease, self.plane.tick())
            ledger.received(lease, 100)
            ledger.account(lease)

    def _ended(self, attempt: int) -> None:
        if not self._current(attempt):
            return
        self._begun(attempt)
        self.stage = next_stage(self.stage, stages.ENDED)
        self._let_go()
        outcome = self.world.outcome(self.claim.version.name)
        self.world.attempted(self.claim.route.model, self.claim.version.name, outcome)
        self.claim.settle(outcome, self.plane.tick(), 0, 0)
        if self.claim.attempts > 1:
            self.claim.finish(outcome, UNUSED)
        self._over("served")

    # -- failures

    def broken(self, one: SimInstance) -> None:
        """Its instance died; the worker hears of it when it can."""
        attempt = self._attempt

        def heard() -> None:
            if self._current(attempt) and self._on is one:
                outcome = Outcome.TRUNCATED if self.stage == stages.STREAMING else Outcome.RESET
                error = GatewayError("instance_reset", "closed the connection")
                reused = self.world.rng.random() < 0.5
                failure = Failure.RESET_REUSED if reused else Failure.RESET_FRESH
                self._fail(failure, outcome, error)

        self.worker.later(0.0, heard)

    def _fail(self, failure: Failure, outcome: Outcome, error: GatewayError) -> None:
        harmless = self.claim.route.replayable or self.harmless
        decision = decide(failure, self.stage == stages.STREAMING, True, harmless)
        may = self.claim.attempts <= self.plane.bounds.replays_max
        self._let_go()
        self.world.attempted(self.claim.route.model, self.claim.version.name, outcome)
        if decision is Decision.REPLAY and may and self.plane.budget.spend():
            self._replay(outcome, error)
            return
        self.stage = next_stage(self.stage, stages.INSTANCE_LOST)
        self.claim.settle(outcome, self.plane.clock(), 0, 0)
        self.claim.finish(outcome, error.refusal)
        self._over(outcome.name.lower())

    def _replay(self, outcome: Outcome, error: GatewayError) -> None:
        claim = self.claim
        self.stage = next_stage(self.stage, stages.REPLAYED)
        claim.avoid_target()
        claim.settle(outcome, self.plane.tick(), 0, 0)
        self.failed = outcome
        try:
            claim.read_table_again()
            if outcome in BLAMES_INSTANCE:
                claim.fall_back()
            if not claim.exhausted():
                if not self._place(False):
                    self._wait()
                return
        except GatewayError as exc:
            error = exc
        self.stage = next_stage(self.stage, stages.REFUSED)
        claim.finish(outcome, error.refusal)
        self._over(outcome.name.lower())

    # -- ends

    def refuse(self, error: GatewayError) -> None:
        self.claim.leave(self.plane.clock())
        self.stage = next_stage(self.stage, stages.REFUSED)
        self.claim.finish(self.failed, error.refusal)
        self._over("refused")

    def leave(self) -> None:
        """The client has gone."""
        if not self.over:
            self._end(stages.CLIENT_LOST, Outcome.CLIENT_GONE)
            self.claim.finish(Outcome.CLIENT_GONE, REFUSALS["client_gone"])
            self._over("client_gone")

    def cut(self, error: GatewayError) -> None:
        self._end(stages.CUT, Outcome.CUT)
        self.claim.finish(Outcome.CUT, error.refusal)
        self._over("cut")

    def _end(self, event: int, outcome: Outcome) -> None:
        now = self.plane.clock()
        self._let_go()
        self.stage = next_stage(self.stage, event)
        self.claim.leave(now)
        if self.claim.held:
            self.claim.settle(outcome, now, 0, 0)

    def worker_died(self) -> None:
        """The client sees a reset; the ledger's row stays as it is for control to settle."""
        self._let_go()
        self._over("lost" if self.claim.held else "dropped")

    def _let_go(self) -> None:
        """Its connection is closed: the instance ends its work, when it looks."""
        one, number = self._on, self.number
        self._on = None
        if one is not None:
            one.connected.pop(self, None)
            self.world.agenda.later(
                hop_s(self.world.rng), lambda: one.does(lambda: one.give_back(number))
            )

    def _over(self, how: str) -> None:
        self.world.ended(self, how)
        self.over = how
        if self.worker.alive:
            del self.worker.requests[self.number]
        self.plane.clients.pop(self, None)
        if self.worker.alive and self.plane.on_left is not None:
            self.plane.on_left()
