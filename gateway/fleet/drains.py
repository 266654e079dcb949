"""Drains in the fleet: begun, carried on by whatever happens, given back.

Floor 1, pure.   Flow: ask -> store -> [drains] -> drain -> commands
`drain.py` knows one drain; this file gives it its facts, and knows what an ended one means for the
instance: held out, stopped, or forgotten.
"""

from dataclasses import dataclass, replace
from typing import Final

from gateway.fleet.commands import CallDrain, CallResume, CallStop, CountDrain, Record, Tell
from gateway.fleet.drain import (
    BY_ROLLOUT,
    ENDED,
    FAREWELLS,
    REMOVED,
    RETIRED,
    Drain,
    Facts,
    Phase,
    advance,
    due_at,
    move,
    said_cut,
    said_empty,
    said_sent,
)
from gateway.fleet.durable import drain_change
from gateway.fleet.events import LeasesCut, SlotEmptied, SlotSent
from gateway.fleet.history import kept
from gateway.fleet.registry import STATIC, Origin, Seen
from gateway.fleet.slots import NO_SLOT
from gateway.fleet.snapshot import FleetSnapshot, Stage
from gateway.fleet.table import names
from gateway.fleet.turn import Turn
from gateway.fleet.workers import lost_of, record_lost
from gateway.messages import Heard, LostRequest
from gateway.records import Health, Intent
from gateway.store.base import Remove
from sluicegate.v1.states import Phase as InstancePhase
from sluicegate.v1.states import State

REVIVED: Final = frozenset({Stage.STOPPED, Stage.FAILED, Stage.BACKING_OFF, Stage.CRASH_LOOP})
NAMED_MAX: Final = 20  # lost requests in a sentence; the drain itself lists them all
HELD_OUT_S: Final = 86_400.0  # told to an instance that came back while it is held out


def farewell(seen: Seen) -> str:
    """Why an instance that is retired has to go: its origin says who can have asked for that."""
    return RETIRED if seen.origin in {Origin.CONFIG, Origin.LAUNCHED} else REMOVED


def facts(fleet: FleetSnapshot, drain: Drain, now: float) -> Facts:
    """What is true around the drain now."""
    seen = fleet.instances.get(drain.name)
    launched = fleet.launches.get(drain.name)
    child = launched is not None and launched.pid != 0
    health = seen.opinion.health if seen else Health.LOST
    left = seen is None or seen.state is State.STOPPED or health is Health.LOST
    return Facts(
        now=now,
        served=fleet.served(),
        live=fleet.holding(),
        grpc=seen.grpc if seen else "",
        draining=seen is not None and seen.state in {State.DRAINING, State.STOPPED, State.ERROR},
        active=seen.active_requests if seen else 0,
        gone=not child if launched is not None else left,
        silent=health in {Health.UNHEALTHY, Health.LOST},
        child=child,
        kill_after_s=fleet.settings.drain.kill_after_s,
        elsewhere=fleet.held_elsewhere(drain.name),
    )


@dataclass(frozen=True, slots=True)
class Order:
    """How an instance is to be drained."""

    grace_s: float
    stop: bool
    reclaim: bool
    reason: str


def drafted(fleet: FleetSnapshot, name: str, order: Order, now: float) -> Drain:
    """The drain that the order leads to. A running one goes on, with its own deadline.

    A file or a rollout never takes the place of an operator's reason: his drain would end with the
    removal.
    """
    last = fleet.drains.get(name)
    standing = last is not None and last.intent is not Intent.ACTIVE
    kept = standing and order.reason in FAREWELLS - {REMOVED}
    reason = last.reason if last is not None and kept else order.reason
    if last is not None and last.phase not in ENDED:
        deadline = now if order.reclaim and not last.reclaim else last.deadline
        return replace(
            last,
            stop=last.stop or order.stop,
            reclaim=last.reclaim or order.reclaim,
            deadline=deadline,
            reason=reason,
        )
    seen = fleet.instances.get(name)
    return Drain(
        name=name,
        slot=seen.slot if seen else NO_SLOT,
        token=0,  # given when it begins to speak to workers
        began=now,
        deadline=now + order.grace_s,
        stop=order.stop,
        reclaim=order.reclaim,
        reason=reason,
    )


