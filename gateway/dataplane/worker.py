"""One worker: what control says, done; what control waits for, said.

Floor 3, I/O.
Control gives tables and orders; back go acknowledgements and one-shot answers. Nothing here runs
per request: the ledger calls back only while control waits for a slot. A worker accepts nothing
until it holds a table, and goes on with its last one when control is gone.
"""

import asyncio
import gc
import logging
import os
import sys
from dataclasses import asdict
from typing import Final

from gateway.dataplane.accept import IDLE_GRACE_S, ClientConnection
from gateway.dataplane.link import Link
from gateway.dataplane.listeners import Listeners
from gateway.dataplane.plane import Plane
from gateway.dataplane.relay import Exchange
from gateway.dataplane.sampler import Sampler
from gateway.dataplane.stages import SETTLED, STAGE_NAMES
from gateway.dataplane.sweep import sweep
from gateway.errors import GatewayError
from gateway.messages import (
    Accept,
    Ack,
    Close,
    Cut,
    Empty,
    Heard,
    Hello,
    Leave,
    LostRequest,
    Message,
    Note,
    Publish,
    Sent,
    TellEmpty,
    TellSent,
    WereCut,
)
from gateway.native import interpreted
from gateway.records import RouteTable

log = logging.getLogger(__name__)

BEAT_S: Final = 0.1  # control takes half a second without one for trouble
SWEEP_S: Final = 1.0
NOBODY: Final = -1  # the token of a WereCut that no control of now has asked for
LAST_WORDS_S: Final = 1.0  # for the answers of those who are cut at the end
NS: Final = 1_000_000_000


