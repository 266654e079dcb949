"""Drains in the fleet: begun, carried on by whatever happens, given back.

Floor 1, pure.   Flow: ask -> store -> [drains] -> drain -> commands
`drain.py` knows one drain; this file gives it its facts, and knows what an ended one means for the
instance: held out, stopped, or forgotten.
"""

from dataclasses import replace
from typing import Final

from gateway.fleet.commands import CallDrain, CallResume, CountDrain
from gateway.fleet.drain import (
    ENDED,
    Drain,
    Facts,
    Lost,
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
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.snapshot import FleetSnapshot, Stage
from gateway.fleet.table import names
from gateway.fleet.turn import Turn
from gateway.fleet.workers import record_lost
from gateway.records import Health, Intent
from gateway.store.base import Remove
from sluicegate.v1.states import State

RETIRED: Final = "taken out of config.toml"
REMOVED: Final = "removed by an operator"
REVIVED: Final = frozenset({Stage.STOPPED, Stage.FAILED, Stage.BACKING_OFF, Stage.CRASH_LOOP})
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
    )


def begin(turn: Turn, seen: Seen, grace_s: float, stop: bool, reclaim: bool, reason: str) -> Drain:
    """A drain whose intent the store has. A running one goes on, with its own deadline."""
    running = turn.fleet.drains.get(seen.name)
    if running is not None and running.phase not in ENDED:
        if reclaim and not running.reclaim:
            running = replace(running, deadline=turn.now)
        drain = replace(running, stop=running.stop or stop, reclaim=running.reclaim or reclaim)
    else:
        drain = Drain(
            name=seen.name,
            slot=seen.slot,
            token=token(turn),
            began=turn.now,
            deadline=turn.now + grace_s,
            stop=stop,
            reclaim=reclaim,
            reason=reason,
            generation=turn.fleet.generation + 1,
        )
        text = f"drain of {seen.name} began: {grace_s:g} s at most"
        turn.record("drain", seen.name, text, grace_s=grace_s, stop=stop, reason=reason)
    turn.put(replace(seen, intent=Intent.STOP if drain.stop else Intent.DRAIN))
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


def undo(turn: Turn, name: str) -> None:
    """Give the instance back; one that has stopped is started anew."""
    seen, drain = turn.fleet.instances[name], turn.fleet.drains.get(name)
    if drain is not None and drain.phase is not Phase.UNDRAINED:
        if drain.phase is Phase.STOPPING:
            return  # too late; the ask was refused before it came here
        undrained = replace(move(drain, Phase.UNDRAINED, turn.now), stop=False)
        turn.put_drain(undrained)
        if drain.phase not in ENDED:
            turn.order(CountDrain("undrained", turn.now - drain.began))
        if seen.grpc:
            turn.order(CallResume(name, seen.grpc))
        turn.record("drain", name, f"{name} is undrained")
    turn.put(replace(seen, intent=Intent.ACTIVE))
    revive(turn, name)


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
    seen = turn.fleet.instances.get(drain.name)
    if seen is not None and seen.retired:
        turn.forget(drain.name, farewell(seen))
        return
    kept = replace(drain, was_cut=drain.phase is Phase.CUT)  # by it the next control tells the two
    turn.keep(drain_change(kept, turn.fleet.wall, turn.now))


def observed(turn: Turn, seen: Seen) -> None:
    """Put an instance right that does not do what was ordered: the call was lost, or it is new.

    Polls come once a second and this is called with them, so nothing is repeated faster.
    """
    drain = turn.fleet.drains.get(seen.name)
    if drain is None or not seen.grpc:
        return
    told = {Phase.WAITING, Phase.DONE, Phase.CUT}
    if drain.phase in told and not drain.stop and seen.state is State.READY:
        turn.order(CallDrain(seen.name, seen.grpc, HELD_OUT_S, drain.reason or "held out"))
    elif drain.phase is Phase.UNDRAINED and seen.state is State.DRAINING and _alive(turn, seen):
        turn.order(CallResume(seen.name, seen.grpc))


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
        after = said_cut(drain, pid, event.lost)
        turn.put_drain(after)
        for lost in after.lost[len(drain.lost) :]:
            record_lost(turn, lost)
    if not asked:  # one lease by request of an operator, or what was left at the end
        cause = "operator" if turn.fleet.closing is None else "shutdown"
        for one in event.lost:
            record_lost(turn, Lost(one, cause))


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


def retire(turn: Turn, seen: Seen) -> None:
    """Take an instance out that nobody names any more: a drain, never a drop."""
    retired = replace(seen, retired=True)
    turn.put(retired)
    turn.keep_instance(retired)
    stop = seen.origin is Origin.LAUNCHED
    drain = begin(turn, retired, turn.fleet.settings.drain.grace_s, stop, False, farewell(seen))
    turn.keep(drain_change(drain, turn.fleet.wall, turn.now))


def restore(turn: Turn, seen: Seen) -> None:
    """The file names it again. An operator's own drain is not lifted by that."""
    turn.put(replace(seen, retired=False))
    turn.keep(Remove("instances", seen.name))
    drain = turn.fleet.drains.get(seen.name)
    if drain is not None and drain.reason == RETIRED and drain.phase is not Phase.STOPPING:
        undo(turn, seen.name)
        turn.keep(Remove("drains", seen.name))
