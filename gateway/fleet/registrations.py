"""The Registry service: who may register, beat and say farewell, and what that does.

Floor 1, pure.   Flow: enrol -> [registrations] -> registry, instances -> table
Whoever can reach the port can say anything: a launch token proves a launched instance, the secret
that an incarnation registered with proves its beats, and a restart in place is asked at its address
before it is believed. Static instances are asked where the file says: a word of theirs is a reason
to do so at once.
"""

from dataclasses import replace

from gateway.config import INSTANCES_MAX
from gateway.fleet.commands import (
    Answer,
    BeatAnswer,
    Confirm,
    Count,
    PollNow,
    RegisterAnswer,
    Unfollow,
)
from gateway.fleet.events import Beaten, Deregistered, Registered, Source
from gateway.fleet.instances import FORGET_S, take
from gateway.fleet.registry import (
    STATIC,
    Origin,
    admits,
    doubtful,
    holds,
    registered,
)
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.status import Status
from gateway.fleet.turn import Turn
from gateway.records import Intent
from sluicegate.v1.states import State


def registration(turn: Turn, event: Registered) -> None:
    status = event.status
    if turn.fleet.still:  # it asks again in a second, whoever answers then
        answer = RegisterAnswer("the gateway is being taken over: ask again", code="UNAVAILABLE")
        turn.order(Answer(event.ticket, answer))
        return
    seen = turn.fleet.instances.get(status.instance_id)
    refusal = admits(seen, status, event.token, event.lease)
    if refusal or event.doubt:
        code = "ALREADY_EXISTS" if refusal else "UNAVAILABLE"
        _refuse(turn, event, RegisterAnswer(refusal or event.doubt, code=code))
        return
    rules = turn.fleet.settings.registry
    taken = Answer(event.ticket, RegisterAnswer("", rules.ttl_s, rules.beat_s))
    if seen is not None and seen.origin in STATIC:  # it is asked where the file says, and no more
        turn.order(taken, PollNow(seen.name))
        return
    if seen is None and status.state is State.STOPPED:  # it came late: who said so has ended
        turn.order(taken)
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
    if doubtful(seen, status) and not event.asked:
        turn.order(Confirm(event))
        return
    after = registered(seen, status, event.weight, event.limit)
    if take(turn, after, status, "", Source.BEAT, after.opinion.received_bytes, 0):
        if seen is None or seen.incarnation != status.incarnation:
            text = f"{status.instance_id} registered at {status.grpc}"
            turn.record("instance", status.instance_id, text, incarnation=status.incarnation)
        taken_in = replace(turn.fleet.instances[status.instance_id], lease=event.lease)
        turn.put(taken_in)
        turn.keep_instance(taken_in)
        if seen is not None and seen.weight != taken_in.weight:
            turn.forget_weight(seen.name)  # it stood above the old one, and must not come back
        turn.order(PollNow(status.instance_id))
    elif status.grpc != after.grpc:  # an old reading from where we have not heard of it yet
        _refuse(turn, event, RegisterAnswer(f"what {after.name} says is older than what is known"))
        return
    turn.order(taken)


def _refuse(turn: Turn, event: Registered, answer: RegisterAnswer) -> None:
    """It tries again every second or two."""
    turn.order(Answer(event.ticket, answer))
    turn.warn_rarely(event.status.instance_id, f"registration refused: {answer.refusal}")


def _unknown(fleet: FleetSnapshot, status: Status) -> str:
    """Why nothing can be routed to it: what may register is bounded by the config."""
    model = fleet.model(status.model)
    if model is None:
        return f"config.toml names no model {status.model}"
    statics = {row.version for row in fleet.settings.instance if row.model == model.name}
    ours = fleet.replicas(model.name).keys()
    if status.version in statics | fleet.weights(model.name).keys() | ours:
        return ""
    return f"config.toml gives {model.name} no version {status.version}: a weight of 0 is enough"


def beaten(turn: Turn, event: Beaten) -> None:
    status = event.status
    seen = turn.fleet.instances.get(status.instance_id)
    interval_s = turn.fleet.settings.registry.beat_s
    known = seen is not None and status.incarnation == seen.incarnation
    if seen is not None and seen.origin not in STATIC:
        known = known and status.grpc == seen.grpc  # a beat moves nobody: that is for Register
        known = known and holds(seen, event.lease)
    if seen is None or not known:
        superseded = seen is not None and status.incarnation in seen.superseded
        turn.order(Count("heartbeats", "ignored" if superseded else "unknown"))
        turn.order(Answer(event.ticket, BeatAnswer("REGISTER", 0.0, interval_s)))
        return
    if seen.origin in STATIC:  # its word is a reason to ask it, no more
        taken = True
        if status.state is not seen.state:
            turn.order(PollNow(seen.name))
    else:
        taken = take(turn, seen, status, "", Source.BEAT, event.received_bytes, event.held)
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
    if seen.origin in STATIC:
        turn.order(PollNow(seen.name))
        return
    if not holds(seen, event.lease):
        text = f"farewell refused: {seen.name} has registered with another lease_token"
        turn.warn_rarely(seen.name, text)
        return
    status = replace(seen.status, state=State.STOPPED, reason=event.reason, active_requests=0)
    if seen.state is State.ERROR:
        status = seen.status
    gone = replace(seen, status=status, since=turn.now, expires_at=turn.now + FORGET_S)
    turn.order(Unfollow(seen.name))
    turn.put(replace(gone, http="", grpc=""))  # its address belongs to nobody now
    text = f"{seen.name} said farewell" + (f": {event.reason}" if event.reason else "")
    turn.record("instance", seen.name, text, reason=event.reason)
