"""A gateway's control side in a world made of paper: instances, workers, supervisor and store.

The real loop and the real `decide` run on virtual time; everything outside is simulated here, and
every law that must hold is checked at the moment at which it could break:

- nothing reaches an instance that is not READY or has been told to drain;
- a request ends exactly once: answered, cut by name, or lost by name;
- generations only grow, and a worker serves what it acknowledged;
- an instance process is started once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from gateway.config import Settings, parse
from gateway.control import Ask, Receipt
from gateway.controlplane.loop import ControlLoop
from gateway.controlplane.tickets import Tickets
from gateway.fleet import commands as c
from gateway.fleet import events as e
from gateway.fleet.decide import decide
from gateway.fleet.events import NeedsRead
from gateway.fleet.registry import hashed
from gateway.fleet.restore import Life, restore
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import (
    Exit,
    Kill,
    LostRequest,
    Message,
    Publish,
    Serving,
)
from gateway.records import Target
from gateway.state.shared import Layout
from gateway.store.base import StoreFailed
from sluicegate.v1.states import State
from tests.sim.processes import HOP_S, Lease, SimInstance, SimStore, SimWorker, now

SIGKILL = 9
TOKEN = "token"

CONFIG = """
[gateway]
workers = 2
[poll]
interval_s = 1.0
[drain]
grace_s = 30
[[device]]
name = "d0"
memory_gb = 10
[[model]]
name = "m"
weights = { "1" = 100 }
replicas = { "1" = 2 }
"""


class World:
    """Everything outside the control process, and the control process itself."""

    def __init__(self, text: str = CONFIG, load_s: float = 10.0) -> None:
        self.settings: Settings = parse(text)
        self.load_s = load_s
        self.store = SimStore()
        self.instances: dict[str, SimInstance] = {}  # the last life of each
        self.workers: dict[int, SimWorker] = {}
        self.dead_leases: dict[int, dict[int, Lease]] = {}  # row: what its worker held
        self.outcomes: dict[int, str] = {}  # request: how it ended
        self.named: dict[int, str] = {}  # lost request: cause, as operators were told
        self.records: list[tuple[float, str]] = []
        self.generations: list[int] = []
        self.children: dict[str, int] = {}  # what the supervisor has not reaped: name, pid
        self.serving = False
        self.exit_code: int | None = None
        self.reload_text: str | None = None
        self._numbers = count(1)
        self._tickets = Tickets()
        self._followed: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None

    # -- the control process

    def start_control(self) -> None:
        """A control process begins, from the store and from what the supervisor runs."""
        layout = Layout(rows=6, slots=64, sections=8, leases=64)
        served = max([w.table.generation for w in self.workers.values() if w.table], default=0)
        fleet = restore(self.settings, self.store.documents, Life(layout, 1, served, now(), 0.0))
        effects = self._effects()
        self.loop = ControlLoop[FleetSnapshot, e.Event](fleet, decide, effects, self._broken)
        self._running = asyncio.get_running_loop().create_task(self.loop.run())
        unsettled = frozenset(self.dead_leases)
        self.post(e.ChildrenSeen(dict(self.children), 2, unsettled, now()))
        for worker in [one for one in self.workers.values() if one.alive]:
            self.later(HOP_S, partial(self._hello, worker))

    async def kill_control(self) -> None:
        assert self._running is not None, "it runs"
        for _, task in self._followed.values():
            task.cancel()
        self._followed.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)

    def _broken(self, command: object, exc: Exception) -> e.Event:
        raise AssertionError(f"{command} broke") from exc

    @property
    def fleet(self) -> FleetSnapshot:
        return self.loop.state

    def post(self, event: e.Event) -> None:
        self.loop.post(event)

    def post_later(self, event: e.Event) -> None:
        self.later(HOP_S, lambda: self.post(replace(event, now=now())))

    def later(self, delay_s: float, then: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, then)

    async def ask(self, ask: Ask, revision: int | None = None) -> Receipt:
        ticket, answer = self._tickets.draw()
        self.post(e.Asked(ticket, ask, False, revision, now()))
        receipt: Receipt = await answer
        return receipt

    async def until(self, holds: Callable[[FleetSnapshot], bool]) -> float:
        """The time at which it is true of the fleet, looked at after each decision."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[float] = loop.create_future()

        def look(fleet: FleetSnapshot) -> None:
            if holds(fleet) and not done.done():
                done.set_result(loop.time())

        look(self.fleet)
        self.loop.after.append(look)
        return await done

    # -- effects

    def _effects(self) -> dict[type, Callable[[Any], Any]]:
        return {
            c.Tell: lambda one: self.later(HOP_S, lambda: self._tell(one)),
            c.Supervise: lambda one: self._supervise(one.message),
            c.StartWorker: self._start_worker,
            c.Launch: self._launch,
            c.SettleRow: self._settle_row,
            c.FreeRow: lambda one: None,
            c.FoldSlot: lambda one: e.SlotFolded(one.slot, now()),
            c.Follow: self._follow,
            c.Unfollow: lambda one: self._unfollow(one.name),
            c.PollNow: lambda one: self._poll_once(one.name),
            c.CallDrain: lambda one: self._call(one, "Drain", State.DRAINING),
            c.CallResume: lambda one: self._call(one, "Resume", State.READY),
            c.CallStop: lambda one: self._call(one, "Stop", State.STOPPED),
            c.Write: self._write,
            c.ReadSettings: self._read_settings,
            c.KeepText: lambda one: None,
            c.ReadNeeds: lambda one: NeedsRead(dict.fromkeys(one.pairs, 0), now()),
            c.Answer: lambda one: self._tickets.answer(one.ticket, one.value),
            c.Record: self._record,
            c.Count: lambda one: None,
            c.CountDrain: lambda one: None,
            c.WakeAt: self._wake_at,
        }

    def _tell(self, one: c.Tell) -> None:
        if isinstance(one.message, Publish):
            self.generations.append(one.message.table.generation)
        if one.row in self.workers:
            self.workers[one.row].hear(one.message)

    def _supervise(self, message: Message) -> None:
        match message:
            case Kill(name, number) if name.startswith("worker"):
                row = int(name.partition(".")[2])
                self.workers[row].die(-number)
            case Kill(name, number):
                one = self.instances[name.removeprefix("instance.")]
                if number == SIGKILL or not one.frozen:
                    one.end(-number if number == SIGKILL else 0)
            case Serving():
                self.serving = True
            case Exit(code):
                self.exit_code = code

    def _start_worker(self, one: c.StartWorker) -> None:
        old = self.workers.get(one.row)
        assert old is None or not old.alive, "a row has one worker"
        assert one.row not in self.dead_leases, "a row is settled before it is used again"
        worker = SimWorker(self, one.index, one.row, next(self._numbers) + 10_000)
        self.workers[one.row] = worker
        self.children[f"worker{one.index}.{one.row}"] = worker.pid
        self.later(0.125, lambda: self._hello(worker))

    def _hello(self, worker: SimWorker) -> None:
        if worker.alive:
            worker.asked.clear()
            generation = worker.table.generation if worker.table else 0
            self.post(e.WorkerLinked(worker.index, worker.row, worker.pid, generation, now()))

    def _launch(self, one: c.Launch) -> e.LaunchOrdered:
        old = self.instances.get(one.name)
        assert old is None or not old.alive, f"{one.name} was started twice"
        born = SimInstance(self, one.name, next(self._numbers), self.load_s)
        self.instances[one.name] = born
        self.children[f"instance.{one.name}"] = 1
        self.later(HOP_S, lambda: self._register(born))
        self.later(born.load_s, lambda: born.become(State.READY))
        return e.LaunchOrdered(one.name, hashed(TOKEN), now())

    def _register(self, born: SimInstance) -> None:
        if born.alive:
            self.post(e.Registered(0, born.status(), TOKEN, 0.0, 0, now()))

    def _settle_row(self, one: c.SettleRow) -> e.RowSettled:
        leases = self.dead_leases.pop(one.row, {})
        lost = tuple(
            LostRequest(lease.request, "", lease.slot, "streaming", now() - lease.opened, 0)
            for lease in leases.values()
        )
        for one_lost in lost:
            self.outcomes[one_lost.request_id] = "lost"
        return e.RowSettled(one.row, lost, now())

    def _follow(self, one: c.Follow) -> None:
        current = self._followed.get(one.name)
        if current is not None and current[0] == one.grpc:
            return
        self._unfollow(one.name)
        task = asyncio.get_running_loop().create_task(self._poll(one.name))
        self._followed[one.name] = (one.grpc, task)

    def _unfollow(self, name: str) -> None:
        found = self._followed.pop(name, None)
        if found is not None:
            found[1].cancel()

    async def _poll(self, name: str) -> None:
        while True:
            self._poll_once(name)
            await asyncio.sleep(1.0)

    def _poll_once(self, name: str) -> None:
        one, grpc = self.instances.get(name), self._address(name)
        if one is None or not one.alive:
            self.later(HOP_S, lambda: self._failed(name, grpc, False))
        elif one.frozen:
            self.later(1.0, lambda: self._failed(name, grpc, True))
        else:
            self.later(HOP_S, lambda: self.say(one, e.Source.POLL))

    def _address(self, name: str) -> str:
        return self._followed[name][0] if name in self._followed else ""

    def _failed(self, name: str, grpc: str, slow: bool) -> None:
        self.post(e.PollFailed(name, grpc, "no answer", slow, 0, 0, now()))

    def say(self, one: SimInstance, source: e.Source) -> None:
        if one.alive and not one.frozen and one.name in self._followed:
            held = sum(
                lease.instance is one
                for worker in self.workers.values()
                for lease in worker.leases.values()
            )
            status = one.status()
            self.post(e.Observed(one.name, source, status.grpc, "", status, one.steps, held, now()))

    async def _call(self, one: Any, call: str, state: State) -> e.Event:
        await asyncio.sleep(HOP_S)
        target = self.instances[one.name]
        if not target.alive or target.frozen or target.status().grpc != one.grpc:
            return e.CallFailed(one.name, call, "no answer", now())
        if target.state in {State.READY, State.DRAINING} or state is State.STOPPED:
            target.become(state)
        if state is State.STOPPED:
            self.later(HOP_S, lambda: target.end(0))
        status = target.status()
        return e.Observed(one.name, e.Source.REPLY, one.grpc, "", status, target.steps, 0, now())

    async def _write(self, one: c.Write) -> e.Event:
        try:
            await self.store.write(one.changes)
        except StoreFailed as exc:
            return e.WriteFailed(one.then, str(exc), now())
        return replace(one.then, now=now())

    def _read_settings(self, one: c.ReadSettings) -> e.SettingsRead:
        text = self.reload_text or ""
        settings = parse(text)
        return e.SettingsRead(
            one.ticket, one.why, one.dry_run, one.revision, text, settings, (), now()
        )

    def _record(self, one: c.Record) -> None:
        self.records.append((now(), one.text))
        if one.kind == "request":
            request = int(one.subject, 16)
            assert request not in self.named, "a lost request is named once"
            self.named[request] = one.fields["cause"]

    def _wake_at(self, one: c.WakeAt) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(one.when, lambda: self.post(e.Ticked(now())))

    # -- what happens

    def exited(self, name: str, status: int) -> None:
        del self.children[name]
        if name.startswith("worker"):
            row = int(name.partition(".")[2])
            self.dead_leases[row] = dict(self.workers[row].leases)
            for lease in tuple(self.workers[row].leases.values()):
                lease.instance.active.discard(lease.request)
            self.workers[row].leases.clear()
        if self._running is not None and not self._running.done():
            self.post(e.ChildExited(name, 1, status, now()))

    def request(self, seconds: float, worker: SimWorker | None = None) -> int | None:
        """A client's request; its number, or None when it was answered with a 503."""
        able = [one for one in self.workers.values() if one.alive and one.table and not one.stuck]
        if not able:
            return None
        worker = worker or able[next(self._numbers) % len(able)]
        assert worker.table is not None, "it accepts only with a table"
        targets = [t for route in worker.table.routes for v in route.versions for t in v.targets]
        number = next(self._numbers)
        while targets:
            target = min(targets, key=lambda t: len(self._of(t).active))
            one = self._of(target)
            if one.alive and target.incarnation == f"{one.name}#{one.life}":
                one.accept(number)
                worker.leases[number] = Lease(number, target.slot, one, now())
                self.later(seconds, lambda: self.finish(number, "served"))
                return number
            targets.remove(target)  # the dial is refused, and control is told
            self.post_later(e.DialFailed(target.slot, "connection refused", now()))
        return None

    def _of(self, target: Target) -> SimInstance:
        return self.instances[target.instance]

    def finish(self, request: int, outcome: str) -> None:
        for worker in self.workers.values():
            lease = worker.leases.pop(request, None)
            if lease is not None and worker.alive:
                assert request not in self.outcomes, "a request ends once"
                self.outcomes[request] = outcome
                lease.instance.active.discard(request)
                lease.instance.steps += 1
                if lease.instance.state is State.DRAINING:
                    lease.instance.push()
                worker.settled()
            elif lease is not None:
                worker.leases[request] = lease  # it died: control settles that

    def broken(self, request: int) -> None:
        """Its instance died: the worker sees a reset."""
        self.finish(request, "reset")

    def held(self) -> int:
        alive = sum(len(one.leases) for one in self.workers.values())
        return alive + sum(len(leases) for leases in self.dead_leases.values())

    def check(self, accepted: set[int]) -> None:
        """The conservation laws, at any moment."""
        assert len(accepted) == len(self.outcomes) + self.held()
        assert self.generations == sorted(self.generations), "generations only grow"
        for request, outcome in self.outcomes.items():
            if outcome in {"cut", "lost"} and request in self.named:
                assert self.named[request]


Scenario = Callable[[World], Awaitable[Any]]


async def started(world: World) -> World:
    """A gateway whose instances are all READY and routable."""
    world.start_control()
    await world.until(lambda fleet: ready(fleet) == len(world.fleet.launches) > 0)
    return world


def ready(fleet: FleetSnapshot) -> int:
    """Instances in the table that every worker serves."""
    if fleet.table is None or fleet.served() < fleet.generation:
        return 0
    return sum(len(v.targets) for route in fleet.table.routes for v in route.versions)
