"""A whole gateway on paper: everything that outlives a control process.

Owner of supervisor, segment, store, config file, workers, instances and operators. What happens is
told to Facts, of which it is one.
"""

import os
from collections.abc import Callable
from functools import cache, partial
from itertools import count
from random import Random
from typing import Any

import orjson

from gateway.config import ConfigInvalid, Problem, Settings, parse, unchangeable
from gateway.control import Ask, Denied, Receipt
from gateway.controlplane.folds import Folds
from gateway.fleet import commands as c
from gateway.fleet import events as e
from gateway.fleet.durable import GENERATIONS, counter_change
from gateway.fleet.restore import Life, restore
from gateway.messages import Exit, Kill, Message, Publish, Serving, Spawn
from gateway.records import Outcome
from gateway.state.settle import unsettled
from gateway.state.shared import GENERATION, IDENTITY, Segment, create
from sluicegate.v1.states import State
from tests.sim import laws
from tests.sim.agenda import Agenda, Wire, hop_s
from tests.sim.caller import Request
from tests.sim.control import Control
from tests.sim.facts import LAYOUT, WORKERS, Facts
from tests.sim.instance import SIGKILL, SimInstance
from tests.sim.known import Known
from tests.sim.store import PaperStore
from tests.sim.worker import SimWorker

STUCK_S = 1.5  # worker_stuck_s of the config
START_S = 0.1
BEAT_LOST_S = 0.6  # until control sees that a worker is stopped
NEEDS_BYTES = 1 << 30


@cache
def parsed(text: str) -> tuple[Settings | None, tuple[Problem, ...]]:
    try:
        return parse(text), ()
    except ConfigInvalid as exc:
        return None, exc.problems


