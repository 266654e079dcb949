"""What readings, registrations and silences do to the fleet.

Floor 1, pure.   Flow: poll, watch, beat -> [instances] -> registry, health -> table
A change away from READY acts on the first reading, whatever road it came on; a change for the
better is for polls to confirm (health.py).
"""

from dataclasses import replace
from typing import Final

from gateway.fleet import drains, launches
from gateway.fleet.commands import (
    Count,
    PollNow,
    Write,
)
from gateway.fleet.durable import load_change, slot_change
from gateway.fleet.events import (
    DialFailed,
    Observed,
    PollFailed,
    RequestsFailed,
    SlotKept,
    Source,
)
from gateway.fleet.health import (
    answered,
    blamed,
    dial_failed,
    heard,
    lease_ended,
    unanswered,
    weigh,
)
from gateway.fleet.registry import (
    STATIC,
    Origin,
    Seen,
    illegal,
    observe,
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
            turn.warn_rarely(seen.name, reason)
    if reason:
        failed = PollFailed(
            seen.name, event.grpc, reason, False, event.received_bytes, event.held, event.now
        )
        poll_failed(turn, failed)
        return
    take(turn, seen, status, event.host, event.source, event.received_bytes, event.held)


def take(
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
            turn.warn_rarely(seen.name, after)
        return False
    rules = turn.fleet.health_rules()
    opinion = after.opinion
    if source is Source.POLL:
        opinion = answered(opinion, rules, turn.now)
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
    turn.keep_drain(seen.name, Remove("drains", seen.name))
    return replace(after, intent=Intent.ACTIVE)


def _with_slot(turn: Turn, seen: Seen) -> Seen:
    """The record with counters of its own; they are kept before a table may name them."""
    if seen.slot != NO_SLOT:
        return seen
    holder = Holder(seen.name, seen.incarnation, seen.model, seen.version)
    book, slot = allocate(turn.fleet.book, holder)
    if slot == NO_SLOT:
        text = f"{seen.name} has no slot: all {book.slots_max} are held"
        turn.warn_rarely(seen.name, text)
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


def requests_failed(turn: Turn, event: RequestsFailed) -> None:
    """It answers polls and fails requests. Its version's last one is left alone: what all of them
    fail may be the requests' own fault, and a bad answer is better than none.
    """
    seen, fleet = turn.fleet.slot_owner(event.slot), turn.fleet
    if seen is None:
        return
    key = (seen.model, seen.version)
    others = (one for one in fleet.instances.values() if (one.model, one.version) == key)
    if any(one.name != seen.name and fleet.admissible(one) for one in others):
        reason = f"its last {event.count} requests failed, and none was served"
        opinion = blamed(seen.opinion, reason, turn.now)
        _put_opinion(turn, seen, replace(seen, opinion=opinion))


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
