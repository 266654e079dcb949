"""What happens in a simulated world, collected where it happens, and judged by the laws.

Facts are taken from the workers' requests, the instances' own states and the segment, and from what
control was told: never from what it makes of that.
"""

from typing import TYPE_CHECKING

from gateway.config import Settings, parse
from gateway.fleet import commands as c
from gateway.fleet import events as e
from gateway.fleet.drain import ENDED, Phase
from gateway.fleet.slots import NO_SLOT
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import RouteTable
from gateway.state.shared import ACCEPTED, SETTLED, Layout, Segment
from tests.sim import laws
from tests.sim.agenda import Agenda
from tests.sim.instance import SimInstance
from tests.sim.known import Known
from tests.sim.promises import Promises
from tests.sim.store import PaperStore

if TYPE_CHECKING:
    from tests.sim.caller import Request
    from tests.sim.control import Control
    from tests.sim.worker import SimWorker

LAYOUT = Layout(rows=5, slots=14, sections=5, leases=24)
WORKERS = 2
TABLE_BOUND_S = 1.0  # from what control hears to a table without it, where all are well
AWAIT_S = 5.0  # a control that starts asks everybody first
DRAIN_BOUND_S = 8.0  # stuck workers, unanswered calls, and a kill, one after the other
SAID_AGAIN_S = 1.0  # a worker whose link broke cannot know whether it was heard
OURS = {"cut", "lost"}


