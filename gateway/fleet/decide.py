"""The root: (snapshot, event) -> (snapshot, commands).

Floor 1, pure.   Flow: every event of the control plane passes here, one at a time.
Each event first does what it says; then whatever became possible is carried on (launches, drains,
the gateway's own end), the table is published if it has changed, and the next tick is asked for.
Years of the control plane can be replayed from a list of events.
"""

from dataclasses import replace
from math import inf
from typing import Final

from gateway.control import Receipt
from gateway.fleet import (
    adoption,
    closing,
    drains,
    forgetting,
    handover,
    instances,
    intent,
    launches,
    registrations,
    rollout_evidence,
    rollouts,
    workers,
)
from gateway.fleet.commands import (
    Answer,
    Command,
    FoldSlot,
    Follow,
    Validate,
    WakeAt,
)
from gateway.fleet.durable import GENERATIONS, counter_change
from gateway.fleet.events import (
    Asked,
    Beaten,
    BeatsWentStale,
    CallFailed,
    ChildExited,
    ChildrenSeen,
    ChildStarted,
    Deregistered,
    DialFailed,
    EffectFailed,
    Event,
    FactKept,
    IntentKept,
    LaunchOrdered,
    LeasesCut,
    NeedsRead,
    Observed,
    PollFailed,
    Registered,
    ReloadAsked,
    RequestsFailed,
    RowSettled,
    SettingsRead,
    SlotEmptied,
    SlotFolded,
    SlotKept,
    SlotSent,
    StartFailed,
    StopAsked,
    Ticked,
    WorkerAcked,
    WorkerLinked,
    WorkerUnlinked,
    WriteFailed,
)
from gateway.fleet.handing import (
    ClaimFailed,
    CutAsked,
    FreezeAsked,
    GivenAway,
    HeldElsewhere,
    StoreClaimed,
    Thawed,
    TookOver,
    WritesSettled,
)
from gateway.fleet.restart import ended
from gateway.fleet.rollout_events import CountsRead, Validated
from gateway.fleet.slots import QUIET_S, foldable, release
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.table import build, same
from gateway.fleet.turn import Turn
from gateway.store.base import Remove

# Frequent, and none of them brings a deadline nearer, those of drains apart.
READINGS: Final = (Observed, PollFailed, Beaten)


def decide(fleet: FleetSnapshot, event: Event) -> tuple[FleetSnapshot, tuple[Command, ...]]:
    """The snapshot after the event, and what it calls for, in order.

    A control's life begins with ChildrenSeen. What reaches it before that, on roads that were
    opened earlier, waits: half of what runs looks like all of it until then.
    """
    if isinstance(event, ChildrenSeen):
        return _begun(fleet, event)
    if not fleet.begun:
        return replace(fleet, early=(*fleet.early, event)), ()
    return _decide(fleet, event)


def _begun(fleet: FleetSnapshot, event: ChildrenSeen) -> tuple[FleetSnapshot, tuple[Command, ...]]:
    early = fleet.early
    fleet, commands = _decide(replace(fleet, early=()), event)
    for waited in early:
        fleet, more = _decide(fleet, waited)
        commands += more
    return fleet, commands


def _decide(fleet: FleetSnapshot, event: Event) -> tuple[FleetSnapshot, tuple[Command, ...]]:
    turn = Turn(fleet, event.now)
    _take(turn, event)
    for move in (*turn.moves, *rollouts.carry_on(turn)):
        intent.take(turn, Asked(0, move, False, None, turn.now, "the gateway"))
    if not turn.fleet.still:
        launches.carry_on(turn)
    _publish(turn)
    if not turn.fleet.still:
        drains.carry_on(turn)
    handover.carry_on(turn)
    if turn.routes_moved or turn.routes_grew:  # a drain that ended may have changed the fleet
        _publish(turn)
    if not isinstance(event, READINGS):  # an instance that has left is news of the store, too
        for ask in tuple(forgetting.due(turn)):
            intent.take(turn, Asked(0, ask, False, None, turn.now, "the gateway"))
    closing.carry_on(turn)
    for ticket, sentences in turn.receipts:
        generation = turn.fleet.generation + turn.fleet.unpublished
        receipt = Receipt(generation, turn.fleet.revision, sentences)
        turn.order(Answer(ticket, receipt))
    _arm(turn, event)
    return turn.fleet, tuple(turn.commands)


