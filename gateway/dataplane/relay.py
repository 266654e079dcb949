"""The response to a request: passed on, and how both end.

Floor 3, I/O.   Flow: placing -> [relay] -> account
An Exchange belongs to a client connection and serves one request after another. Nothing goes to the
client before the instance has answered, so until then another instance may be tried; after that the
only honest error is a cut connection. Which instance, and all counting: `claim`. How the response
counts: `answer`.
"""

import logging
from typing import Final

from gateway.dataplane import stages
from gateway.dataplane.answer import Answer
from gateway.dataplane.caller import Caller
from gateway.dataplane.placing import Placing
from gateway.dataplane.plane import Plane
from gateway.dataplane.stages import SETTLED, STREAMING, next_stage
from gateway.errors import REFUSALS, GatewayError
from gateway.messages import Suspected
from gateway.records import BLAMES_INSTANCE, Outcome
from gateway.routing.admit import not_ready
from gateway.routing.replay import IDEMPOTENT, Decision, Failure, decide
from gateway.wire.compose import interim_head
from gateway.wire.heads import RequestHead, ResponseHead

log = logging.getLogger(__name__)

UNUSED: Final = REFUSALS["client_gone"]  # where an instance's outcome counts
_SERVED: Final = int(Outcome.SERVED)  # reading an enum member costs three times as much

Sample = tuple[int, str, bytes, bytes]  # number of the request, model, path, body