def begin(turn: Turn, seen: Seen, order: Order) -> Drain:
    """A drain whose intent the store has."""
    last = turn.fleet.drains.get(seen.name)
    drain = drafted(turn.fleet, seen.name, order, turn.now)
    if last is None or last.phase in ENDED:
        drain = replace(drain, token=token(turn), generation=turn.fleet.generation + 1)
        text = f"drain of {seen.name} began: {order.grace_s:g} s at most"
        given = {"grace_s": order.grace_s, "stop": order.stop, "reason": drain.reason}
        turn.order(Record("drain", seen.name, text, given))
    turn.put(replace(seen, intent=drain.intent))
    if not names(turn.fleet.table, seen.slot):  # the one in force is without it already
        drain = replace(drain, generation=min(drain.generation, turn.fleet.generation))
    turn.put_drain(drain)
    return drain


def resume(turn: Turn) -> None:
    """Drains out of the store that were running ask again from the start."""
    for drain in tuple(turn.fleet.drains.values()):
        if drain.phase not in ENDED:
            again = replace(drain, token=token(turn), generation=turn.fleet.generation + 1)
            turn.put_drain(again)


def token(turn: Turn) -> int:
    turn.change(tokens=turn.fleet.tokens + 1)
    return turn.fleet.tokens


def undrained(drain: Drain, now: float) -> Drain:
    """Kept like any other: the instance has to be told, by whatever control is there then."""
    if drain.phase is Phase.UNDRAINED:
        return drain
    return replace(move(drain, Phase.UNDRAINED, now), stop=False, reclaim=False)


def undo(turn: Turn, name: str) -> None:
    """Give the instance back; one that has stopped is started anew."""
    seen, drain = turn.fleet.instances.get(name), turn.fleet.drains.get(name)
    if seen is None:  # nobody has the id now: whoever comes under it is not held out
        turn.change(drains={key: one for key, one in turn.fleet.drains.items() if key != name})
        turn.record("drain", name, f"{name} is undrained")
        return
    if drain is not None and drain.phase is not Phase.UNDRAINED:
        if drain.phase is Phase.STOPPING:
            return  # too late; the ask was refused before it came here
        turn.put_drain(undrained(drain, turn.now))
        if drain.phase not in ENDED:
            turn.order(CountDrain("undrained", turn.now - drain.began))
        if seen.grpc:
            turn.order(CallResume(name, seen.grpc))
        turn.record("drain", name, f"{name} is undrained")
    elif lags(seen):
        turn.order(CallResume(name, seen.grpc))
    turn.put(replace(seen, intent=Intent.ACTIVE))
    revive(turn, name)


def lags(seen: Seen) -> bool:
    """Whether it drains though nobody here wants that: it was not heard of when it was given back,
    or somebody else has told it. By itself that is left alone; an operator may want it otherwise.
    """
    return seen.intent is Intent.ACTIVE and seen.state is State.DRAINING and bool(seen.grpc)


def revive(turn: Turn, name: str) -> None:
    """What is down is started as if it had never died."""
    launched = turn.fleet.launches.get(name)
    if launched is not None and launched.stage in REVIVED:
        fresh = replace(launched, stage=Stage.QUEUED, deaths=0, retry_at=turn.now, reason="")
        turn.put_launch(fresh)
        turn.look_again(launched.model, launched.version)


# --- carried on ----------------------------------------------------------------------------------


def carry_on(turn: Turn) -> None:
    """Every drain as far as the facts carry it; called after each event."""
    for drain in tuple(turn.fleet.drains.values()):
        if drain.phase in ENDED:
            continue
        after, commands = advance(drain, facts(turn.fleet, drain, turn.now))
        if after is drain:
            continue
        turn.put_drain(after)
        turn.order(*commands)
        if after.phase is not drain.phase:
            _record_step(turn, after)
        if after.phase in ENDED:
            _ended(turn, after)


