"""What readings, registrations and silences do to the fleet.

Floor 1, pure.   Flow: poll, watch, beat -> [instances] -> registry, health -> table
A change away from READY acts on the first reading, whatever road it came on; a change for the
better is for polls to confirm (health.py).
"""

from dataclasses import replace
from typing import Final

from gateway.fleet import drains, launches
from gateway.fleet.commands import (
    Answer,
    BeatAnswer,
    Count,
    PollNow,
    RegisterAnswer,
    Unfollow,
    Write,
)
from gateway.fleet.durable import load_change, slot_change
from gateway.fleet.events import (
    Beaten,
    Deregistered,
    DialFailed,
    Observed,
    PollFailed,
    Registered,
    SlotKept,
    Source,
)
from gateway.fleet.health import answered, dial_failed, heard, lease_ended, unanswered, weigh
from gateway.fleet.registry import (
    INSTANCES_MAX,
    STATIC,
    Origin,
    Seen,
    admits,
    illegal,
    observe,
    registered,
)
from gateway.fleet.slots import NO_SLOT, Holder, allocate, kept, release
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.status import Status
from gateway.fleet.turn import Turn
from gateway.fleet.workers import note
from gateway.records import Health, Intent
from gateway.store.base import Remove
from sluicegate.v1.states import State

STEP_PERCENT: Final = 5.0  # progress is told in such steps, and at each phase
FORGET_S: Final = 3600.0  # an instance that is gone is shown for an hour


# --- readings ------------------------------------------------------------------------------------


def observed(turn: Turn, event: Observed) -> None:
    seen = turn.fleet.instances.get(event.name)
    if seen is None or (event.grpc and event.grpc != seen.grpc):
        return  # forgotten, or moved, while the answer was under way
    status, reason = event.status, ""
    if seen.origin not in STATIC and status.instance_id != seen.name:
        reason = f"{status.instance_id} answers at its address"
    elif event.source is Source.POLL:  # an instance that makes no sense must not stay routed
        reason = illegal(seen, status)
        if reason and not seen.opinion.failures:  # told once, not with every poll
            turn.record("instance", seen.name, reason, warn=True)
    if reason:
        failed = PollFailed(
            seen.name, event.grpc, reason, False, event.received_bytes, event.held, event.now
        )
        poll_failed(turn, failed)
        return
    _take(turn, seen, status, event.host, event.source, event.received_bytes, event.held)


def _take(
    turn: Turn,
    seen: Seen,
    status: Status,
    host: str,
    source: Source,
    received_bytes: int,
    held: int,
) -> bool:
    """Take a reading in; False when it is ignored."""
    after = observe(seen, status, host, turn.now)
    if isinstance(after, str):
        if illegal(seen, status):
            turn.record("instance", seen.name, after, warn=True)
        return False
    rules = turn.fleet.health_rules()
    opinion = after.opinion
    if source is Source.POLL:
        opinion = answered(opinion, rules)
    elif source is Source.WATCH:
        opinion = heard(opinion)
    if status.state is State.READY:
        busy = held > 0 or status.active_requests > 0
        opinion = weigh(opinion, status.progress_total, received_bytes, busy, turn.now, rules)
    expires_at = after.expires_at
    if after.origin not in STATIC:
        expires_at = turn.now + turn.fleet.settings.registry.ttl_s
    after = replace(after, opinion=opinion, expires_at=expires_at)
    renewed = after.incarnation != seen.incarnation
    if renewed:
        after = _reborn(turn, seen, after)
    after = _with_slot(turn, after)
    after = _tell(turn, seen, after)
    turn.put(after)
    if renewed:
        turn.keep_instance(after)
    if source is Source.POLL:
        drains.observed(turn, after)
    launches.observed(turn, after)
    if after.state is not State.READY:
        note(turn)
    return True


def _reborn(turn: Turn, seen: Seen, after: Seen) -> Seen:
    """A new incarnation: a drain with stop ended with the old one."""
    drain = turn.fleet.drains.get(seen.name)
    if drain is None or not drain.stop or after.origin is Origin.LAUNCHED:
        return after
    if drain.ended is None:  # it restarted in the middle of it: still to be stopped
        return after
    drains_left = {key: one for key, one in turn.fleet.drains.items() if key != seen.name}
    turn.change(drains=drains_left)
    turn.keep(Remove("drains", seen.name))
    return replace(after, intent=Intent.ACTIVE)


def _with_slot(turn: Turn, seen: Seen) -> Seen:
    """The record with counters of its own; they are kept before a table may name them."""
    if seen.slot != NO_SLOT:
        return seen
    holder = Holder(seen.name, seen.incarnation, seen.model, seen.version)
    book, slot = allocate(turn.fleet.book, holder)
    if slot == NO_SLOT:
        text = f"{seen.name} has no slot: all {book.slots_max} are held"
        turn.record("instance", seen.name, text, warn=True)
        return seen
    turn.change(book=book)
    change = slot_change(book, slot, turn.fleet.segment, seen.ready_since)
    turn.order(Write((change,), SlotKept(slot, turn.now)))
    return replace(seen, slot=slot)