def _take(turn: Turn, event: Event) -> None:
    match event:
        case Observed():
            instances.observed(turn, event)
        case PollFailed():
            instances.poll_failed(turn, event)
        case Registered():
            registrations.registration(turn, event)
        case Beaten():
            registrations.beaten(turn, event)
        case Deregistered():
            registrations.deregistered(turn, event)
        case DialFailed():
            instances.dial_was_refused(turn, event)
        case RequestsFailed():
            instances.requests_failed(turn, event)
        case SlotKept(slot):
            instances.slot_kept(turn, slot)
        case SlotFolded(slot):
            turn.change(book=release(turn.fleet.book, slot))
            turn.keep(Remove("slots", str(slot)))
        case CallFailed(name, call, reason):
            turn.record("instance", name, f"{call} of {name} failed: {reason}", warn=True)
        case WorkerLinked() | WorkerUnlinked() | WorkerAcked() | RowSettled() | BeatsWentStale():
            _take_from_workers(turn, event)
        case SlotSent():
            drains.sent(turn, event)
        case SlotEmptied():
            drains.emptied(turn, event)
        case LeasesCut():
            drains.were_cut(turn, event)
        case Asked() | ReloadAsked() | SettingsRead() | IntentKept() | WriteFailed():
            intent.take(turn, event)
        case Ticked():
            workers.ticked(turn)
            instances.ticked(turn)
            launches.ticked(turn)
            _fold(turn)
        case FactKept():
            pass  # nothing waited for it
        case CountsRead():
            rollout_evidence.counts_read(turn, event)
        case Validated():
            turn.moves += rollout_evidence.validated(turn, event)
        case StoreClaimed() | ClaimFailed() | TookOver() | HeldElsewhere():
            handover.take_as_successor(turn, event)
        case FreezeAsked() | WritesSettled() | Thawed() | GivenAway() | CutAsked():
            handover.take_as_predecessor(turn, event)
        case EffectFailed(command, reason):
            text = f"{command} broke: {reason}"
            turn.record("gateway", "gateway", text, warn=True, command=command)
            if command == Validate.__name__:
                rollout_evidence.report_lost(turn)
        case _:
            _take_from_supervisor(turn, event)


def _take_from_workers(
    turn: Turn,
    event: WorkerLinked | WorkerUnlinked | WorkerAcked | RowSettled | BeatsWentStale,
) -> None:
    match event:
        case WorkerLinked():
            workers.linked(turn, event)
        case WorkerUnlinked():
            workers.unlinked(turn, event)
        case WorkerAcked():
            workers.acked(turn, event)
        case RowSettled():
            workers.settled(turn, event)
        case BeatsWentStale():
            workers.beats(turn, event)


def _take_from_supervisor(turn: Turn, event: Event) -> None:
    match event:
        case ChildrenSeen():
            _begin(turn, event)
        case ChildExited(name, pid, status, _, oom):
            place = workers.name_of(name)
            if place is not None:
                workers.exited(turn, *place, pid, ended(status))
            else:
                launches.exited(turn, name.removeprefix(launches.CHILD), status, oom)
        case ChildStarted(name, pid):
            place = workers.name_of(name)
            if place is not None:
                workers.spawned(turn, place[1], pid)
            else:
                launches.spawned(turn, name.removeprefix(launches.CHILD), pid)
        case StartFailed(name, reason):
            place = workers.name_of(name)
            if place is not None:
                workers.exited(turn, *place, 0, reason)
            else:
                launches.spawn_failed(turn, name.removeprefix(launches.CHILD), reason)
        case StopAsked():
            closing.asked(turn, event)
        case LaunchOrdered():
            launches.ordered(turn, event)
        case NeedsRead():
            launches.needs_read(turn, event)
        case _:
            raise AssertionError(f"nobody takes {type(event).__name__}")


