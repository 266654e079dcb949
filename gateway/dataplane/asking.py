"""A client's request, from its head on: its body is taken, and with it the instance is looked for.

Floor 3, I/O.   Flow: accept -> [asking] -> match -> pick -> relay
A body streams when head or path name the model. Where its own JSON names it, it is held until it is
whole, within bounds; most requests come in one read and are placed at once.
"""

from gateway.dataplane.caller import HELD_BODY, NOTHING, STREAMED_BODY, Caller
from gateway.dataplane.plane import Plane
from gateway.dataplane.relay import Exchange
from gateway.errors import GatewayError
from gateway.routing.compiled import (
    AFFINITY,
    CompiledTable,
    key_hash,
    models_answer,
    prefix_key,
)
from gateway.routing.document import model_named, prompt_prefix, read_document
from gateway.routing.match import BY_BODY, LISTING, generates, listed, route_named, routed
from gateway.routing.pick import NO_KEY
from gateway.wire.bodies import BodyReader
from gateway.wire.compose import CLOSE, GO_ON, KEEP, own_answer
from gateway.wire.heads import RequestHead


class Asking(Caller):
    """A client with its current request. `head` and `exchange` serve one request after another;
    `owes_go_on`: it waits to be asked for its body."""

    __slots__ = ("_body", "exchange", "head", "owes_go_on")

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane)
        self.head = RequestHead(plane.request_memo, plane.request_starts)
        self.exchange = Exchange(plane, self, self.head)
        self._body = BodyReader()
        self.owes_go_on = False

    def begin(self, where: int, data: bytes, at: int) -> None:
        """A request's head is here; its body may be, in whole or in part, from `at` on."""
        head, exchange = self.head, self.exchange
        exchange.begin()
        self.owes_go_on = head.expects
        self.reading = STREAMED_BODY
        try:
            table = self.plane.cell.read()
            length = len(data) - at
            if where == BY_BODY and length == head.length and self._may_hold(table, length):
                self._take_whole(table, data[at:])
                return
            self.pending = data[at:]
            if where == BY_BODY:
                self._hold(table)
                return
            self._body.begin(head, False, table.bounds.body_max_bytes)
            if where == LISTING:
                self._list_models(table)
                return
            route, pin = routed(head, table, where)
            part = self._take(self.pending)
            if part:
                exchange.body.keep(part)
            key = key_hash(head.session) if head.session else NO_KEY
            exchange.start(route, pin, key, head.framing, generates(head), exchange.began_ns)
        except GatewayError as exc:
            exchange.refuse(exc)

    def _take(self, data: bytes) -> bytes:
        """What this input brings of the body; the rest waits.

        Raises: GatewayError.
        """
        body = self._body
        if body.done:
            part = b""
        else:
            used = body.feed(data)
            self.pending = data[used:]
            part = body.part
            if used:
                self.owes_go_on = False
        if body.done:
            self.reading = NOTHING
            self.exchange.complete = True
        return part

    def _may_hold(self, table: CompiledTable, length: int) -> bool:
        """Whether a body that is here whole can be held without a further question."""
        return 0 < length <= table.bounds.route_body_max_bytes and not self.head.encoded

    def _take_whole(self, table: CompiledTable, body: bytes) -> None:
        """The request came in one read, as most do."""
        self.pending = b""
        self.reading = NOTHING
        self.exchange.complete = True
        self.owes_go_on = False
        self.exchange.body.keep(body)
        if self.plane.held_bytes > self.plane.bodies_max_bytes:
            self._check_room()
        self._route(table, body, self.exchange.began_ns)

    def _hold(self, table: CompiledTable) -> None:
        """The model's name is in the body: it has to be here whole."""
        if self.head.encoded:
            text = "a compressed body cannot be searched for its model: name it in x-model"
            raise GatewayError("encoded_body", text)
        self.reading = HELD_BODY
        self._body.begin(self.head, True, table.bounds.route_body_max_bytes)
        self._hold_part(self.pending)
        if self.reading == HELD_BODY:
            exchange = self.exchange
            exchange.claim.show(exchange.number, exchange.client_id, exchange.began_ns)
            self.go_on()

    def _hold_part(self, data: bytes) -> None:
        body = self.exchange.body
        part = self._take(data)
        if part:
            body.keep(part)
        self._check_room()
        if self.reading == NOTHING:
            self._route(self.plane.cell.read(), body.joined(), self.plane.tick())

    def _check_room(self) -> None:
        """Raises: GatewayError when all bodies together are too much."""
        most = self.plane.bodies_max_bytes
        if self.plane.held_bytes > most:
            raise GatewayError("bodies_full", f"more than {most} bytes of bodies are held", 1)

    def _route(self, table: CompiledTable, body: bytes, now: int) -> None:
        """The whole request is here, and its body says for which model."""
        head = self.head
        document = read_document(body)
        route = route_named(table, model_named(document))
        key = NO_KEY
        if head.session:
            key = key_hash(head.session)
        elif route.policy == AFFINITY:
            prefix = prompt_prefix(document)
            key = prefix_key(prefix) if prefix else NO_KEY
        pin = head.version.decode("utf-8", "replace") if head.version else ""
        framing = b"content-length: %d" % len(body) if head.chunked else head.framing
        exchange = self.exchange
        exchange.start(route, pin, key, framing, True, now)
        if self.plane.sampler is not None:
            exchange.consider(body)

    def read_body(self, data: bytes) -> None:
        """More of a body."""
        try:
            if self.reading == HELD_BODY:
                self._hold_part(data)
            else:
                self.exchange.more(self._take(data))
        except GatewayError as exc:
            self.exchange.client_broke(exc)

    def _list_models(self, table: CompiledTable) -> None:
        self._take(self.pending)
        model = listed(self.head)
        body = models_answer(table, model)
        if body is None:
            raise GatewayError("unknown_model", f"no model named {model}", model=model)
        self.exchange.served_here()
        keep = self.may_keep()
        bodyless = self.head.start.method == b"HEAD"
        request_id, date = self.exchange.client_id, self.plane.date
        said = self.connection_line(keep)
        self.transport.write(own_answer(body, request_id, date, said, bodyless))
        self.finished(keep)

    # -- the answer

    def go_on(self) -> None:
        if self.owes_go_on:
            self.owes_go_on = False
            self.transport.write(GO_ON)

    def may_keep(self) -> bool:
        return self.reading == NOTHING and self.head.keep_alive and not self.plane.closing

    def connection_line(self, keep: bool) -> bytes:
        if not keep:
            return CLOSE
        return KEEP if self.head.start.minor == 0 else b""