def _record_step(turn: Turn, drain: Drain) -> None:
    text = f"drain of {drain.name}: {drain.phase.value}"
    held_s = round(turn.now - drain.began, 3)
    turn.record("drain", drain.name, text, phase=drain.phase.value, after_s=held_s)


def _ended(turn: Turn, drain: Drain) -> None:
    duration_s = turn.now - drain.began
    outcome = "cut" if drain.phase is Phase.CUT else "done"
    turn.order(CountDrain(outcome, duration_s))
    text = f"drain of {drain.name} ended after {duration_s:.1f} s: {outcome}"
    turn.record("drain", drain.name, text, lost=len(drain.lost), stop=drain.stop)
    if drain.lost:
        named = ", ".join(f"{one.request.request_id:016x}" for one in drain.lost[:NAMED_MAX])
        more = f" and {len(drain.lost) - NAMED_MAX} more" if len(drain.lost) > NAMED_MAX else ""
        text = f"{text}, {len(drain.lost)} lost: {named}{more}"
    entry = turn.draft("the gateway", ("drain", drain.name), text, turn.fleet.revision)
    turn.keep(*kept(turn.fleet.history, entry))
    turn.enter(entry)
    seen = turn.fleet.instances.get(drain.name)
    if seen is not None and seen.retired:
        turn.forget(drain.name, drain.reason if drain.reason in BY_ROLLOUT else farewell(seen))
        return
    turn.keep_drain(drain.name, drain_change(drain, turn.fleet.wall, turn.now))


def observed(turn: Turn, seen: Seen) -> None:
    """Put an instance right that does not do what was ordered: the call was lost, or it is new.

    Polls come once a second and this is called with them, so nothing is repeated faster.
    """
    drain = turn.fleet.drains.get(seen.name)
    if not seen.grpc or turn.fleet.still:
        return
    if drain is None:
        if seen.state is State.DRAINING and _taken_out_once(seen):
            turn.order(CallResume(seen.name, seen.grpc))
        return
    ready = seen.state is State.READY
    if drain.phase is Phase.WAITING and ready and not drain.reclaim:
        grace_s = max(0.0, drain.deadline - turn.now)
        turn.order(CallDrain(seen.name, seen.grpc, grace_s, drain.reason))
    elif drain.phase in {Phase.DONE, Phase.CUT} and ready and not drain.stop:
        turn.order(CallDrain(seen.name, seen.grpc, HELD_OUT_S, drain.reason or "held out"))
    elif drain.phase is Phase.STOPPING and not drain.reclaim and _unmoved(seen):
        grace_s = turn.fleet.settings.drain.kill_after_s
        turn.order(CallStop(seen.name, seen.grpc, grace_s, drain.was_cut))
    elif drain.phase is Phase.UNDRAINED and seen.state is State.DRAINING and _alive(turn, seen):
        turn.order(CallResume(seen.name, seen.grpc))


def _taken_out_once(seen: Seen) -> bool:
    """Whether it still obeys the drain with which it was taken out, though it is named again. One
    that registers itself was removed by an operator, and stays so until it is started anew."""
    reason = seen.status.reason if seen.status is not None else ""
    return seen.origin in STATIC and reason.startswith((RETIRED, REMOVED))


def _unmoved(seen: Seen) -> bool:
    """Whether it does nothing about its end: it has not heard of it."""
    releasing = seen.status is not None and seen.status.phase is InstancePhase.RELEASING
    return seen.state in {State.READY, State.DRAINING} and not releasing


def _alive(turn: Turn, seen: Seen) -> bool:
    """Whether it drains because of us: one that was told to go by somebody else is left alone."""
    drain = turn.fleet.drains[seen.name]
    return drain.ended is not None and turn.now - drain.ended < turn.fleet.settings.drain.grace_s