def slot_kept(turn: Turn, slot: int) -> None:
    if slot in turn.fleet.book.holders:
        turn.change(book=kept(turn.fleet.book, slot))
        turn.routes_grew = True


def slot_not_kept(turn: Turn, slot: int) -> None:
    """The next reading tries again."""
    seen = turn.fleet.slot_owner(slot)
    turn.change(book=release(turn.fleet.book, slot))
    if seen is not None:
        fleet = turn.fleet
        turn.change(instances={**fleet.instances, seen.name: replace(seen, slot=NO_SLOT)})


# --- what people are told ------------------------------------------------------------------------


def _tell(turn: Turn, before: Seen, after: Seen) -> Seen:
    """Record what moved: state, phase, progress, health; and measure a load that has ended.

    The record comes back with the progress that was told.
    """
    status, old = after.status, before.status
    assert status is not None, "told after a reading"
    moved = old is None or (old.state, old.phase) != (status.state, status.phase)
    moved = moved or before.incarnation != after.incarnation
    stepped = status.progress >= after.shown + STEP_PERCENT and status.state is State.INITIALIZING
    if moved or stepped:
        where = f"{status.state.name} {status.phase.name.lower()} {status.progress:.0f} %"
        why = f": {status.reason}" if status.state is State.ERROR else ""
        turn.record(
            "instance",
            after.name,
            f"{after.name} {where}{why}",
            warn=status.state is State.ERROR,
            state=status.state.name,
            phase=status.phase.name.lower(),
            progress=round(status.progress, 1),
            reason=status.reason,
            incarnation=after.incarnation,
            model=after.model,
            version=after.version,
        )
    if after.ready_since and not before.ready_since:
        _became_ready(turn, before, after)
    if after.opinion.health is not before.opinion.health:
        _tell_health(turn, before, after)
    return replace(after, shown=status.progress) if moved or stepped else after


def _became_ready(turn: Turn, before: Seen, after: Seen) -> None:
    if after.slot != NO_SLOT:
        turn.keep(slot_change(turn.fleet.book, after.slot, turn.fleet.segment, after.ready_since))
    launched = turn.fleet.launches.get(after.name)
    began = launched.started_at if launched else after.began
    seconds = turn.now - began
    if before.state is State.INITIALIZING and seconds > 0:
        key = (after.model, after.version)
        turn.change(load_s={**turn.fleet.load_s, key: seconds})
        turn.keep(load_change(*key, seconds))


def _tell_health(turn: Turn, before: Seen, after: Seen) -> None:
    health, reason = after.opinion.health, after.opinion.reason
    if health is Health.UNKNOWN or (before.opinion.health is Health.UNKNOWN and not reason):
        return  # a new incarnation, and its first reading: told already
    text = f"{after.name} is {health.value}" + (f": {reason}" if reason else "")
    warn = health is not Health.GOOD
    turn.record("instance", after.name, text, warn=warn, health=health.value, reason=reason)


def _put_opinion(turn: Turn, seen: Seen, after: Seen) -> None:
    if after.opinion.health is not seen.opinion.health:
        _tell_health(turn, seen, after)
    turn.put(after)


# --- silences ------------------------------------------------------------------------------------


def poll_failed(turn: Turn, event: PollFailed) -> None:
    seen = turn.fleet.instances.get(event.name)
    if seen is None or event.grpc != seen.grpc:
        return
    rules = turn.fleet.health_rules()
    opinion = seen.opinion
    if event.received_bytes != opinion.received_bytes and event.held:
        opinion = replace(
            opinion, received_bytes=event.received_bytes, moved_at=turn.now, progressed_at=turn.now
        )
    opinion = unanswered(opinion, event.reason, event.slow, turn.now, rules)
    _put_opinion(turn, seen, replace(seen, opinion=opinion))


def dial_was_refused(turn: Turn, event: DialFailed) -> None:
    """Off the table now; the poll that is asked for decides."""
    seen = turn.fleet.slot_owner(event.slot)
    if seen is not None:
        _put_opinion(turn, seen, replace(seen, opinion=dial_failed(seen.opinion, event.reason)))
        turn.order(PollNow(seen.name))


def ticked(turn: Turn) -> None:
    """Registrations that have run out, and those that nobody has missed for long."""
    for seen in tuple(turn.fleet.instances.values()):
        if turn.now < seen.expires_at:
            continue
        if seen.opinion.health is Health.LOST or seen.state is State.STOPPED:
            if seen.origin is Origin.REGISTERED:
                turn.forget(seen.name, f"not heard of for {FORGET_S:.0f} s")
            continue
        ttl_s = turn.fleet.settings.registry.ttl_s
        opinion = lease_ended(seen.opinion, f"not heard of for {ttl_s:g} s")
        lost = replace(seen, opinion=opinion, expires_at=turn.now + FORGET_S)
        turn.order(Count("heartbeats", "missed"))
        _put_opinion(turn, seen, lost)


