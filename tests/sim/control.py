"""One life of the control process on paper: the real decisions, the real folds and settling.

It may die between any two decisions or effects: what it had written to sockets arrives all the
same, what it had not is lost, and a store write under way is kept or not.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gateway.controlplane.folds import Folds
from gateway.fleet import commands as c
from gateway.fleet import events as e
from gateway.fleet.decide import decide
from gateway.fleet.events import NeedsRead
from gateway.fleet.registry import hashed
from gateway.fleet.rollout_events import CountsRead
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.status import Status
from gateway.fleet.stock import Stock
from gateway.launch.local import spawn
from gateway.messages import (
    Ack,
    Empty,
    Hello,
    Message,
    Sent,
    Spawn,
    Suspected,
    WereCut,
)
from gateway.state.settle import losses, settle_row
from gateway.store.base import StoreFailed
from tests.sim.agenda import Entry, Wire, drive, hop_s
from tests.sim.follower import Follower
from tests.sim.instance import SimInstance

if TYPE_CHECKING:
    from tests.sim.worker import SimWorker
    from tests.sim.world import World


CALL_S = 3.0
NS = 1_000_000_000


class Control:
    def __init__(self, world: "World", fleet: FleetSnapshot, folds: Folds) -> None:
        self.world, self.fleet, self.folds = world, fleet, folds
        self.agenda = world.agenda
        self.alive = True
        self.started_at = world.agenda.now
        self.crash_in: int | None = None  # decisions and effects from now
        self.stale: frozenset[int] = frozenset()
        self.orders = Wire(world.agenda, world.rng)
        self.followed: dict[str, Follower] = {}
        self._inbox: deque[e.Event] = deque()
        self._commands: deque[c.Command] = deque()
        self._pumping = False
        self._timer: Entry | None = None
        self._effects: dict[type, Callable[[Any], e.Event | None]] = {
            c.Tell: self._tell,
            c.Supervise: lambda one: self._order(one.message),
            c.StartWorker: lambda one: self._order(
                Spawn(f"worker{one.index}.{one.row}", (), {}, {}, False)
            ),
            c.Launch: self._launch,
            c.SettleRow: self._settle_row,
            c.FreeRow: lambda one: settle_row(world.segment, one.row),
            c.FoldSlot: self._fold,
            c.Follow: self._follow,
            c.Unfollow: lambda one: self._unfollow(one.name),
            c.PollNow: self._poll_now,
            c.Confirm: self._confirm,
            c.CallDrain: lambda one: self._call(
                one, "Drain", lambda to: to.drain(one.grace_s, one.reason)
            ),
            c.CallResume: lambda one: self._call(one, "Resume", lambda to: to.resume()),
            c.CallStop: lambda one: self._call(
                one, "Stop", lambda to: to.ordered_to_stop(one.grace_s, one.force)
            ),
            c.Write: self._write,
            c.ReadSettings: self._read_settings,
            c.KeepText: self._keep_text,
            c.LookUp: lambda one: replace(
                one.event, stock=Stock(one.version, True), now=self.agenda.now
            ),
            c.ReadNeeds: lambda one: NeedsRead(
                {pair: world.needs(pair) for pair in one.pairs}, self.agenda.now
            ),
            c.ReadCounts: lambda one: CountsRead(
                one.model,
                one.version,
                folds.drawn(one.model, one.version),
                folds.drawn(one.model, one.stable),
                self.agenda.now,
            ),
            c.CountRollback: lambda one: None,
            c.Answer: lambda one: world.answered(self, one.ticket, one.value),
            c.Record: lambda one: world.recorded(one),
            c.Count: lambda one: None,
            c.CountDrain: lambda one: None,
            c.WakeAt: self._wake_at,
        }

    # -- the loop

    def post(self, event: e.Event) -> None:
        if self.alive:
            self._inbox.append(event)
            if not self._pumping:
                self._pumping = True
                self.agenda.later(0.0, self._pump)

    def _pump(self) -> None:
        """As the real loop: all that waits is decided, then all that was ordered is done."""
        while self._inbox or self._commands:
            while self._inbox:
                if self._dies_here():
                    return
                event = self._inbox.popleft()
                before = self.fleet
                self.fleet, commands = decide(before, event)
                self._commands.extend(commands)
                self.world.decided(self, before, event)
            while self._commands:
                if self._dies_here():
                    return
                command = self._commands.popleft()
                answer = self._effects[type(command)](command)
                if answer is not None:
                    self.post(answer)
        self._pumping = False

    def _dies_here(self) -> bool:
        if self.alive and self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.world.control_died(self)
        return not self.alive

    def end(self) -> None:
        self.alive = False
        self._inbox.clear()
        self._commands.clear()
        for follower in self.followed.values():
            follower.end()

    # -- workers and supervisor

    def _tell(self, one: c.Tell) -> None:
        self.world.tell(self, one.row, one.message)

    def heard(self, worker: "SimWorker", message: Message) -> None:
        now, row = self.agenda.now, worker.row
        match message:
            case Hello(index, row, pid, generation, compiled):
                self.world.links[row] = worker
                self.post(e.WorkerLinked(index, row, pid, generation, now, compiled))
            case Ack(generation):
                self.post(e.WorkerAcked(row, generation, now))
            case Sent(_, token):
                self.post(e.SlotSent(row, token, now))
            case Empty(_, token):
                self.post(e.SlotEmptied(row, token, now))
            case WereCut(token, lost):
                self.post(e.LeasesCut(row, token, lost, now))
            case Suspected(slot, reason):
                self.post(e.DialFailed(slot, reason, now))
            case _:
                raise AssertionError(f"{message} is not for control")

    def _order(self, message: Message) -> None:
        self.world.orders.append(message)
        self.orders.send(self.world.carry_out)

    def _launch(self, one: c.Launch) -> e.Event:
        try:
            self._order(spawn(one, self.fleet.settings, "", self.world.token(one)))
        except Exception as exc:  # as the loop has it: what broke becomes an event
            return e.EffectFailed(type(one).__name__, repr(exc), self.agenda.now)
        return e.LaunchOrdered(one.name, hashed(self.world.tokens[one.name]), self.agenda.now)

    def _settle_row(self, one: c.SettleRow) -> e.Event:
        now = self.agenda.now
        lost = losses(self.world.segment, one.row, int(now * NS))
        return e.RowSettled(one.row, lost, now)

    def _fold(self, one: c.FoldSlot) -> None:
        def folded(done: bool) -> None:
            if done:
                self.post(e.SlotFolded(one.slot, self.agenda.now))

        work = self.folds.fold(one.slot, one.model, one.version)
        drive(self.agenda, work, lambda: self.alive, folded)

    # -- instances

    def _follow(self, one: c.Follow) -> None:
        current = self.followed.get(one.name)
        if current is not None and current.grpc == one.grpc:
            current.poll_now()
            return
        self._unfollow(one.name)
        self.followed[one.name] = follower = Follower(self, one.name, one.grpc)
        follower.begin()

    def _unfollow(self, name: str) -> None:
        found = self.followed.pop(name, None)
        if found is not None:
            found.end()

    def _poll_now(self, one: c.PollNow) -> None:
        if one.name in self.followed:
            self.followed[one.name].poll_now()

    def _confirm(self, one: c.Confirm) -> None:
        """Who answers at the address takes the place of who was claimed to."""
        event, claimed = one.event, one.event.status
        done: list[bool] = []

        def say(answer: e.Registered) -> None:
            if not done:
                done.append(True)
                self.post(replace(answer, now=self.agenda.now))

        def arrives() -> None:
            to = self.world.at_grpc(claimed.grpc)
            if to is not None:
                to.does(lambda: answers(to))
            else:
                self.agenda.later(CALL_S / 3, lambda: say(replace(event, doubt="it is not there")))

        def answers(to: SimInstance) -> None:
            if to.incarnation != claimed.incarnation:
                say(replace(event, doubt="another incarnation is there"))
            elif self.agenda.now >= to.deaf_until:
                status = to.status()
                answer = replace(event, status=status, asked=True)
                self.agenda.later(hop_s(self.world.rng), lambda: say(answer))

        self.agenda.later(hop_s(self.world.rng), arrives)
        self.agenda.later(CALL_S / 2, lambda: say(replace(event, doubt="no answer in time")))

    def _call(self, one: Any, call: str, obey: Callable[[SimInstance], bool]) -> None:
        """One gRPC call: answered, refused, answered with nonsense, or never heard of again."""
        world, rng = self.world, self.world.rng
        done: list[bool] = []

        def say(event: e.Event) -> None:
            if not done:
                done.append(True)
                self.post(event)

        def failed(reason: str) -> None:
            say(e.CallFailed(one.name, call, reason, self.agenda.now))

        def at_instance(to: SimInstance) -> None:
            if self.agenda.now < to.deaf_until and rng.random() < 0.5:
                return  # lost on the way there; below: on the way back
            if not obey(to):
                self.agenda.later(hop_s(rng), lambda: failed("failed precondition"))
                return
            if self.agenda.now < to.deaf_until:
                return
            status, garbled = to.status(), self.agenda.now < to.garbled_until
            self.agenda.later(hop_s(rng), lambda: answered(status, garbled))

        def answered(status: Status, garbled: bool) -> None:
            if garbled:
                failed("it makes no sense")
                return
            now = self.agenda.now
            sample = self.folds.sample(one.name)
            say(e.Observed(one.name, e.Source.REPLY, one.grpc, "", status, *sample, now))

        def arrives() -> None:
            to = world.at_grpc(one.grpc)
            if to is None:
                failed("unavailable")
            else:
                to.does(lambda: at_instance(to))

        self.agenda.later(hop_s(rng), arrives)
        self.agenda.later(CALL_S, lambda: failed("deadline exceeded"))

    # -- store, file, clock

    def _write(self, one: c.Write) -> None:
        async def write() -> e.Event:
            try:
                await self.world.store.write(one.changes)
            except StoreFailed as exc:
                return e.WriteFailed(one.then, str(exc), self.agenda.now)
            return replace(one.then, now=self.agenda.now)

        drive(self.agenda, write(), lambda: self.alive, self.post)

    def _read_settings(self, one: c.ReadSettings) -> e.Event:
        text, settings, problems = self.world.read_file()
        now = self.agenda.now
        return e.SettingsRead(
            one.ticket, one.why, one.dry_run, one.revision, text, settings, problems, now
        )

    def _keep_text(self, one: c.KeepText) -> None:
        self.world.kept_text = one.text

    def _wake_at(self, one: c.WakeAt) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.agenda.at(one.when, lambda: self.post(e.Ticked(self.agenda.now)))