class Facts:
    """The part of a world that watches the rest of it."""

    agenda: Agenda
    segment: Segment
    store: PaperStore
    control: "Control | None"
    workers: "dict[int, SimWorker]"
    running: dict[str, SimInstance]
    by_pid: dict[int, SimInstance]

    def begin_facts(self, text: str) -> None:
        settings = parse(text)
        self._rules = settings.poll
        self.known = Known(settings.poll.failures, settings.poll.successes)
        self.promises = Promises()
        self.published: dict[int, RouteTable] = {}
        self.lives_of: dict[int, str] = {}  # slot: incarnation that a table named with it last
        self.opened_total: dict[tuple[str, str], int] = {}
        self.owner_of: dict[int, tuple[str, str]] = {}
        self.how: dict[int, str] = {}  # requests that held a lease, and how they ended
        self.owed: dict[int, str] = {}  # of them, those that must be named
        self.named: set[int] = set()
        self._named_now: set[int] = set()
        self.undisturbed = 0.0
        self.link_broke_at = -SAID_AGAIN_S
        self.unlinked_at: dict[int, float] = {}
        self.dead_held: dict[int, dict[int, int]] = {}  # row: slot: leases of its dead worker
        self.generation = self.revision = 0
        self.lives = 0
        self.clashed: set[str] = set()  # ids that two processes have had at once
        self._in_force: Settings | None = None

    # -- facts and laws, where they happen

    def opened(self, request: "Request") -> None:
        claim, worker, now = request.claim, request.worker, self.agenda.now
        target = claim.target
        key = (claim.route.model, claim.version.name)
        self.owner_of[target.slot] = key
        self.opened_total[key] = self.opened_total.get(key, 0) + 1
        self.how.setdefault(request.number, "")
        life = target.instance
        control = self.control
        if control is not None:
            bad = self.known.bad_since(self.lives_of.get(target.slot, ""))
            excused = max(
                control.started_at + AWAIT_S,
                worker.thawed_at,
                self.unlinked_at.get(worker.row, 0.0) + 0.5,
                self._others_trouble(),
            )
            laws.nothing_opens_on_what_is_known_bad(life, bad, excused, now, TABLE_BOUND_S)
        self._conserved(worker, target.slot)
        held = sum(one.holds(target.slot) for one in self.workers.values())
        laws.limit_holds(life, held, target.limit, len(self.workers) + 1)

    def _others_trouble(self) -> float:
        """No new table is built while no worker can take one."""
        return max((one.frozen_at for one in self.workers.values() if one.frozen), default=0.0)

    def _conserved(self, worker: "SimWorker", slot: int) -> None:
        cells, at = self.segment.cells, self.segment.slot_base(worker.row, slot)
        where = f"row {worker.row} slot {slot}"
        held = worker.holds(slot)
        laws.conserved(where, cells[at + ACCEPTED], cells[at + SETTLED], held)

    def ended(self, request: "Request", how: str) -> None:
        laws.answered_once(request.number, request.over, how)
        if request.leased:
            self.how[request.number] = how
            if how in OURS:
                self.owed[request.number] = how

    def recorded(self, one: c.Record) -> None:
        if one.kind == "request":
            number = int(one.subject, 16)
            if self.agenda.now > self.link_broke_at + SAID_AGAIN_S:
                laws.named_once(number, self._named_now)
            self._named_now.add(number)
            self.named.add(number)

    def reached_after_drain(self, one: SimInstance, request: "Request") -> None:
        """Of one that was given back meanwhile, Resume is under way: it refuses, and no harm is
        done. Without a control, nobody can say what was meant last."""
        drains = self.control.fleet.drains if self.control is not None else {}
        drain = drains.get(one.name)
        if drain is None or drain.phase is Phase.UNDRAINED:
            return
        laws.nothing_reaches_what_we_drained(one.incarnation, request.number)

    def decided(self, control: "Control", before: FleetSnapshot, event: e.Event) -> None:
        fleet = control.fleet
        self.known.hear(before, event, lambda pid: self.by_pid[pid].incarnation)
        if fleet is before:
            return
        if fleet.instances is not before.instances:
            for name in before.instances.keys() - fleet.instances.keys():
                self.promises.forget(name)
        if fleet.settings is not before.settings:
            self.known.forget_polls()
            self._in_force = fleet.settings
            self._file_changed(before.settings, fleet.settings)
        if fleet.table is not before.table and fleet.table is not None:
            self._judge_table(fleet)
        if fleet.drains is not before.drains:
            self._judge_drains(before, fleet)

    def _file_changed(self, before: Settings, after: Settings) -> None:
        """Weights yield to a file that says something else."""
        weights = {model.name: model.weights for model in after.model}
        for model in before.model:
            if weights.get(model.name) != model.weights:
                self.promises.file_changed(model.name)

    def _judge_table(self, fleet: FleetSnapshot) -> None:
        table = fleet.table
        assert table is not None
        laws.numbers_only_grow("the generation", self.generation, table.generation)
        self.generation = table.generation
        named = tuple(laws.targets(table))
        against = {str(one.slot): self.known.against(one) for one in named}
        laws.table_names_only_what_is_known_good(table, against)
        laws.slot_is_kept_before_a_table_names_it(table, self.store.documents.get("slots", {}))
        self.lives_of = {**self.lives_of, **{one.slot: one.incarnation for one in named}}

    def _judge_drains(self, before: FleetSnapshot, fleet: FleetSnapshot) -> None:
        for name, drain in fleet.drains.items():
            old = before.drains.get(name)
            if old is drain or drain.slot == NO_SLOT:
                continue
            phase = drain.phase
            was = old.phase if old is not None and old.token == drain.token else Phase.PUBLISHING
            if phase is was or phase is Phase.UNDRAINED:
                continue
            if was is Phase.PUBLISHING:
                still = [
                    one.pid
                    for one in self.workers.values()
                    if one.plane.cell.table is not None
                    and drain.slot in one.plane.cell.table.owners
                    and self.lives_of.get(drain.slot) == self._incarnation(fleet, name)
                ]
                laws.drain_waits_for_every_worker(name, still)
            over = phase in ENDED or phase is Phase.STOPPING
            if over and was not in ENDED and was is not Phase.STOPPING:
                held = sum(one.holds(drain.slot) for one in self.workers.values())
                laws.drain_ends_empty(name, held)

    def _incarnation(self, fleet: FleetSnapshot, name: str) -> str:
        seen = fleet.instances.get(name)
        return seen.incarnation if seen is not None else ""

    # -- facts and laws, at every step

    def check(self) -> None:
        now = self.agenda.now
        if self.control is None or any(one.frozen for one in self.workers.values()):
            self.undisturbed = now
        for row in range(LAYOUT.rows):
            worker = self.workers.get(row)
            if worker is not None:
                for slot in range(LAYOUT.slots):
                    self._conserved(worker, slot)
        control = self.control
        if control is None:
            return
        undisturbed = max(self.undisturbed, control.started_at + AWAIT_S)
        for drain in control.fleet.drains.values():
            if drain.phase not in ENDED:
                laws.drain_ends_in_time(
                    drain.name, drain.phase.value, drain.deadline, undisturbed, now, DRAIN_BOUND_S
                )
        if control.fleet.begun:
            laws.intent_is_kept(self.promises.look(control.fleet))
        if len(self.workers) == len(control.fleet.holding()):
            self._judge_counts(control)

    def _judge_counts(self, control: "Control") -> None:
        """Attempts by version: folded ones, and those in slots."""
        counted: dict[tuple[str, str], int] = {
            key: cells[ACCEPTED] for key, cells in control.folds.retained.items()
        }
        cells = self.segment.cells
        for slot, holder in control.fleet.book.holders.items():
            key = (holder.model, holder.version)
            total = sum(
                cells[self.segment.slot_base(row, slot) + ACCEPTED] for row in range(LAYOUT.rows)
            )
            counted[key] = counted.get(key, 0) + total
        if control.folds._folding:
            return  # between the write and the clearing: both or neither are seen
        for key, truth in self.opened_total.items():
            laws.counts_never_go_back(key, counted.get(key, 0), truth)

    def complaints(self) -> list[str]:
        """What is not yet as it should be, when nothing disturbs."""
        control = self.control
        if control is None:
            return ["control is dead"]
        fleet = control.fleet
        found = []
        acked = [one.plane.cell.generation for one in self.workers.values()]
        if len(acked) != WORKERS or fleet.table is None or fleet.served() < fleet.generation:
            found.append(f"workers serve {acked}, the table is {fleet.generation}")
        if fleet.settling or fleet.asks or fleet.unpublished:
            found.append(f"open: {fleet.settling} {fleet.asks} {fleet.unpublished}")
        named = {t.incarnation for t in laws.targets(fleet.table)} if fleet.table else set()
        wanted = {name for name, seen in fleet.instances.items() if not seen.retired}
        wanted |= {name for name, one in self.running.items() if one.alive and one.registers}
        for name in sorted(wanted):
            one = self.running.get(name)
            if one is None or not one.alive or one.incarnation not in named:
                seen = fleet.instances.get(name)
                launched = fleet.launches.get(name)
                found.append(
                    f"{name} is not routable: truth {one and (one.alive, one.state.name)},"
                    f" seen {seen and (seen.state, seen.intent, seen.opinion.health)},"
                    f" launch {launched and (launched.stage, launched.reason)}"
                )
        for drain in fleet.drains.values():
            if drain.phase not in ENDED:
                found.append(f"drain of {drain.name} is {drain.phase.value}")
        held = sum(len(one.requests) for one in self.workers.values())
        in_flight = sum(self.segment.in_flight(slot) for slot in range(LAYOUT.slots))
        if held or in_flight:
            found.append(f"{held} requests go on, {in_flight} in flight")
        return found

    def judge_the_end(self) -> None:
        unanswered = {number: "open" for number, how in self.how.items() if not how}
        for number in unanswered:
            laws.answered_once(number, "", "")
        laws.losses_are_named(self.owed, self.named)
        laws.all_is_well([f"{number:x} was never answered" for number in unanswered])
