"""Workers on paper: the real worker, plane, link and ledger, no sockets."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, cast

from gateway.dataplane.link import Link
from gateway.dataplane.plane import Plane
from gateway.dataplane.worker import Worker
from gateway.errors import REFUSALS
from gateway.messages import Hello, Message, Suspected
from gateway.state.ledger import Ledger
from gateway.state.shared import PID
from tests.sim.agenda import Then, Wire, hop_s

if TYPE_CHECKING:
    from tests.sim.caller import Request
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
