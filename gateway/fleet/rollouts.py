"""Rollouts in the fleet: carried on by whatever happens, one stored move after another.

Floor 1, pure.   Flow: news, readings -> [rollouts] -> Move -> store -> carried out
`carry_on` looks at the facts and says which move is due; nothing moves before the store has it. A
control that dies anywhere finds the last stored position and looks at the same facts.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Final

from gateway.config import Rollout as Keys
from gateway.fleet import capacity, drains, groups, launches
from gateway.fleet.commands import Count, CountRollback, ReadCounts, ReadNeeds
from gateway.fleet.drain import REPLACED, ROLLED_BACK
from gateway.fleet.events import Asked
from gateway.fleet.rollout import (
    READ_S,
    TRIED,
    Move,
    Reading,
    Rollout,
    Watch,
    news,
    opened,
    rules,
    watched,
    window,
)
from gateway.fleet.rollout_documents import watch_change
from gateway.fleet.rollout_events import CountsRead, Validated
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.stepping import listed, replicas, weights
from gateway.fleet.turn import Turn
from gateway.rollout.analysis import Kind, verdict
from gateway.rollout.machine import Happened, Phase
from gateway.rollout.memory import Held, check
from gateway.rollouts import CheckView

RETRY_S: Final = 1.0  # after a store that failed
SOON_S: Final = 0.001  # a rest of rounding would be read at once, for ever where time stands still


def running(fleet: FleetSnapshot) -> Iterator[tuple[Rollout, Keys, Watch]]:
    """Every rollout that has not ended, of models that there are."""
    for model in fleet.settings.model:
        rollout = fleet.rollout(model.name)
        if rollout is not None and rollout.active:
            watch = fleet.watches.get(model.name, Watch(window=rollout.window))
            yield rollout, model.rollout, watch


# --- carried on ----------------------------------------------------------------------------------


def carry_on(turn: Turn) -> tuple[Move, ...]:
    """The moves that are due; and orders what the next ones depend on."""
    fleet = turn.fleet
    if not fleet.begun or fleet.still or fleet.closing is not None:
        return ()
    found = []
    for rollout, keys, watch in tuple(running(fleet)):
        if _asked(fleet, rollout.model) or turn.now < watch.tries_at:
            continue
        move = _due(turn, rollout, keys, watch)
        if move is not None:
            found.append(move)
        else:
            _look(turn, rollout, keys, watch)
    return tuple(found)


def _asked(fleet: FleetSnapshot, model: str) -> bool:
    """Whether a move of its rollout is on its way to the store."""
    asks = (one.ask for one in fleet.asks if isinstance(one, Asked))
    return any(isinstance(ask, Move) and ask.model == model for ask in asks)


def _due(turn: Turn, rollout: Rollout, keys: Keys, watch: Watch) -> Move | None:
    if watch.condemned is not None:
        return watch.condemned  # whatever has been counted since
    if rollout.phase in TRIED and not rollout.by_hand:
        ailment = groups.ailment(turn.fleet, rollout)
        if ailment:
            return news(rollout, Happened.FAILED, ailment, "instances")
    match rollout.phase:
        case Phase.PENDING:
            return news(rollout, Happened.BEGUN, "its room is looked at")
        case Phase.CHECKING_CAPACITY:
            return _room(turn, rollout)
        case Phase.STARTING:
            return _started(turn, rollout, keys)
        case Phase.VALIDATING if not rollout.samples:
            text = "not validated: no samples were given"
            return news(rollout, Happened.VALIDATED, text)
        case Phase.STEP | Phase.PAUSED | Phase.PROMOTING if not rollout.by_hand:
            return _watched(turn, rollout, keys, watch)
        case Phase.ROLLING_BACK:
            return _emptied(turn, rollout, watch)
    return None


def _room(turn: Turn, rollout: Rollout) -> Move | None:
    fleet, pair = turn.fleet, (rollout.model, rollout.version)
    if not capacity.known(fleet, *pair):
        return None
    model = fleet.model(rollout.model)
    ours = model is not None and not model.command
    if pair in fleet.missing and ours and capacity.to_start(fleet, rollout):
        text = f"the model repository has no version {rollout.version} of {rollout.model}"
        return news(rollout, Happened.FAILED, text, "no_snapshot")
    short = capacity.shortage(fleet, rollout)
    if rollout.force and short:
        return news(rollout, Happened.ROOM, f"started by force: {short}")
    if short:
        _say(turn, rollout, f"held: {short}")
        return None
    return news(rollout, Happened.ROOM, capacity.told(fleet, rollout))


def _started(turn: Turn, rollout: Rollout, keys: Keys) -> Move | None:
    fleet = turn.fleet
    if groups.complete(fleet, rollout):
        ready_s = turn.now - rollout.entered
        text = f"its group is READY after {ready_s:.1f} s"
        return news(rollout, Happened.READY, text)
    if turn.now >= rollout.entered + keys.ready_timeout_s:
        who = groups.unready(fleet, rollout, turn.now)
        text = f"not READY after {keys.ready_timeout_s:g} s: {who}"
        return news(rollout, Happened.FAILED, text, "not_ready")
    return None


def _watched(turn: Turn, rollout: Rollout, keys: Keys, watch: Watch) -> Move | None:
    """By what the last reading says; between two readings nothing is judged again."""
    if watch.seen is not None and watch.segment != turn.fleet.segment:
        text = "the counters are another gateway process's: what this step counts begins again"
        return news(rollout, Happened.WINDOW_LOST, text)
    if watch.read_at != turn.now or watch.window != rollout.window:
        return None
    said = verdict(rules(keys), watch.evidence, window(watch, rollout))
    _say(turn, rollout, said.reason)
    if said.kind is Kind.ROLL_BACK:
        return news(rollout, Happened.FAILED, said.reason, said.ground.value)
    if groups.deserted(turn.fleet, rollout, watch.without_s):
        text = f"all the traffic, nobody to serve: {groups.unready(turn.fleet, rollout, turn.now)}"
        return news(rollout, Happened.FAILED, text, "instances")
    kept = rollout.phase is Phase.PROMOTING and watch.held_s >= keys.keep_old_s
    if not kept and (rollout.phase is not Phase.STEP or said.kind is not Kind.PASS):
        return None
    if lacks := groups.short(turn.fleet, rollout, turn.now):
        _say(turn, rollout, lacks)
        return None
    if kept:
        text = f"the old group was kept for {keys.keep_old_s:g} s, and leaves"
        return news(rollout, Happened.KEPT, text)
    if rollout.steps[rollout.step - 1].gate:
        _say(turn, rollout, f"waits for promote: {said.reason}")
        return None
    happened = Happened.PASSED_LAST if rollout.last else Happened.PASSED
    return news(rollout, happened, said.reason)


def _emptied(turn: Turn, rollout: Rollout, watch: Watch) -> Move | None:
    """Over when no worker knows the version any more, and the instances of ours are gone."""
    fleet = turn.fleet
    generation = min(watch.leaves_with, fleet.generation + fleet.unpublished)
    if fleet.unpublished or fleet.served() < generation:
        return None
    if watch.leaves_with:
        turn.order(CountRollback(turn.now - rollout.entered))
        put_watch(turn, rollout.model, replace(watch, leaves_with=0))
    wanted = fleet.replicas(rollout.model).get(rollout.version, 0)
    left = sum(
        (one.model, one.version) == (rollout.model, rollout.version)
        for one in fleet.launches.values()
    )
    if left > wanted:
        return None
    return news(rollout, Happened.EMPTIED, rollout.reason)


def _say(turn: Turn, rollout: Rollout, text: str) -> None:
    """Why it goes no further just now; an event only when it is held for want of room."""
    watch = turn.fleet.watches.get(rollout.model, Watch(window=rollout.window))
    if watch.said == text:
        return
    put_watch(turn, rollout.model, replace(watch, said=text))
    if rollout.phase is Phase.CHECKING_CAPACITY:
        turn.record("rollout", rollout.model, f"rollout {rollout.id} {text}", warn=True)


# --- what is looked at ---------------------------------------------------------------------------


def put_watch(turn: Turn, model: str, watch: Watch) -> None:
    turn.change(watches={**turn.fleet.watches, model: watch})


def _look(turn: Turn, rollout: Rollout, keys: Keys, watch: Watch) -> None:
    if rollout.phase is Phase.VALIDATING and watch.asked_at < rollout.entered:
        if waits := groups.untried(turn.fleet, rollout, turn.now):
            _say(turn, rollout, waits)
            return
        put_watch(turn, rollout.model, replace(watch, asked_at=turn.now, said=""))
        turn.order(groups.validation(turn.fleet, rollout))
    elif rollout.watched and turn.now >= _reads_at(rollout, keys, watch):
        put_watch(turn, rollout.model, replace(watch, asked_at=turn.now))
        turn.order(ReadCounts(rollout.model, rollout.version, rollout.stable))


def _reads_at(rollout: Rollout, keys: Keys, watch: Watch) -> float:
    """The next reading: a second later, or when the time to hold is over."""
    if watch.read_at is None:
        return watch.asked_at + READ_S
    hold_s = keys.keep_old_s if rollout.phase is Phase.PROMOTING else rollout.hold_s
    left_s = hold_s - watch.held_s
    paused = rollout.phase is Phase.PAUSED
    return watch.asked_at + (READ_S if paused or not 0 < left_s < READ_S else max(left_s, SOON_S))


def counts_read(turn: Turn, event: CountsRead) -> None:
    """A reading of both versions is evidence, and is kept."""
    fleet = turn.fleet
    rollout, model = fleet.rollout(event.model), fleet.model(event.model)
    if rollout is None or model is None or not rollout.watched or fleet.still:
        return
    if event.version != rollout.version:
        return  # asked for by one that has ended meanwhile
    watch = opened(fleet.watches.get(event.model, Watch(window=rollout.window)), rollout)
    if watch.seen is not None and watch.segment != fleet.segment:
        return  # its window has to begin again first
    sides = (rollout.version, rollout.stable)
    lived = tuple(groups.ready(fleet, event.model, version) for version in sides)
    died = tuple(fleet.deaths.get((event.model, version), 0) for version in sides)
    reading = Reading(
        fleet.segment, event.canary, event.stable, (lived[0], lived[1]), (died[0], died[1])
    )
    watch = watched(watch, rollout, rules(model.rollout), reading, turn.now)
    put_watch(turn, event.model, watch)
    turn.forget_deaths(event.model)
    turn.keep(watch_change(rollout, watch))


def validated(turn: Turn, event: Validated) -> tuple[Move, ...]:
    """What follows from the report; from none, if nobody waits for it any more."""
    rollout = turn.fleet.rollout(event.model)
    if rollout is None or rollout.id != event.rollout or rollout.phase is not Phase.VALIDATING:
        return ()
    if turn.fleet.still:  # nothing moves; another gateway asks for a report of its own
        report_lost(turn, event.model)
        return ()
    checks, reason = event.checks, event.reason
    held = _memory(turn.fleet, rollout)
    if held is not None:
        checks = (*checks, held)
        reason = held.text if event.passed and not held.passed else reason
    passed = event.passed and (held is None or held.passed)
    happened = Happened.VALIDATED if passed else Happened.FAILED
    ground = "" if passed else "validation"
    return (news(rollout, happened, reason, ground, checks),)


def report_lost(turn: Turn, model: str = "") -> None:
    """It is asked for again; "": nobody knows whose, so all that are waited for are."""
    for rollout, _, watch in tuple(running(turn.fleet)):
        if rollout.phase is Phase.VALIDATING and model in {"", rollout.model}:
            again = replace(watch, asked_at=-inf, tries_at=turn.now + RETRY_S)
            put_watch(turn, rollout.model, again)


def _memory(fleet: FleetSnapshot, rollout: Rollout) -> CheckView | None:
    """What the new group has held while samples were tried on it."""
    model = fleet.model(rollout.model)
    if model is None:
        return None
    held = [
        Held(seen.name, seen.status.device.memory_used_bytes, seen.status.device.memory_peak_bytes)
        for seen in groups.group(fleet, rollout.model, rollout.version)
        if seen.status is not None and seen.status.device is not None
    ]
    ratio_max = model.rollout.validation.memory_ratio_max
    return check(held, capacity.needs(fleet, rollout.model, rollout.version), ratio_max)


# --- carried out ---------------------------------------------------------------------------------


def carry_out(turn: Turn) -> None:
    """The rollout as it was drawn up: the store has it."""
    after = turn.fleet.drawn_up
    if after is None:
        return
    fleet, model = turn.fleet, after.model
    before = fleet.rollout(model)
    sizes = replicas(fleet, after)
    overrides = {**fleet.overrides, model: weights(fleet, after)}
    replica_overrides = {**fleet.replica_overrides, model: sizes}
    turn.change(
        rollouts={**fleet.rollouts, model: listed(fleet, after)},
        overrides={name: one for name, one in overrides.items() if one},
        replica_overrides={name: one for name, one in replica_overrides.items() if one},
        drawn_up=None,
    )
    if before is not None and before.position == after.position and not before.active:
        return  # it is forgiven, no more
    _rewatch(turn, after, before)
    if sizes != fleet.replica_overrides.get(model, {}):
        launches.adopt(turn, _farewell(turn, after))
    if after.phase is Phase.CHECKING_CAPACITY:
        _look_at_manifest(turn, after)
    elif after.phase is Phase.ROLLING_BACK:
        turn.order(Count("rollbacks", after.ground))
    turn.record(
        "rollout",
        model,
        f"rollout {after.id} of version {after.version}: "
        f"{after.phase.value}{f' {after.step}' if after.phase is Phase.STEP else ''}: "
        f"{after.reason}",
        warn=after.phase is Phase.ROLLING_BACK,
        rollout=after.id,
        version=after.version,
        phase=after.phase.value,
        step=after.step,
        weight=after.weight,
    )


def _rewatch(turn: Turn, after: Rollout, before: Rollout | None) -> None:
    """What is counted belongs to a rollout: the next one begins with nothing."""
    others = {model: one for model, one in turn.fleet.watches.items() if model != after.model}
    watch = turn.fleet.watches.get(after.model)
    if watch is None or after.phase is Phase.PENDING:
        watch = Watch(window=after.window)
    by_hand = before is not None and before.by_hand
    if before is not None and before.phase is Phase.PAUSED:  # no time was held until now
        watch = replace(watch, read_at=None, asked_at=-inf)
    foreign = watch.segment != turn.fleet.segment or by_hand  # counted elsewhere, or for others
    if watch.window != after.window and foreign:
        watch = replace(watch, seen=None)
    watch = replace(opened(watch, after), said="", condemned=None)
    if after.phase is Phase.ROLLING_BACK:
        watch = replace(watch, leaves_with=turn.fleet.generation + 1)
    turn.change(watches={**others, after.model: watch})
    if before is None or not before.watched:  # they died before anybody watched
        turn.forget_deaths(after.model)


def _farewell(turn: Turn, after: Rollout) -> drains.Order:
    """How instances leave that this move takes away."""
    model = turn.fleet.model(after.model)
    back = after.phase is Phase.ROLLING_BACK
    cut = back and model is not None and model.rollout.at_rollback == "cut"
    grace_s = 0.0 if cut else turn.fleet.settings.drain.grace_s
    return drains.Order(grace_s, True, False, ROLLED_BACK if back else REPLACED)


def _look_at_manifest(turn: Turn, after: Rollout) -> None:
    """Afresh: it may have been imported a moment ago."""
    pair = (after.model, after.version)
    turn.change(needs={key: one for key, one in turn.fleet.needs.items() if key != pair})
    turn.order(ReadNeeds(frozenset({pair})))


def not_kept(turn: Turn, move: Move, reason: str) -> None:
    """The store has not taken the move: it is tried again. A version that is proved bad is sent
    nothing meanwhile: that takes no intent, a control that knows nothing of it proves it again."""
    watch = turn.fleet.watches.get(move.model, Watch())
    condemned = move if move.happened is Happened.FAILED else watch.condemned
    again = replace(watch, tries_at=turn.now + RETRY_S, asked_at=-inf, condemned=condemned)
    put_watch(turn, move.model, again)
    turn.routes_moved = turn.routes_moved or condemned is not None
    text = f"rollout of {move.model}: {move.happened.value} could not be stored: {reason}"
    turn.record("rollout", move.model, text, warn=True)


# --- the clock -----------------------------------------------------------------------------------


def deadlines(fleet: FleetSnapshot, now: float) -> list[float]:
    if fleet.closing is not None:
        return []
    found = []
    for rollout, keys, watch in running(fleet):
        if _asked(fleet, rollout.model):
            continue  # its answer comes by itself
        if watch.tries_at > now:
            found.append(watch.tries_at)
            continue  # nothing is looked at before
        if rollout.phase is Phase.STARTING:
            found.append(rollout.entered + keys.ready_timeout_s)
        elif rollout.watched:
            found.append(max(now, _reads_at(rollout, keys, watch)))
    return found