class Worker:
    """Owner: the process. `finished` is set when it may exit."""

    def __init__(
        self,
        plane: Plane,
        index: int,
        row: int,
        control: str,
        sockets: dict[int, list[int]],
        waits: bool = False,
    ) -> None:
        self._plane = plane
        self._index = index
        self._row = row
        self.link = Link(control, self._hello, self.heard)
        self._listeners = Listeners(sockets, self._connection)
        # Whose connections it takes, from the first table on: its own, unless it waits for leave.
        self._accepts: set[int] = set() if waits else {index}
        self.finished = asyncio.Event()
        self._tell_sent: dict[int, list[int]] = {}  # slot: tokens of who asked
        self._tell_empty: dict[int, list[int]] = {}
        self._unheard: dict[int, tuple[LostRequest, ...]] = {}  # token: cut, and not on record yet
        plane.on_left = self._left
        self._sampler = Sampler(plane.loop, plane.rng, self.link.say_if_read)

    async def run(self) -> None:
        """Serve until told to close and done."""
        self._beat()
        self._sweep()
        talking = asyncio.get_running_loop().create_task(self.link.keep())
        await self.finished.wait()
        talking.cancel()
        for lost in self.last_words():
            log.warning("request lost", extra={**asdict(lost), "cause": "cut, control not there"})

    def _connection(self) -> ClientConnection:
        return ClientConnection(self._plane)

    def _hello(self) -> Message:
        # Tokens belong to the control that asked; a new one asks again.
        self._tell_sent.clear()
        self._tell_empty.clear()
        self._listen()
        self._plane.loop.call_soon(self._say_unheard)  # behind the Hello
        compiled = not interpreted(sys.modules)
        generation, waits = self._plane.cell.generation, self._index not in self._accepts
        return Hello(self._index, self._row, os.getpid(), generation, compiled, waits)

    # -- by the clock

    def _beat(self) -> None:
        plane = self._plane
        plane.ledger.beat(plane.clock())
        plane.ledger.look_around()
        if plane.waitroom.size:  # for room whose bell was missed
            plane.waitroom.wake_all()
        plane.loop.call_later(BEAT_S, self._beat)

    def _sweep(self) -> None:
        sweep(self._plane, self._plane.clock())
        self._plane.loop.call_later(SWEEP_S, self._sweep)

    # -- what control says

    def heard(self, message: Message) -> None:
        match message:
            case Publish(table):
                self._publish(table)
            case Note(standings):
                self._plane.cell.note(standings)
            case TellSent(slot, token):
                self._tell_sent.setdefault(slot, []).append(token)
                self._listen()
                self.sent(slot)
            case TellEmpty(slot, token):
                self._tell_empty.setdefault(slot, []).append(token)
                self._listen()
                self.settled(slot)
            case Cut():
                self._cut(message)
            case Heard(token):
                self._unheard.pop(token, None)
            case Accept(index):
                self._accepts.add(index)
                self._accept()
            case Leave(index):
                self._accepts.discard(index)
                self._listeners.leave(index)
            case Close(grace_s):
                self._close(grace_s)
            case _:
                raise ValueError(f"{type(message).__name__} is not for workers")

    def _publish(self, table: RouteTable) -> None:
        plane = self._plane
        first = plane.cell.table is None
        if not plane.publish(table):
            return
        plane.sampler = self._sampler if self._sampler.use(table.sampling) else None
        compiled = plane.cell.read()
        plane.ledger.serves(compiled.generation)
        self.link.say(Ack(compiled.generation))
        for connection in plane.pool.retain(compiled.owners):
            connection.abandon()
        for waiter in plane.waitroom.everyone():
            waiter.reviewed()
        plane.waitroom.wake_all()
        if first:
            self._accept()
            gc.collect()
            gc.freeze()  # what lives as long as the process is not looked at again

    def _accept(self) -> None:
        if self._plane.cell.table is not None and not self._plane.closing:
            for index in self._accepts:
                self._listeners.accept(index)

    def _listen(self) -> None:
        """Be called by the ledger exactly while there is somebody to tell."""
        ledger = self._plane.ledger
        ledger.on_sent = self.sent if self._tell_sent else None
        ledger.on_settled = self.settled if self._tell_empty else None

    def sent(self, slot: int) -> None:
        """No lease of the slot is connecting or sending any more."""
        if slot in self._tell_sent and self._plane.ledger.unsent(slot) == 0:
            for token in self._tell_sent.pop(slot):
                self.link.say(Sent(slot, token))
            self._listen()

    def settled(self, slot: int) -> None:
        """A lease of the slot was given back."""
        if slot in self._tell_empty and self._plane.ledger.held(slot) == 0:
            for token in self._tell_empty.pop(slot):
                self.link.say(Empty(slot, token))
            self._listen()

    def _cut(self, order: Cut) -> None:
        slots, requests = frozenset(order.slots), frozenset(order.requests)
        now = self._plane.clock()
        lost: list[LostRequest] = []
        for exchange in self._exchanges():
            claim = exchange.claim
            if (claim.held and claim.target.slot in slots) or exchange.number in requests:
                lost.append(described(exchange, now))
                exchange.cut(GatewayError("cut", "the request was ended by the operator"))
        self._say_cut(order.token, tuple(lost))

    def _say_cut(self, token: int, lost: tuple[LostRequest, ...]) -> None:
        """Until control has them on record, they are kept: the one that asked may be dying."""
        if lost:
            self._unheard[token] = (*self._unheard.get(token, ()), *lost)
        self.link.say(WereCut(token, lost))

    def last_words(self) -> tuple[LostRequest, ...]:
        """What was cut and never came on record; nobody else can name it."""
        return tuple(one for many in self._unheard.values() for one in many)

    def _say_unheard(self) -> None:
        lost = self.last_words()
        self._unheard.clear()
        if lost:
            self._say_cut(NOBODY, lost)

    def _exchanges(self) -> list[Exchange]:
        clients: list[ClientConnection] = list(self._plane.clients)
        return [client.exchange for client in clients if client.exchange.stage != SETTLED]

    # -- the end

    def _close(self, grace_s: float) -> None:
        """Stop accepting, answer what was accepted, and go."""
        if self._plane.closing:
            return
        self._plane.closing = True
        self._listeners.close()
        loop = self._plane.loop
        loop.call_later(min(IDLE_GRACE_S, grace_s), self._end_idle)
        loop.call_later(grace_s, self._cut_all)
        self._left()

    def _end_idle(self) -> None:
        for client in list(self._plane.clients):
            client.end_if_idle()

    def _cut_all(self) -> None:
        now = self._plane.clock()
        exchanges = self._exchanges()
        if exchanges:  # nobody asked for them by a token, but they are named like all others
            self._say_cut(NOBODY, tuple(described(one, now) for one in exchanges))
        for exchange in exchanges:
            exchange.cut(GatewayError("gateway_closing", "the gateway is shutting down"))
        self._end_idle()
        self._plane.loop.call_later(LAST_WORDS_S, self.finished.set)

    def _left(self) -> None:
        """A client connection has ended."""
        if self._plane.closing and not self._plane.clients:
            self.finished.set()


def described(exchange: Exchange, now: int) -> LostRequest:
    """A request as its loss is reported."""
    claim = exchange.claim
    return LostRequest(
        request_id=exchange.number,
        client_request_id=exchange.client_id.decode("latin-1"),
        slot=claim.target.slot if claim.held else -1,
        stage=STAGE_NAMES[exchange.stage],
        age_s=round((now - exchange.began_ns) / NS, 3),
        bytes=claim.received_bytes(),
    )