class Exchange(Placing):
    """The current request of one client connection, with its response."""

    __slots__ = ("_failed", "_sample", "answer")

    def __init__(self, plane: Plane, caller: Caller, request: RequestHead) -> None:
        super().__init__(plane, caller, request)
        self.answer = Answer()
        self._failed = int(Outcome.SERVED)  # how the attempt before a replay ended
        self._sample: Sample | None = None

    # -- what the instance's connection tells

    def interim(self, head: ResponseHead) -> None:
        self.moved = True
        if self.request.start.minor == 1:  # RFC 9110 15.2: never to HTTP/1.0
            self.caller.transport.write(interim_head(head))

    def answered(self, head: ResponseHead, framing: int) -> bool:
        plane, claim, request = self.plane, self.claim, self.request
        if head.status == 503 and head.refused:
            self._refused_by_instance(head.refused)
            return False
        if 400 <= head.status < 500:  # the request is to blame: it says nothing of the version
            plane.ledger.set_apart(claim.lease)
        self.stage = next_stage(self.stage, stages.ANSWERED)
        self.first_ns = plane.tick()
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
            self.plane.ledger.received(self.claim.lease, received)
        answer = self.answer
        if answer.out:
            out = answer.behind_head(out)
        if out:
            self.caller.transport.write(out)

    def goes_on(self) -> None:
        ledger, lease = self.plane.ledger, self.claim.lease
        ledger.streaming(lease, self.first_ns)
        ledger.account(lease)
        self.request.let_go()  # nothing is sent again once the answer has begun
        self.first_ns = 0

    def ended(self, content_bytes: int, owes_end: bool) -> None:
        plane, answer = self.plane, self.answer
        if owes_end and not answer.dechunks:
            self.caller.transport.write(b"\r\n")
        now = plane.now if self.first_ns else plane.tick()  # read when the response began just now
        connection = self.connection
        self.connection = None
        if connection is not None:
            connection.release(self.complete)  # before settling: who waits may want it
        self.stage = next_stage(self.stage, stages.ENDED)
        outcome = answer.judged(content_bytes, self.generates)
        self.claim.settle(outcome, now, self.sent, self.first_ns)
        if outcome != _SERVED or self.claim.attempts > 1:  # else its attempt says all
            self.claim.finish(outcome, UNUSED)
        if self._sample is not None:
            self._record(outcome)
        self.caller.finished(answer.keep)

    def broken(self, why: str) -> None:
        error = GatewayError("instance_bad_framing", f"{self.claim.target.instance} sent {why}")
        self._fail(Failure.BROKEN, Outcome.INSTANCE_ERROR, error)

    def lost(self) -> None:
        connection = self.connection
        reused = connection is not None and connection.used
        failure = Failure.RESET_REUSED if reused else Failure.RESET_FRESH
        outcome = Outcome.TRUNCATED if self.stage == STREAMING else Outcome.RESET
        where = "in the middle of its answer" if self.stage == STREAMING else "without an answer"
        text = f"{self.claim.target.instance} closed the connection {where}"
        self._fail(failure, outcome, GatewayError("instance_reset", text))

    # -- the recorder

    def consider(self, body: bytes) -> None:
        """Perhaps this request is to be sampled, whose whole body this is."""
        if self.plane.sampler.chooses(len(body)):
            self._sample = (self.number, self.claim.route.model, self.request.start.path, body)

    def _record(self, outcome: int) -> None:
        """A request that was chosen has ended, or one before it on this connection."""
        sample, sampler = self._sample, self.plane.sampler
        self._sample = None
        if sample is not None and sampler is not None:
            number, model, path, body = sample
            if number == self.number and outcome == _SERVED and self.answer.status < 300:
                sampler.take(model, path, body)

    # -- failures

    def unreachable(self, error: GatewayError) -> None:
        """The instance was not there, or not in time; or we could not even try."""
        if error.refusal.code != "connect_failed" and error.refusal.status == 503:
            self._fail(Failure.CONNECT_FAILED, Outcome.REFUSED, error)
            return
        self.plane.suspect(Suspected(self.claim.target.slot, error.message))
        self._fail(Failure.CONNECT_FAILED, Outcome.CONNECT_FAILED, error)

    def _refused_by_instance(self, reason: bytes) -> None:
        """It did nothing (draining, full): not a failure, and never shown to a client."""
        claim = self.claim
        if reason == b"full":
            self._fail(Failure.FULL, Outcome.REFUSED, claim.no_room("says the instance"))
        else:
            error = not_ready(claim.route, claim.version.name)
            self._fail(Failure.REFUSED, Outcome.REFUSED, error)

    def timed_out(self, why: str) -> None:
        text = f"{self.claim.target.instance} took more than {why}"
        error = GatewayError("instance_timed_out", text)
        self._fail(Failure.DEADLINE, Outcome.TIMED_OUT, error)

    def _fail(self, failure: Failure, outcome: Outcome, error: GatewayError) -> None:
        """An attempt is over without a whole response: try elsewhere, tell the client, or cut."""
        plane, claim = self.plane, self.claim
        harmless = claim.route.replayable or self.request.start.method in IDEMPOTENT
        decision = decide(failure, self._begun(), self.body.whole, harmless)
        if decision is Decision.REPLAY:
            elsewhere = claim.attempts <= plane.bounds.replays_max and plane.budget.spend()
            if elsewhere or failure is Failure.FULL:
                self._replay(failure, outcome, error, elsewhere)
                return
        self.drop_connection()
        self.stage = next_stage(self.stage, stages.INSTANCE_LOST)
        claim.settle(outcome, plane.clock(), self.sent, self.first_ns)
        self._failed = outcome
        self._tell(error, decision is Decision.CUT)

    def _replay(
        self, failure: Failure, outcome: Outcome, error: GatewayError, elsewhere: bool
    ) -> None:
        """Once more: on another instance of the same version, or later if all are full."""
        claim = self.claim
        if outcome in BLAMES_INSTANCE:
            self._warn("attempt failed", outcome, error)
        self.drop_connection()
        self.stage = next_stage(self.stage, stages.REPLAYED)
        claim.avoid_target()
        now = self.plane.tick()
        claim.settle(outcome, now, self.sent, self.first_ns)
        self.first_ns = 0
        self._failed = outcome
        try:
            claim.read_table_again()
            if outcome in BLAMES_INSTANCE:
                claim.fall_back()
            if elsewhere and not claim.exhausted():
                if not self._place(False, now):
                    claim.wait(self.number, self.client_id, now)
                return
            if failure is Failure.FULL:
                claim.wait_again(self.number, self.client_id, now)
                return
        except GatewayError as exc:
            if outcome is Outcome.REFUSED:  # else what failed says more than that nothing is left
                error = exc
        self.stage = next_stage(self.stage, stages.REFUSED)
        self._tell(error, False)

    def _tell(self, error: GatewayError, begun: bool) -> None:
        """The request is over with its last attempt."""
        self._name_loss(error)
        self.body.let_go()
        self.claim.finish(self._failed, error.refusal)
        self._say(error, begun)

    def _name_loss(self, error: GatewayError) -> None:
        """Whose request it was, for who reads the log: the client may have seen a cut only."""
        outcome = Outcome(self._failed)
        if self.claim.attempts and outcome in BLAMES_INSTANCE:
            self._warn("request lost", outcome, error)

    def _warn(self, text: str, outcome: Outcome, error: GatewayError) -> None:
        fields = {
            "request_id": f"{self.number:016x}",
            "client_request_id": self.client_id.decode("latin-1"),
            "instance": self.claim.target.instance,
            "cause": outcome.name.lower(),
            "why": error.message,
        }
        log.warning(text, extra=fields)

    # -- ends

    def refuse(self, error: GatewayError) -> None:
        """We say no to a request that holds no instance."""
        claim = self.claim
        claim.leave(self.plane.clock())
        self.stage = next_stage(self.stage, stages.REFUSED)
        self._name_loss(error)
        self.body.let_go()
        claim.finish(self._failed, error.refusal)
        self.caller.answer(error)

    def served_here(self) -> None:
        """The request needs no instance: its answer is in the table."""
        self.stage = next_stage(self.stage, stages.REFUSED)
        self.plane.ledger.answered()

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
        now = self.plane.clock()
        self.drop_connection()
        self.stage = next_stage(self.stage, event)
        self.body.let_go()
        self.claim.leave(now)
        if self.claim.held:
            self.claim.settle(outcome, now, self.sent, self.first_ns)
