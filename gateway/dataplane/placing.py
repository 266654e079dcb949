"""A request on its way to an instance: placed, dialled, sent.

Floor 3, I/O.   Flow: pick -> dial -> [placing] -> relay
Reading the table and opening the lease is one step without an await. Until the instance has
answered, what is here of the request may be sent again; how it ends is `relay`.
"""

from typing import Final

from gateway.dataplane import stages
from gateway.dataplane.body import HeldBody
from gateway.dataplane.caller import Caller
from gateway.dataplane.claim import Claim
from gateway.dataplane.dial import Dial
from gateway.dataplane.instance import InstanceConnection, Listener
from gateway.dataplane.plane import Plane
from gateway.dataplane.stages import SETTLED, next_stage
from gateway.errors import GatewayError
from gateway.records import Stage
from gateway.routing.compiled import CompiledRoute
from gateway.wire.compose import id_lines, request_head
from gateway.wire.heads import RequestHead

# As plain integers: reading an enum member costs three times as much.
_CONNECTING: Final = int(Stage.CONNECTING)
_SENDING: Final = int(Stage.SENDING)
_WAITING: Final = int(Stage.WAITING)


class Placing(Listener):
    """The current request of one client connection, as far as its instance.

    `client_id`: the x-request-id that the client sees. `since_ns`: when bytes last moved, as far as
    the sweep has seen; `moved`: they have moved since. `complete`: the whole request is here;
    `sent`: bytes of its body that were. `first_ns`: when the response began, until the ledger has
    been told. `generates`: a 2xx without content would be no answer.
    """

    __slots__ = (
        "_dialling",
        "_framing",
        "_ids",
        "began_ns",
        "body",
        "caller",
        "claim",
        "client_id",
        "complete",
        "connection",
        "first_ns",
        "generates",
        "moved",
        "number",
        "plane",
        "request",
        "sent",
        "since_ns",
        "stage",
        "stalled_upload",
    )

    def __init__(self, plane: Plane, caller: Caller, request: RequestHead) -> None:
        self.plane = plane
        self.caller = caller
        self.request = request
        self.claim = Claim(plane, self)
        self.scanner = None
        self.body = HeldBody(plane)
        self.stage = SETTLED
        self.number = 0
        self.client_id = self._ids = self._framing = b""
        self.connection: InstanceConnection | None = None
        self._dialling: Dial | None = None
        self.generates = self.complete = self.moved = False
        self.stalled_upload = False  # the instance does not read what we write
        self.sent = self.first_ns = self.began_ns = self.since_ns = 0

    # -- how it may fail; requests belong to Exchange

    def refuse(self, error: GatewayError) -> None:
        """We say no to a request that holds no instance."""
        raise NotImplementedError

    # -- from its head to its last byte

    def begin(self) -> None:
        """A request's head is here; from now on it has to end somewhere."""
        plane, request = self.plane, self.request
        self.stage = next_stage(self.stage, stages.BEGAN)
        self.claim.restart()
        self.body.restart()
        self.complete = self.moved = self.stalled_upload = False
        self.sent = self.first_ns = 0
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
        self.generates = generates
        self.claim.aim(route, pin, self.request.canary, key)
        if not self._place(False, now):
            self.claim.wait(self.number, self.client_id, now)

    def more(self, part: bytes) -> None:
        """Further bytes of a streamed body; `complete` is set before the last ones."""
        self.moved = True
        connection, body = self.connection, self.body
        if connection is None:
            if part:
                body.keep(part)
            if body.is_much():
                self.caller.hold_upload(True)
            return
        if part:
            connection.transport.write(part)
            self.sent += len(part)
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
        plane, target = self.plane, claim.target
        connection = self._pooled(target.slot, now)
        dialling: Dial | None = None
        if connection is None:
            dialling = Dial(plane, target, self)
            connection = dialling.at_once()
        if connection is None:
            claim.open(self.number, self.client_id, now, _CONNECTING, 0)
            self.stage = next_stage(self.stage, stages.DIAL_BEGAN)
            self._dialling = dialling
        else:
            stage = _WAITING if self.complete else _SENDING
            claim.open(self.number, self.client_id, now, stage, connection.port)
            self._attach(connection)
        return True

    def _pooled(self, slot: int, now: int) -> InstanceConnection | None:
        """An idle connection, but none that was reset a moment ago: its transport knows, and will
        say so when the loop comes round."""
        pool = self.plane.pool
        connection: InstanceConnection | None = pool.checkout(slot, now)
        while connection is not None and connection.transport.is_closing():
            connection = pool.checkout(slot, now)
        return connection

    def dialled(self, connection: InstanceConnection) -> None:
        self._dialling = None
        ledger, lease = self.plane.ledger, self.claim.lease
        ledger.sending(lease, connection.port)
        if self.complete:
            ledger.waiting(lease)
        self._attach(connection)

    def _attach(self, connection: InstanceConnection) -> None:
        """Send what is here of the request on this connection; the ledger knows already."""
        complete = self.complete
        self.stage = next_stage(self.stage, stages.SENT if complete else stages.ATTACHED)
        self.connection = connection
        request, body, caller = self.request, self.body, self.caller
        connection.take(self, request.start.method == b"HEAD")
        if caller.blocked:
            connection.pause(True)
        self.stalled_upload = False  # until this connection says so, which it may do in `send`
        way = caller.way(request, self.claim.target.address)
        body.send(request_head(request, self._framing, way, self._ids), connection.transport)
        self.sent = body.size
        early = connection.early
        if early is not None:
            early.hand_over(connection)
        if body.is_much():
            body.let_go()
        if not complete:
            caller.go_on()
            caller.hold_upload(self.stalled_upload)

    def _all_sent(self) -> None:
        self.plane.ledger.waiting(self.claim.lease)
        self.stage = next_stage(self.stage, stages.SENT)

    def woken(self) -> bool:
        """Room may have come: take it, or go on waiting (False)."""
        now = self.plane.tick()
        if self.claim.rests(now):
            return False
        try:
            return self._place(True, now)
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

    # -- back-pressure

    def upload_blocked(self, blocked: bool) -> None:
        self.moved = True
        self.stalled_upload = blocked
        if not self.complete:
            self.caller.hold_upload(blocked)

    def download_blocked(self, blocked: bool) -> None:
        """The client does not read (or reads again) what we write."""
        self.moved = True
        if self.connection is not None:
            self.connection.pause(blocked)

    def drop_connection(self) -> None:
        if self._dialling is not None:
            self._dialling.cancel()
            self._dialling = None
        connection = self.connection
        if connection is not None:
            self.connection = None
            connection.abandon()