# --- what workers say ----------------------------------------------------------------------------


def sent(turn: Turn, event: SlotSent) -> None:
    for drain, pid in _asked(turn, event.row, event.token):
        turn.put_drain(said_sent(drain, pid))


def emptied(turn: Turn, event: SlotEmptied) -> None:
    for drain, pid in _asked(turn, event.row, event.token):
        after, commands = said_empty(drain, pid)
        turn.put_drain(after)
        turn.order(*commands)


def were_cut(turn: Turn, event: LeasesCut) -> None:
    asked = _asked(turn, event.row, event.token)
    for drain, pid in asked:
        lost = tuple(lost_of(turn.fleet, one, "drain deadline") for one in event.lost)
        after = said_cut(drain, pid, lost)
        turn.put_drain(after)
        for one_lost in lost:
            record_lost(turn, one_lost)
        if lost:
            turn.keep_drain(drain.name, drain_change(after, turn.fleet.wall, turn.now))
    if not asked:  # one lease by request of an operator, or news that an older control has missed
        for one in event.lost:
            _cut_before(turn, one)
    if event.lost and event.row in turn.fleet.workers:
        turn.order(Tell(event.row, Heard(event.token)))


def _cut_before(turn: Turn, one: LostRequest) -> None:
    """Who asked for it is told by what is going on."""
    found = (drain for drain in turn.fleet.drains.values() if drain.was_cut)
    drain = next((drain for drain in found if drain.slot == one.slot != NO_SLOT), None)
    if drain is None:
        cause = "operator" if turn.fleet.closing is None else "shutdown"
        record_lost(turn, lost_of(turn.fleet, one, cause))
    elif one.request_id not in {lost.request.request_id for lost in drain.lost}:
        lost = lost_of(turn.fleet, one, "drain deadline")
        after = replace(drain, lost=(*drain.lost, lost))
        turn.put_drain(after)
        turn.keep_drain(drain.name, drain_change(after, turn.fleet.wall, turn.now))
        record_lost(turn, lost)


def _asked(turn: Turn, row: int, token: int) -> list[tuple[Drain, int]]:
    """The drain that put the question, with the pid of the worker that answers."""
    worker = turn.fleet.workers.get(row)
    if worker is None:
        return []
    found = (one for one in turn.fleet.drains.values() if one.token == token)
    return [(drain, worker.pid) for drain in found]


# --- the rest ------------------------------------------------------------------------------------


def deadlines(fleet: FleetSnapshot, now: float) -> list[float]:
    """When the clock has something to say."""
    running = (one for one in fleet.drains.values() if one.phase not in ENDED)
    due = (due_at(one, facts(fleet, one, now)) for one in running)
    return [when for when in due if when is not None]


def retire(turn: Turn, seen: Seen, order: Order | None = None) -> None:
    """Take an instance out that nobody names any more: a drain, never a drop. `order`: a rollout's;
    what was never READY was never in a table, and has nothing to finish."""
    retired = replace(seen, retired=True)
    turn.put(retired)
    turn.keep_instance(retired)
    stop, grace_s = seen.origin is Origin.LAUNCHED, turn.fleet.settings.drain.grace_s
    if order is not None and not seen.ready_since:
        order = replace(order, grace_s=0.0)
    drain = begin(turn, retired, order or Order(grace_s, stop, False, farewell(seen)))
    turn.keep(drain_change(drain, turn.fleet.wall, turn.now))


def restore(turn: Turn, seen: Seen) -> None:
    """The file names it again. An operator's own drain is not lifted by that."""
    turn.put(replace(seen, retired=False))
    turn.keep(Remove("instances", seen.name))
    drain = turn.fleet.drains.get(seen.name)
    theirs = drain is not None and drain.reason in FAREWELLS - {REMOVED}
    if drain is not None and theirs and drain.phase is not Phase.STOPPING:
        undo(turn, seen.name)
        turn.keep(drain_change(turn.fleet.drains[seen.name], turn.fleet.wall, turn.now))