class World(Facts):
    def __init__(self, seed: int, text: str) -> None:
        self.rng = Random(seed)
        self.agenda = Agenda()
        self.numbers = count(1)
        fd = create(LAYOUT)
        self.segment = Segment(fd)
        os.close(fd)
        self.segment.cells[IDENTITY] = 1
        self.store = PaperStore(self.agenda, self.rng)
        self.file_text = self.kept_text = text
        self.control: Control | None = None
        self.running: dict[str, SimInstance] = {}  # the last life of each id that we know of
        self.at_port: dict[str, SimInstance] = {}  # by http address
        self.at_grpc_port: dict[str, SimInstance] = {}
        self.by_pid: dict[int, SimInstance] = {}
        self.workers: dict[int, SimWorker] = {}  # by row, of those that live
        self.links: dict[int, SimWorker] = {}
        self.children: dict[str, int] = {}
        self.labels: dict[str, str] = {}  # of instances, by their children's names
        self.orders: list[Message] = []
        self.tokens: dict[str, str] = {}
        self._placed: dict[str, tuple[str, str, str]] = {}  # model, version, device of a launch
        self.fates: dict[str, list[str]] = {}  # of the next lives
        self.failing: dict[str, float] = {}  # share of failed answers, by version
        self.load_s = 0.4
        self.wall_s = 1_000_000.0
        self.signals = 0
        self.exited: int | None = None
        self._tickets: dict[int, tuple[Control, Callable[[Any], None]]] = {}
        self._to_control = Wire(self.agenda, self.rng)
        self.begin_facts(text)

    # -- control

    def start_control(self) -> None:
        if self.control is not None or self.exited is not None:
            return
        self.lives += 1
        again = self.lives > 1
        before = self._in_force
        settings, _ = parsed(self.file_text)
        kept, _ = parsed(self.kept_text)
        assert kept is not None, "what was in force is whole"
        if settings is None or (again and unchangeable(kept, settings)):
            settings = kept
        else:
            self.kept_text = self.file_text
        self._in_force = settings
        if before is not None:
            self._file_changed(before, settings)
        documents = orjson.loads(orjson.dumps(self.store.documents))
        now = self.agenda.now
        served = max(
            self.segment.cells[self.segment.base(row) + GENERATION] for row in range(LAYOUT.rows)
        )
        holder: list[Control] = []
        folds = Folds(self.segment, self.store, 1, lambda: holder[0].fleet)
        folds.restore(documents)
        fleet = restore(settings, documents, Life(LAYOUT, 1, served, now, self.wall_s))
        self.store.keep((counter_change("generation", fleet.ceiling + GENERATIONS),))
        folds.clear_free(frozenset(fleet.book.holders))
        self.control = control = Control(self, fleet, folds)
        holder.append(control)
        self.known = Known(self._rules.failures, self._rules.successes)
        self._named_now = set()
        self.links = {}
        laws.numbers_only_grow("the generation", self.generation, fleet.generation)
        laws.numbers_only_grow("the revision", self.revision, fleet.revision)
        self._to_control = Wire(self.agenda, self.rng)
        children = dict(self.children)
        labels = {name: self.labels[name] for name in children if name in self.labels}
        self._tell_control(
            lambda: e.ChildrenSeen(
                children, WORKERS, unsettled(self.segment), self.agenda.now, labels
            )
        )
        if self.signals:
            self._tell_control(partial(self._stop_asked, self.signals))
        for worker in self.workers.values():
            self._link(worker)

    def _stop_asked(self, number: int) -> e.Event:
        return e.StopAsked(number, self.agenda.now)

    def _link(self, worker: SimWorker) -> None:
        control = self.control

        def connects() -> None:
            current = control is not None and control is self.control and worker.alive
            if control is not None and current and worker.control is not control:
                worker.connect(control)

        self.agenda.later(hop_s(self.rng), lambda: worker.does(connects))

    def control_died(self, control: Control) -> None:
        """Whatever it was doing: orders that were written are carried out, and it starts anew."""
        if self.control is not control:
            return
        control.end()
        self.control = None
        self.store.writer_died()
        self.promises.control_died()
        self._tickets.clear()
        while self.orders:
            self.carry_out()
        for worker in self.workers.values():
            worker.unlinked(control)
        wait_s = self.rng.choice((0.05, 0.05, 0.4, 2.0))
        self.agenda.later(wait_s, self.start_control)

    def _tell_control(self, event: Callable[[], e.Event]) -> None:
        control = self.control
        if control is not None:
            self._to_control.send(lambda: control.post(event()))

    # -- supervisor

    def carry_out(self) -> None:
        if not self.orders:
            return  # it was carried out when control died
        order = self.orders.pop(0)
        match order:
            case Spawn(name) if name.startswith("worker"):
                self._start_worker(name)
            case Spawn(name):
                self.labels[name] = order.label
                self._start_instance(name.removeprefix("instance."))
            case Kill(name, number) if name in self.children:
                pid = self.children[name]
                if name.startswith("worker"):
                    for worker in tuple(self.workers.values()):
                        if worker.pid == pid:
                            worker.die(-number)
                elif number == SIGKILL:
                    self.by_pid[pid].end(-SIGKILL)
                else:
                    one = self.by_pid[pid]
                    one.does(lambda: one.stop(3.0, "SIGTERM"))
            case Kill() | Serving():
                pass
            case Exit(code):
                self.exited = code
                if self.control is not None:
                    self.control.end()
                    self.control = None

    def _start_worker(self, name: str) -> None:
        laws.started_once(name, self.children)
        index, row = map(int, name.removeprefix("worker").split("."))
        pid = next(self.numbers) + 10_000
        self.children[name] = pid
        self._tell_control(lambda: e.ChildStarted(name, pid, self.agenda.now))

        def begins() -> None:
            worker = SimWorker(self, index, row, pid)
            self.workers[row] = worker
            self._link(worker)
            self.agenda.later(0.1, self._look_around)

        self.agenda.later(START_S, begins)

    def _look_around(self) -> None:
        for worker in self.workers.values():
            worker.ledger.look_around()

    def _start_instance(self, name: str) -> None:
        laws.started_once(name, self.children.keys() & {f"instance.{name}"})
        model, version, device = self._placed[name]
        fates = self.fates.get(name)
        fate = fates.pop(0) if fates else "ready"
        one = SimInstance(
            self,
            name,
            model,
            version,
            2000 + next(self.numbers),
            self.load_s,
            fate,
            self.tokens[name],
            device,
        )
        self._add(one)
        pid = one.number
        self.by_pid[pid] = one
        self.children[f"instance.{name}"] = pid
        self._tell_control(lambda: e.ChildStarted(f"instance.{name}", pid, self.agenda.now))
        loading = [
            other.name
            for other in self.by_pid.values()
            if other.alive and other.device == device and other.state is State.INITIALIZING
        ]
        laws.one_loads_at_a_time(device, loading)

    def _add(self, one: SimInstance) -> None:
        self.running[one.name] = one
        self.at_port[one.http] = one
        self.at_grpc_port[one.grpc] = one

    def token(self, one: c.Launch) -> str:
        self.tokens[one.name] = f"token{next(self.numbers)}"
        self._placed[one.name] = (one.model, one.version, one.device)
        return self.tokens[one.name]

    def instance_ended(self, one: SimInstance, status: int) -> None:
        if one.number in self.by_pid:
            name, pid = f"instance.{one.name}", one.number

            def reaped() -> None:
                if self.children.get(name) == pid:
                    del self.children[name]
                self._tell_control(lambda: e.ChildExited(name, pid, status, self.agenda.now))

            self.agenda.later(hop_s(self.rng), reaped)

    def worker_ended(self, worker: SimWorker, status: int) -> None:
        if self.workers.get(worker.row) is worker:
            del self.workers[worker.row]
        self.undisturbed = self.agenda.now
        for lost in worker.worker.last_words():
            if status == 0:
                self.named.add(lost.request_id)
            else:  # the one gap: it is killed before a control has heard what it cut
                self.owed.pop(lost.request_id, None)
        held: dict[int, int] = {}
        for request in worker.requests.values():
            if request.claim.held:
                slot = request.claim.target.slot
                held[slot] = held.get(slot, 0) + 1
        self.dead_held[worker.row] = held
        name = f"worker{worker.index}.{worker.row}"
        control = worker.control
        if control is not None:
            self._unlink(worker, control)

        def reaped() -> None:
            del self.children[name]
            self._tell_control(lambda: e.ChildExited(name, worker.pid, status, self.agenda.now))

        self.agenda.later(hop_s(self.rng), reaped)

    # -- wires to workers

    def tell(self, control: Control, row: int, message: Message) -> None:
        if isinstance(message, Publish):
            laws.a_generation_is_one_table(self.published, message.table)
        worker = self.links.get(row)
        if worker is not None:
            worker.hears(control, message)

    def _unlink(self, worker: SimWorker, control: Control) -> None:
        def lost() -> None:
            if self.links.get(worker.row) is worker:
                del self.links[worker.row]
                control.post(e.WorkerUnlinked(worker.row, worker.pid, self.agenda.now))

        worker.inward.send(lost)

    def break_link(self, worker: SimWorker) -> None:
        control = worker.control
        if control is None:
            return
        worker.unlinked(control)
        self.unlinked_at[worker.row] = self.link_broke_at = self.agenda.now
        self.undisturbed = self.agenda.now
        self._unlink(worker, control)
        self.agenda.later(0.1, lambda: self._link(worker))

    def look_at_beats(self) -> None:
        control = self.control
        if control is None:
            return
        now = self.agenda.now
        stale = frozenset(
            row
            for row in control.fleet.holding().values()
            if row in self.workers
            and self.workers[row].frozen
            and now - self.workers[row].frozen_at >= 0.5
        )
        if stale != control.stale:
            control.stale = stale
            control.post(e.BeatsWentStale(stale, now))

    # -- instances and the Registry

    def at_http(self, port: int) -> SimInstance | None:
        one = self.at_port.get(f"127.0.0.1:{port}")
        return one if one is not None and one.alive else None

    def at_grpc(self, grpc: str) -> SimInstance | None:
        one = self.at_grpc_port.get(grpc)
        return one if one is not None and one.alive else None

    def needs(self, pair: tuple[str, str]) -> int:
        return NEEDS_BYTES

    def sample(self, name: str) -> tuple[int, int]:
        return self.control.folds.sample(name) if self.control is not None else (0, 0)

    def call_registry(
        self, event: Callable[[int], e.Event], then: Callable[[object], None]
    ) -> bool:
        control = self.control
        if control is None:
            return False

        def arrives() -> None:
            if control.alive:
                ticket = next(self.numbers)
                self._tickets[ticket] = (control, travels)
                control.post(event(ticket))

        def travels(value: object) -> None:
            self.agenda.later(hop_s(self.rng), lambda: then(value))

        self.agenda.later(hop_s(self.rng), arrives)
        return True

    def farewell(self, one: SimInstance) -> None:
        self.agenda.later(
            hop_s(self.rng),
            lambda: self._post(
                e.Deregistered(one.name, one.incarnation, "goodbye", self.agenda.now)
            ),
        )

    def _post(self, event: e.Event) -> None:
        if self.control is not None:
            self.control.post(event)

    def answered(self, control: Control, ticket: int, value: object) -> None:
        found = self._tickets.pop(ticket, None)
        if found is not None and found[0] is control:
            found[1](value)

    # -- operators

    def ask(self, ask: Ask, then: Callable[[object], None] = lambda _: None) -> None:
        control = self.control
        if control is None:
            return
        self.promises.asked(ask)
        ticket = next(self.numbers)

        def heard(value: object) -> None:
            if isinstance(value, Receipt):
                self.promises.given(ask, control.fleet)
                laws.numbers_only_grow("the revision", self.revision, value.revision)
                self.revision = value.revision
            else:
                assert isinstance(value, Denied), value
                self.promises.denied(ask, value.code not in {"unknown_instance", "closing"})
            then(value)

        # Told at once: what an operator has read is promised from then on.
        self._tickets[ticket] = (control, heard)
        control.post(e.Asked(ticket, ask, False, None, self.agenda.now))

    def read_file(self) -> tuple[str, Settings | None, tuple[Problem, ...]]:
        return (self.file_text, *parsed(self.file_text))

    def reload(self) -> None:
        self._post(e.ReloadAsked("the file changed", self.agenda.now))

    # -- clients

    def request(
        self, model: str, pin: str, key: int, seconds: float, harmless: bool
    ) -> Request | None:
        able = [one for one in self.workers.values() if one.accepts]
        if not able:
            return None
        return Request(self.rng.choice(able), model, pin, key, seconds, harmless)

    def outcome(self, version: str) -> Outcome:
        share = self.failing.get(version, 0.0)
        failed = share > 0 and self.rng.random() < share
        return Outcome.INSTANCE_ERROR if failed else Outcome.SERVED

    def attempted(self, model: str, version: str, outcome: Outcome) -> None:
        """An attempt has ended by what its instance did."""
