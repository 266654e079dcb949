"""Processes made of paper: an instance, a worker, and a store, driven by the world around them."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.fleet import events as e
from gateway.fleet.status import Status
from gateway.messages import (
    Close,
    Cut,
    LostRequest,
    Message,
    Publish,
    TellEmpty,
    TellSent,
)
from gateway.records import RouteTable
from gateway.store.base import Documents, StoreFailed
from sluicegate.v1.states import Phase, State
from tests.gateway.documents import apply

if TYPE_CHECKING:
    from tests.sim.fleet import World

HOP_S = 1 / 1024  # one message between two processes; a power of two, so that sums are exact


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class SimInstance:
    """A process that loads, serves, drains and may misbehave."""

    world: "World"
    name: str
    life: int
    load_s: float
    state: State = State.INITIALIZING
    sequence: int = 1
    steps: int = 0
    frozen: bool = False  # SIGSTOP: it answers nothing
    alive: bool = True
    active: set[int] = field(default_factory=set)  # request ids

    def status(self) -> Status:
        return Status(
            instance_id=self.name,
            incarnation=f"{self.name}#{self.life}",
            sequence=self.sequence,
            model="m",
            version="1",
            http=f"127.0.0.1:{1000 + self.life}",
            grpc=f"127.0.0.1:{2000 + self.life}",
            state=self.state,
            phase=Phase.SERVING if self.state is State.READY else Phase.LOADING_MODEL,
            progress=100.0 if self.state is State.READY else 20.0,
            active_requests=len(self.active),
            progress_total=self.steps,
        )

    def become(self, state: State) -> None:
        if self.alive:
            self.state = state
            self.sequence += 1
            self.push()

    def push(self) -> None:
        """Its watch stream says at once what has changed."""
        if self.alive and not self.frozen:
            self.world.later(HOP_S, lambda: self.world.say(self, e.Source.WATCH))

    def accept(self, request: int) -> None:
        assert self.alive, "a request reached a dead instance without a dial failing"
        assert self.state is State.READY, f"request {request} reached {self.name}, {self.state}"
        self.active.add(request)
        self.steps += 1

    def end(self, status: int) -> None:
        if not self.alive:
            return
        self.alive = False
        for request in tuple(self.active):
            self.world.broken(request)
        self.world.later(HOP_S, lambda: self.world.exited(f"instance.{self.name}", status))


@dataclass(slots=True)
class Lease:
    request: int
    slot: int
    instance: SimInstance
    opened: float


@dataclass(slots=True)
class SimWorker:
    world: "World"
    index: int
    row: int
    pid: int
    table: RouteTable | None = None
    leases: dict[int, Lease] = field(default_factory=dict)
    asked: list[TellEmpty] = field(default_factory=list)
    stuck: bool = False
    alive: bool = True

    def hear(self, message: Message) -> None:
        if not self.alive or self.stuck:
            return
        match message:
            case Publish(table):
                if self.table is None or table.generation > self.table.generation:
                    self.table = table
                    self.world.post_later(e.WorkerAcked(self.row, table.generation, now()))
            case TellSent(_, token):  # requests are sent in no time here
                self.world.post_later(e.SlotSent(self.row, token, now()))
            case TellEmpty():
                self.asked.append(message)
                self.settled()
            case Cut(slots, _, token):
                lost = tuple(
                    LostRequest(one.request, "", one.slot, "streaming", now() - one.opened, 0)
                    for one in tuple(self.leases.values())
                    if one.slot in slots
                )
                for one in lost:
                    self.world.finish(one.request_id, "cut")
                self.world.post_later(e.LeasesCut(self.row, token, lost, now()))
            case Close():
                self.world.later(HOP_S, lambda: self.die(0))

    def settled(self) -> None:
        held = {lease.slot for lease in self.leases.values()}
        for question in [one for one in self.asked if one.slot not in held]:
            self.asked.remove(question)
            self.world.post_later(e.SlotEmptied(self.row, question.token, now()))

    def die(self, status: int) -> None:
        if self.alive:
            self.alive = False
            name = f"worker{self.index}.{self.row}"
            self.world.later(HOP_S, lambda: self.world.exited(name, status))


class SimStore:
    """Writes take a hop and happen in the order in which they were asked for, as on one thread:
    timers of one and the same moment keep none."""

    def __init__(self) -> None:
        self.documents: Documents = {}
        self.broken = False
        self._asked: deque[Sequence[Any]] = deque()

    async def write(self, changes: Sequence[Any]) -> None:
        self._asked.append(changes)
        try:
            await asyncio.sleep(HOP_S)
            if self.broken:
                raise StoreFailed("the disk is full")
            while any(one is changes for one in self._asked):
                apply(self.documents, self._asked.popleft())
        finally:  # it failed, or its control was killed
            self._asked = deque(one for one in self._asked if one is not changes)