def _begin(turn: Turn, event: ChildrenSeen) -> None:
    """The first event of every control's life."""
    turn.change(begun=True)
    for text in turn.fleet.unread:
        turn.record("gateway", "store", text, warn=True)
    adoption.give_sections(turn)
    adoption.date_models(turn)
    adoption.yield_to_file(turn)
    workers.begin(turn, event)
    launches.begin(turn, event)
    for name in turn.fleet.instance_overrides.keys() - turn.fleet.instances.keys():
        turn.forget_weight(name)  # it was taken out of the file while nobody looked
    drains.resume(turn)
    for seen in turn.fleet.instances.values():
        if seen.grpc:
            turn.order(Follow(seen.name, seen.grpc))
    turn.routes_moved = True


# --- what follows every event --------------------------------------------------------------------


def _publish(turn: Turn) -> None:
    """A new generation if the table has changed; and to each worker what it has not got.

    It is built when some worker can take it: what moves until then is one change. What only adds
    instances also keeps its distance from the table before; whatever takes one away never waits.
    """
    fleet = turn.fleet
    hurried = turn.routes_moved or fleet.table is None
    if (hurried and not fleet.hurried) or (turn.routes_grew and not fleet.unpublished):
        turn.change(unpublished=True, hurried=hurried or fleet.hurried)
    turn.routes_moved = turn.routes_grew = False
    fleet = turn.fleet
    # The first table of a successor is as good as its predecessor's: it waits for slots, too.
    complete = not fleet.stands_by or all(holder.kept for holder in fleet.book.holders.values())
    due = complete and (fleet.hurried or turn.now >= fleet.due_at())
    if fleet.unpublished and due and fleet.begun and not fleet.awaited and workers.ready(fleet):
        turn.change(unpublished=False, hurried=False, published_at=turn.now)
        table = build(fleet, fleet.generation + 1, turn.now)
        if not same(fleet.table, table):
            turn.change(table=table, generation=table.generation)
            _reserve(turn)
    workers.publish(turn)


def _reserve(turn: Turn) -> None:
    """Keep the store's reserve of generations ahead: it may never be caught up with."""
    fleet = turn.fleet
    if fleet.generation + GENERATIONS // 2 < fleet.ceiling:
        return
    ceiling = fleet.generation + GENERATIONS
    turn.change(ceiling=ceiling)
    turn.keep(counter_change("generation", ceiling))


def _fold(turn: Turn) -> None:
    """Ask for slots of past incarnations to be folded; one that is still held is asked again."""
    fleet = turn.fleet
    for slot in foldable(fleet.book, fleet.served(), turn.now):
        holder = fleet.book.holders[slot]
        turn.order(FoldSlot(slot, holder.model, holder.version))


def _arm(turn: Turn, event: Event) -> None:
    """Ask for a tick at the next deadline."""
    fleet = turn.fleet
    due = [] if fleet.still else drains.deadlines(fleet, turn.now)
    if fleet.unpublished and not fleet.hurried and fleet.due_at() > turn.now:
        due.append(fleet.due_at())
    if not isinstance(event, READINGS):
        due += [] if fleet.still else launches.deadlines(fleet)
        due += [] if fleet.still else rollouts.deadlines(fleet, turn.now)
        due += [] if fleet.still else forgetting.deadlines(fleet, turn.now)
        due += instances.deadlines(fleet, turn.now)
        due += workers.deadlines(fleet)
        due += [when for when in fleet.worker_retry.values() if when > turn.now]
        left = (one.left_at for one in fleet.book.holders.values() if one.left_at is not None)
        due += [when + QUIET_S for when in left if when + QUIET_S > turn.now]
        if fleet.closing is not None:
            due.append(fleet.closing.due_at)
    else:
        due.append(fleet.armed)
    when = max(min(due, default=inf), turn.now)
    if when != fleet.armed or isinstance(event, Ticked):
        turn.change(armed=when)
        if when < inf:
            turn.order(WakeAt(when))
