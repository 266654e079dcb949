"""One request and its response: placed, sent, answered, settled.

Floor 3, I/O.   Flow: pick -> dial -> [relay] -> account
An Exchange belongs to a client connection and serves one request after another. Reading the table
and opening the lease is one step without an await. Nothing goes to the client before the instance
has answered, so until then another instance may be tried; after that the only honest error is a cut
connection. Which instance, and all counting: `claim`. How the response counts: `answer`.
"""

import logging
from asyncio import Task
from typing import Final

from gateway.dataplane import stages
from gateway.dataplane.answer import Answer
from gateway.dataplane.body import HeldBody
from gateway.dataplane.caller import Caller
from gateway.dataplane.claim import Claim
from gateway.dataplane.dial import dial, unreachable
from gateway.dataplane.instance import InstanceConnection, Listener
from gateway.dataplane.plane import Plane
from gateway.dataplane.stages import DIALLING, SETTLED, STREAMING, next_stage
from gateway.errors import REFUSALS, GatewayError
from gateway.messages import Suspected
from gateway.records import BLAMES_INSTANCE, Outcome, Stage
from gateway.routing.admit import not_ready
from gateway.routing.compiled import CompiledRoute, CompiledTarget
from gateway.routing.replay import IDEMPOTENT, Decision, Failure, decide
from gateway.wire.compose import id_lines, interim_head, request_head
from gateway.wire.heads import RequestHead, ResponseHead

log = logging.getLogger(__name__)

UNUSED: Final = REFUSALS["client_gone"]  # where an instance's outcome counts

# As plain integers: reading an enum member costs three times as much.
_SERVED: Final = int(Outcome.SERVED)
_CONNECTING: Final = int(Stage.CONNECTING)
_SENDING: Final = int(Stage.SENDING)
_WAITING: Final = int(Stage.WAITING)


