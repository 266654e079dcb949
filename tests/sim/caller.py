"""Clients on paper: the real claim and picking, no sockets.

What is made up is bytes: a request is dialled, sent, answered and ended by entries of the agenda.
What its failures lead to is a short form of `dataplane/relay.py`, on the real tables of replays.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.dataplane import stages
from gateway.dataplane.claim import Claim
from gateway.dataplane.stages import next_stage
from gateway.errors import REFUSALS, GatewayError
from gateway.messages import Suspected
from gateway.records import BLAMES_INSTANCE, Outcome
from gateway.routing.admit import not_ready
from gateway.routing.pick import NO_KEY
from gateway.routing.replay import Decision, Failure, decide
from tests.sim.agenda import hop_s
from tests.sim.instance import SimInstance
from tests.sim.worker import SimWorker

if TYPE_CHECKING:
    pass


NS = 1_000_000_000
LOOK_S = 0.1  # as often as a worker beats
UNUSED = REFUSALS["bad_request"]


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