def deadlines(fleet: FleetSnapshot, now: float) -> list[float]:
    return [seen.expires_at for seen in fleet.instances.values() if seen.expires_at > now]


# --- the Registry service ------------------------------------------------------------------------


def registration(turn: Turn, event: Registered) -> None:
    status = event.status
    seen = turn.fleet.instances.get(status.instance_id)
    refusal = admits(seen, status, event.token)
    if refusal:
        _refuse(turn, event, RegisterAnswer(refusal))
        return
    if seen is None or seen.origin is Origin.REGISTERED:
        unknown = _unknown(turn.fleet, status)
        if unknown:
            _refuse(turn, event, RegisterAnswer(unknown, code="NOT_FOUND"))
            return
    if seen is None and len(turn.fleet.instances) >= INSTANCES_MAX:
        full = f"there are {INSTANCES_MAX} instances already: no more than that are kept"
        _refuse(turn, event, RegisterAnswer(full, code="RESOURCE_EXHAUSTED"))
        return
    after = registered(seen, status, event.weight, event.limit)
    if _take(turn, after, status, "", Source.BEAT, after.opinion.received_bytes, 0):
        if seen is None or seen.incarnation != status.incarnation:
            text = f"{status.instance_id} registered at {status.grpc}"
            turn.record("instance", status.instance_id, text, incarnation=status.incarnation)
        turn.keep_instance(turn.fleet.instances[status.instance_id])
        turn.order(PollNow(status.instance_id))
    elif status.grpc != after.grpc:  # an old reading from where we have not heard of it yet
        _refuse(turn, event, RegisterAnswer(f"what {after.name} says is older than what is known"))
        return
    rules = turn.fleet.settings.registry
    turn.order(Answer(event.ticket, RegisterAnswer("", rules.ttl_s, rules.beat_s)))


def _refuse(turn: Turn, event: Registered, answer: RegisterAnswer) -> None:
    turn.order(Answer(event.ticket, answer))
    text = f"registration refused: {answer.refusal}"
    turn.record("instance", event.status.instance_id, text, warn=True)


def _unknown(fleet: FleetSnapshot, status: Status) -> str:
    """Why nothing can be routed to it: what may register is bounded by the config."""
    model = fleet.model(status.model)
    if model is None:
        return f"config.toml names no model {status.model}"
    statics = {row.version for row in fleet.settings.instance if row.model == model.name}
    if status.version in statics | fleet.weights(model.name).keys() | model.replicas.keys():
        return ""
    return f"config.toml gives {model.name} no version {status.version}: a weight of 0 is enough"


def beaten(turn: Turn, event: Beaten) -> None:
    status = event.status
    seen = turn.fleet.instances.get(status.instance_id)
    interval_s = turn.fleet.settings.registry.beat_s
    known = seen is not None and status.incarnation == seen.incarnation
    if seen is not None and seen.origin not in STATIC:
        known = known and status.grpc == seen.grpc  # a beat moves nobody: that is for Register
    if seen is None or not known:
        superseded = seen is not None and status.incarnation in seen.superseded
        turn.order(Count("heartbeats", "ignored" if superseded else "unknown"))
        turn.order(Answer(event.ticket, BeatAnswer("REGISTER", 0.0, interval_s)))
        return
    taken = _take(turn, seen, status, "", Source.BEAT, event.received_bytes, event.held)
    turn.order(Count("heartbeats", "accepted" if taken else "ignored"))
    order, grace_s = _order(turn.fleet, seen.name, turn.now)
    turn.order(Answer(event.ticket, BeatAnswer(order, grace_s, interval_s)))


def _order(fleet: FleetSnapshot, name: str, now: float) -> tuple[str, float]:
    """What the gateway wants of an instance whose Drain call did not get through."""
    drain, seen = fleet.drains.get(name), fleet.instances[name]
    if drain is None or seen.state is not State.READY or seen.intent is Intent.ACTIVE:
        return "NONE", 0.0
    if drain.phase.value in {"waiting", "done", "cut"}:
        return "DRAIN", max(0.0, drain.deadline - now)
    return "NONE", 0.0


def deregistered(turn: Turn, event: Deregistered) -> None:
    """A farewell: it is gone by its own word, and shown for a while."""
    seen = turn.fleet.instances.get(event.name)
    if seen is None or seen.incarnation != event.incarnation or seen.status is None:
        return
    status = replace(seen.status, state=State.STOPPED, reason=event.reason, active_requests=0)
    if seen.state is State.ERROR:
        status = seen.status
    gone = replace(seen, status=status, since=turn.now, expires_at=turn.now + FORGET_S)
    if seen.origin not in STATIC:  # its address belongs to nobody now
        turn.order(Unfollow(seen.name))
        gone = replace(gone, http="", grpc="")
    turn.put(gone)
    text = f"{seen.name} said farewell" + (f": {event.reason}" if event.reason else "")
    turn.record("instance", seen.name, text, reason=event.reason)