class Exchange(Listener):
    """The current request of one client connection.

    `client_id`: the x-request-id that the client sees. `since_ns`: when bytes last moved, as far as
    the sweep has seen; `moved`: they have moved since. `complete`: the whole request is here.
    `_first_ns`: when the response began, until the ledger has been told.
    """

    __slots__ = (
        "_connection",
        "_dialling",
        "_failed",
        "_first_ns",
        "_framing",
        "_generates",
        "_ids",
        "_plane",
        "_sent",
        "answer",
        "began_ns",
        "body",
        "caller",
        "claim",
        "client_id",
        "complete",
        "moved",
        "number",
        "request",
        "since_ns",
        "stage",
        "stalled_upload",
    )

    def __init__(self, plane: Plane, caller: Caller, request: RequestHead) -> None:
        self._plane = plane
        self.caller = caller
        self.request = request
        self.claim = Claim(plane, self)
        self.answer = Answer()
        self.scanner = None
        self.body = HeldBody(plane)
        self.stage = SETTLED
        self.number = 0
        self.client_id = self._ids = self._framing = b""
        self._connection: InstanceConnection | None = None
        self._dialling: Task[None] | None = None
        self._failed = int(Outcome.SERVED)  # how the attempt before a replay ended
        self._generates = self.complete = self.moved = False
        self.stalled_upload = False  # the instance does not read what we write
        self._sent = self._first_ns = self.began_ns = self.since_ns = 0

    def begin(self) -> None:
        """A request's head is here; from now on it has to end somewhere."""
        plane, request = self._plane, self.request
        self.stage = next_stage(self.stage, stages.BEGAN)
        self.claim.restart()
        self.body.restart()
        self.complete = self.moved = self.stalled_upload = False
        self._sent = self._first_ns = 0
        self.number = plane.next_number()
        if request.traced and request.request_id:
            self.client_id = client_id = request.request_id
            self._ids = b"x-request-id: " + client_id
        else:
            number = plane.number_text()
            self.client_id = client_id = request.request_id or number
            self._ids = id_lines(client_id, b"" if request.traced else plane.trace, number)
        self.began_ns = self.since_ns = plane.tick()
        plane.budget.requests += 1.0

    def start(
        self, route: CompiledRoute, pin: str, key: int, framing: bytes, generates: bool, now: int
    ) -> None:
        """Send what is here of the request to an instance of the route, or let it wait.

        `now`: how long a client took to send its body is not the instance's time.
        Raises: GatewayError, before anything has happened.
        """
        self._framing = framing
        self._generates = generates
        self.claim.aim(route, pin, key)
        if not self._place(False, now):
            self.claim.wait(now)

    def more(self, part: bytes) -> None:
        """Further bytes of a streamed body; `complete` is set before the last ones."""
        self.moved = True
        connection, body = self._connection, self.body
        if connection is None:
            if part:
                body.keep(part)
            if body.is_much():
                self.caller.hold_upload(True)
            return
        if part:
            connection.transport.write(part)
            self._sent += len(part)
            if body.whole:
                body.keep(part)
                if body.is_much():
                    body.let_go()
        if self.complete:
            self._all_sent()

    def _place(self, first: bool, now: int) -> bool:
        """Open a lease and send; False when there is no room. `first`: nobody waits before it.

        Raises: GatewayError.
        """
        claim = self.claim
        if not claim.find(first):
            return False
        self.since_ns = now
        plane, target = self._plane, claim.target
        connection = self._pooled(target.slot, now)
        if connection is None:
            claim.open(self.number, self.client_id, now, _CONNECTING, 0)
            self.stage = next_stage(self.stage, stages.DIAL_BEGAN)
            self._dialling = plane.start(self._dial(target, claim.lease))
        else:
            stage = _WAITING if self.complete else _SENDING
            claim.open(self.number, self.client_id, now, stage, connection.port)
            self._attach(connection)
        return True

    def _pooled(self, slot: int, now: int) -> InstanceConnection | None:
        """An idle connection, but none that was reset a moment ago: its transport knows, and will
        say so when the loop comes round."""
        pool = self._plane.pool
        connection: InstanceConnection | None = pool.checkout(slot, now)
        while connection is not None and connection.transport.is_closing():
            connection = pool.checkout(slot, now)
        return connection

    async def _dial(self, target: CompiledTarget, lease: int) -> None:
        """Ends with this exchange's `_dialling` set to None, or is cancelled by it."""
        try:
            connection = await dial(self._plane, target)
        except GatewayError as exc:
            if self.stage == DIALLING and self.claim.lease == lease:
                self._dialling = None
                self.unreachable(exc)
            return
        if self.stage == DIALLING and self.claim.lease == lease:
            self._dialling = None
            if connection.transport.is_closing():  # nothing was sent: as if it had not been there
                self.unreachable(unreachable(target, "it closed the connection at once"))
                return
            self._plane.ledger.sending(lease, connection.port)
            if self.complete:
                self._plane.ledger.waiting(lease)
            self._attach(connection)
        else:
            connection.release(True)  # the request has ended meanwhile; the next may have it

    def unreachable(self, error: GatewayError) -> None:
        """The instance was not there, or not in time; or we could not even try."""
        if error.refusal.code != "connect_failed" and error.refusal.status == 503:
            self._fail(Failure.CONNECT_FAILED, Outcome.CUT, error)
            return
        self._plane.suspect(Suspected(self.claim.target.slot, error.message))
        self._fail(Failure.CONNECT_FAILED, Outcome.CONNECT_FAILED, error)

    def _attach(self, connection: InstanceConnection) -> None:
        """Send what is here of the request on this connection; the ledger knows already."""
        complete = self.complete
        self.stage = next_stage(self.stage, stages.SENT if complete else stages.ATTACHED)
        self._connection = connection
        request, body, caller = self.request, self.body, self.caller
        connection.take(self, request.start.method == b"HEAD")
        if caller.blocked:
            connection.pause(True)
        self.stalled_upload = False  # until this connection says so, which it may do in `send`
        way = caller.way(request, self.claim.target.address)
        body.send(request_head(request, self._framing, way, self._ids), connection.transport)
        self._sent = body.size
        if body.is_much():
            body.let_go()
        if not complete:
            caller.go_on()
            caller.hold_upload(self.stalled_upload)

    def _all_sent(self) -> None:
        self._plane.ledger.waiting(self.claim.lease)
        self.stage = next_stage(self.stage, stages.SENT)

    def woken(self) -> bool:
        """Room may have come: take it, or go on waiting (False)."""
        try:
            return self._place(True, self._plane.tick())
        except GatewayError as exc:
            self.refuse(exc)
            return True

    def reviewed(self) -> None:
        """A new table: whoever waits reads it again, and is refused at once if it has nothing."""
        if self.claim.waits:
            try:
                self.claim.read_table_again()
            except GatewayError as exc:
                self.refuse(exc)
            else:
                self.claim.change_queue()

    def interim(self, head: ResponseHead) -> None:
        self.moved = True
        if self.request.start.minor == 1:  # RFC 9110 15.2: never to HTTP/1.0
            self.caller.transport.write(interim_head(head))

    def answered(self, head: ResponseHead, framing: int) -> bool:
        plane, claim, request = self._plane, self.claim, self.request
        if head.status == 503 and head.refused:
            self._refused_by_instance(head.refused)
            return False
        self.stage = next_stage(self.stage, stages.ANSWERED)
        self._first_ns = plane.tick()
        self.body.let_go()
        ours = claim.target.announces + self.client_id
        may_keep = request.keep_alive and self.complete and not plane.closing
        answer = self.answer
        answer.begin(head, framing, request, may_keep, ours, plane.date)
        self.scanner = answer.scanner
        return answer.dechunks

    def passed(self, out: bytes, received: int) -> None:
        self.moved = True
        if received:
            self._plane.ledger.received(self.claim.lease, received)
        answer = self.answer
        if answer.out:
            out = answer.behind_head(out)
        if out:
            self.caller.transport.write(out)

    def goes_on(self) -> None:
        ledger, lease = self._plane.ledger, self.claim.lease
        ledger.streaming(lease, self._first_ns)
        ledger.account(lease)
        self._first_ns = 0

    def ended(self, content_bytes: int, owes_end: bool) -> None:
        plane, answer = self._plane, self.answer
        if owes_end and not answer.dechunks:
            self.caller.transport.write(b"\r\n")
        now = plane.now if self._first_ns else plane.tick()  # read when the response began just now
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.release(self.complete)  # before settling: who waits may want it
        self.stage = next_stage(self.stage, stages.ENDED)
        outcome = answer.judged(content_bytes, self._generates)
        self.claim.settle(outcome, now, self._sent, self._first_ns)
        if outcome != _SERVED or self.claim.attempts > 1:  # else its attempt says all
            self.claim.finish(outcome, UNUSED)
        self.caller.finished(answer.keep)

    def broken(self, why: str) -> None:
        error = GatewayError("instance_bad_framing", f"{self.claim.target.instance} sent {why}")
        self._fail(Failure.BROKEN, Outcome.INSTANCE_ERROR, error)

    def lost(self) -> None:
        connection = self._connection
        reused = connection is not None and connection.used
        failure = Failure.RESET_REUSED if reused else Failure.RESET_FRESH
        outcome = Outcome.TRUNCATED if self.stage == STREAMING else Outcome.RESET
        where = "in the middle of its answer" if self.stage == STREAMING else "without an answer"
        text = f"{self.claim.target.instance} closed the connection {where}"
        self._fail(failure, outcome, GatewayError("instance_reset", text))

    def upload_blocked(self, blocked: bool) -> None:
        self.moved = True
        self.stalled_upload = blocked
        if not self.complete:
            self.caller.hold_upload(blocked)

    def download_blocked(self, blocked: bool) -> None:
        """The client does not read (or reads again) what we write."""
        self.moved = True
        if self._connection is not None:
            self._connection.pause(blocked)

    def _refused_by_instance(self, reason: bytes) -> None:
        """It did nothing (draining, full): not a failure, and never shown to a client."""
        claim = self.claim
        if reason == b"full":
            error = claim.no_room("says the instance")
        else:
            error = not_ready(claim.route, claim.version.name)
        self._fail(Failure.REFUSED, Outcome.REFUSED, error)

    def timed_out(self, why: str) -> None:
        text = f"{self.claim.target.instance} took more than {why}"
        error = GatewayError("instance_timed_out", text)
        self._fail(Failure.DEADLINE, Outcome.TIMED_OUT, error)

    def _fail(self, failure: Failure, outcome: Outcome, error: GatewayError) -> None:
        """An attempt is over without a whole response: try elsewhere, tell the client, or cut."""
        plane, claim = self._plane, self.claim
        harmless = claim.route.replayable or self.request.start.method in IDEMPOTENT
        decision = decide(failure, self._begun(), self.body.whole, harmless)
        if outcome in BLAMES_INSTANCE:
            said = {"outcome": outcome.name.lower(), "why": error.message}
            log.warning("attempt failed", extra={**said, "request_id": f"{self.number:016x}"})
        may = claim.attempts <= plane.bounds.replays_max
        if decision is Decision.REPLAY and may and plane.budget.spend():
            self._replay(outcome, error)
            return
        self._drop_connection()
        self.stage = next_stage(self.stage, stages.INSTANCE_LOST)
        claim.settle(outcome, plane.clock(), self._sent, self._first_ns)
        self._failed = outcome
        self._tell(error, decision is Decision.CUT)

    def _replay(self, outcome: Outcome, error: GatewayError) -> None:
        """Once more, on another instance of the same version."""
        claim = self.claim
        self._drop_connection()
        self.stage = next_stage(self.stage, stages.REPLAYED)
        claim.avoid_target()
        now = self._plane.tick()
        claim.settle(outcome, now, self._sent, self._first_ns)
        self._first_ns = 0
        self._failed = outcome
        try:
            claim.read_table_again()
            if outcome in BLAMES_INSTANCE:
                claim.fall_back()
            if not claim.exhausted():
                if not self._place(False, now):
                    claim.wait(now)
                return
        except GatewayError as exc:
            if outcome is Outcome.REFUSED:  # else what failed says more than that nothing is left
                error = exc
        self.stage = next_stage(self.stage, stages.REFUSED)
        self._tell(error, False)

    def _tell(self, error: GatewayError, begun: bool) -> None:
        """The request is over with its last attempt."""
        self.body.let_go()
        self.claim.finish(self._failed, error.refusal)
        self._say(error, begun)

    def refuse(self, error: GatewayError) -> None:
        """We say no to a request that holds no instance."""
        claim = self.claim
        claim.stop_waiting(self._plane.clock())
        self.stage = next_stage(self.stage, stages.REFUSED)
        self.body.let_go()
        claim.finish(self._failed, error.refusal)
        self.caller.answer(error)

    def served_here(self) -> None:
        """The request needs no instance: its answer is in the table."""
        self.stage = next_stage(self.stage, stages.REFUSED)
        self._plane.ledger.answered()

    def client_gone(self) -> None:
        """Nobody is there to answer: the instance's work ends now."""
        if self.stage == SETTLED:
            return
        self._end(stages.CLIENT_LOST, Outcome.CLIENT_GONE)
        self.claim.finish(Outcome.CLIENT_GONE, REFUSALS["client_gone"])

    def client_broke(self, error: GatewayError) -> None:
        """The client's own bytes are wrong or late, in the middle of its body."""
        if self.stage == SETTLED:
            return
        begun = self._begun()
        self._end(stages.CLIENT_LOST, Outcome.CLIENT_GONE)
        self.claim.finish(Outcome.REFUSED, error.refusal)  # by us: it counts as that
        self._say(error, begun)

    def cut(self, error: GatewayError) -> None:
        """By an operator, by a drain's deadline, or by our own end."""
        begun = self._begun()
        self._end(stages.CUT, Outcome.CUT)
        self.claim.finish(Outcome.CUT, error.refusal)
        self._say(error, begun)

    def _begun(self) -> bool:
        """Whether the client has been given a part of the answer."""
        return self.stage == STREAMING and not self.answer.out

    def _say(self, error: GatewayError, begun: bool) -> None:
        if begun:
            self.caller.cut(self.answer.hides_a_cut())
        else:
            self.caller.answer(error)

    def _end(self, event: int, outcome: Outcome) -> None:
        """End it here, whatever its stage; nobody is blamed."""
        now = self._plane.clock()
        self._drop_connection()
        self.stage = next_stage(self.stage, event)
        self.body.let_go()
        self.claim.stop_waiting(now)
        if self.claim.held:
            self.claim.settle(outcome, now, self._sent, self._first_ns)

    def _drop_connection(self) -> None:
        if self._dialling is not None:
            self._dialling.cancel()
            self._dialling = None
        connection = self._connection
        if connection is not None:
            self._connection = None
            connection.abandon()
