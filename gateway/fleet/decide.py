"""The root: (snapshot, event) -> (snapshot, commands).

Floor 1, pure.   Flow: every event of the control plane passes here, one at a time.
Each event first does what it says; then whatever became possible is carried on (launches, drains,
the gateway's own end), the table is published if it has changed, and the next tick is asked for.
Years of the control plane can be replayed from a list of events.
"""

from math import inf
from typing import Final

from gateway.control import Denied, Receipt, Reload
from gateway.fleet import (
    adoption,
    asks,
    closing,
    drains,
    handover,
    instances,
    launches,
    registrations,
    workers,
)
from gateway.fleet.commands import (
    Answer,
    Command,
    Count,
    FoldSlot,
    Follow,
    KeepText,
    ReadSettings,
    WakeAt,
    Write,
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
from gateway.fleet.slots import QUIET_S, foldable, release
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.table import build, same
from gateway.fleet.turn import Turn
from gateway.store.base import Remove

HANDING_OVER: Final = Denied(
    "handing_over", "a take-over is under way: nothing is changed before its end, ask again"
)
# Frequent, and none of them brings a deadline nearer, those of drains apart.
READINGS: Final = (Observed, PollFailed, Beaten)


def decide(fleet: FleetSnapshot, event: Event) -> tuple[FleetSnapshot, tuple[Command, ...]]:
    """The snapshot after the event, and what it calls for, in order."""
    turn = Turn(fleet, event.now)
    _take(turn, event)
    if not turn.fleet.still:
        launches.carry_on(turn)
    _publish(turn)
    if not turn.fleet.still:
        drains.carry_on(turn)
    handover.carry_on(turn)
    if turn.routes_moved or turn.routes_grew:  # a drain that ended may have changed the fleet
        _publish(turn)
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
            _take_intent(turn, event)
        case Ticked():
            workers.ticked(turn)
            instances.ticked(turn)
            launches.ticked(turn)
            _fold(turn)
        case FactKept():
            pass  # nothing waited for it
        case StoreClaimed() | ClaimFailed() | TookOver() | HeldElsewhere():
            handover.take_as_successor(turn, event)
        case FreezeAsked() | WritesSettled() | Thawed() | GivenAway() | CutAsked():
            handover.take_as_predecessor(turn, event)
        case EffectFailed(command, reason):
            text = f"{command} broke: {reason}"
            turn.record("gateway", "gateway", text, warn=True, command=command)
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
    workers.begin(turn, event)
    launches.begin(turn, event)
    for name in turn.fleet.instance_overrides.keys() - turn.fleet.instances.keys():
        turn.forget_weight(name)  # it was taken out of the file while nobody looked
    drains.resume(turn)
    for seen in turn.fleet.instances.values():
        if seen.grpc:
            turn.order(Follow(seen.name, seen.grpc))
    turn.routes_moved = True


# --- intent: one change at a time, stored before it is true --------------------------------------


def _take_intent(
    turn: Turn, event: Asked | ReloadAsked | SettingsRead | IntentKept | WriteFailed
) -> None:
    match event:
        case ReloadAsked(why):
            turn.order(ReadSettings(0, why))
        case Asked(ticket) if turn.fleet.still:
            turn.order(Answer(ticket, HANDING_OVER))
        case SettingsRead() if turn.fleet.still:
            _answer_reload(turn, event, HANDING_OVER)
        case Asked(ticket, Reload(), dry_run, revision):
            turn.order(ReadSettings(ticket, "asked by an operator", dry_run, revision))
        case Asked() | SettingsRead():
            turn.change(asks=(*turn.fleet.asks, event))
            if len(turn.fleet.asks) == 1:
                _plan_next(turn)
        case IntentKept():
            _kept(turn, turn.fleet.asks[0])
            _plan_next(turn)
        case WriteFailed(IntentKept(), reason):
            _answer(turn, turn.fleet.asks[0], Denied("store_failed", reason))
            _plan_next(turn)
        case WriteFailed(SlotKept(slot), reason):
            turn.record("gateway", "store", f"slot {slot} not kept: {reason}", warn=True)
            instances.slot_not_kept(turn, slot)
        case WriteFailed(_, reason):
            turn.record("gateway", "store", reason, warn=True)


def _plan(turn: Turn, event: Asked | SettingsRead) -> asks.Plan:
    if turn.fleet.closing is not None:
        raise Denied("closing", "the gateway is closing: nothing is changed any more")
    if event.revision is not None and event.revision != turn.fleet.revision:
        text = f"the revision is {turn.fleet.revision}, not {event.revision}: look again"
        raise Denied("revision_moved", text)
    if isinstance(event, SettingsRead):
        return adoption.plan(turn.fleet, event)
    return asks.plan(turn.fleet, event.ask, turn.now)


def _plan_next(turn: Turn) -> None:
    """Begin the first ask that has something to store; those that have not are answered now."""
    while turn.fleet.asks:
        event = turn.fleet.asks[0]
        try:
            plan = _plan(turn, event)
        except Denied as denied:
            _answer(turn, event, denied)
            continue
        if event.dry_run or not (plan.changes or plan.unstored):
            turn.receipts.append((event.ticket, plan.sentences))
            turn.change(asks=turn.fleet.asks[1:])
            if isinstance(event, SettingsRead) and not event.dry_run:
                adoption.in_force(turn)
            continue
        revision = counter_change("revision", turn.fleet.revision + 1)
        turn.order(Write((*plan.changes, revision), IntentKept(event.ticket, turn.now)))
        return


def _kept(turn: Turn, event: Asked | SettingsRead) -> None:
    """Carry out what the store has, unless the fleet has moved away from under it."""
    try:
        plan = _plan(turn, event)
    except Denied as denied:  # it has left meanwhile, or the gateway began to close
        turn.change(revision=turn.fleet.revision + 1)
        _answer(turn, event, denied)
    else:
        _carry_out(turn, event, plan.sentences)


def _carry_out(turn: Turn, event: Asked | SettingsRead, sentences: tuple[str, ...]) -> None:
    turn.change(asks=turn.fleet.asks[1:], revision=turn.fleet.revision + 1)
    turn.receipts.append((event.ticket, sentences))
    if isinstance(event, Asked):
        asks.carry_out(turn, event.ask)
        return
    assert event.settings is not None, "planned, so it parsed"
    adoption.carry_out(turn, event.settings)
    turn.order(KeepText(event.text))
    turn.order(Count("reloads", "applied"))
    text = f"config.toml taken over ({event.why}): {', '.join(sentences)}"
    turn.record("config", "config.toml", text, changes=list(sentences), why=event.why)


def _answer(turn: Turn, event: Asked | SettingsRead, denied: Denied) -> None:
    turn.change(asks=turn.fleet.asks[1:])
    if isinstance(event, SettingsRead):
        _answer_reload(turn, event, denied)
    else:
        turn.order(Answer(event.ticket, denied))


def _answer_reload(turn: Turn, event: SettingsRead, denied: Denied) -> None:
    turn.order(Answer(event.ticket, denied))
    adoption.refused(turn, event, denied)


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
        due += instances.deadlines(fleet, turn.now)
        due += [one.due_at for one in fleet.workers.values() if one.due_at is not None]
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
