"""Rollouts in the fleet: carried on by whatever happens, one stored move after another.

Floor 1, pure.   Flow: news, evidence -> [rollouts] -> Move -> store -> rollout_moves
`carry_on` looks at the facts and says which move is due; nothing moves before the store has it. A
control that dies anywhere finds the last stored position and looks at the same facts.
"""

from dataclasses import replace

from gateway.config import Rollout as Keys
from gateway.fleet import capacity, groups
from gateway.fleet.commands import CountRollback
from gateway.fleet.events import Asked
from gateway.fleet.rollout import TRIED, Move, Rollout, Watch, news, rules, window
from gateway.fleet.rollout_evidence import look, reads_at, running, say
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.turn import Turn
from gateway.rollout.analysis import Kind, verdict
from gateway.rollout.machine import Happened, Phase


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
            look(turn, rollout, keys, watch)
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
        case Phase.VALIDATING if watch.asked_at < rollout.entered:
            return _untried(turn, rollout, keys)
        case Phase.STEP | Phase.PAUSED | Phase.PROMOTING if not rollout.by_hand:
            return _watched(turn, rollout, keys, watch)
        case Phase.ROLLING_BACK:
            return _emptied(turn, rollout, watch)
    return None


def _room(turn: Turn, rollout: Rollout) -> Move | None:
    fleet, pair = turn.fleet, (rollout.model, rollout.version)
    if not capacity.known(fleet, *pair):
        return None
    if pair in fleet.missing and capacity.imported(fleet, rollout):
        text = f"the model repository has no version {rollout.version} of {rollout.model}"
        return news(rollout, Happened.FAILED, text, "no_snapshot")
    short = capacity.shortage(fleet, rollout)
    if rollout.force and short:
        return news(rollout, Happened.ROOM, f"started by force: {short}")
    if short:
        say(turn, rollout, f"held: {short}")
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


def _untried(turn: Turn, rollout: Rollout, keys: Keys) -> Move | None:
    """Who is held out, or has left, is waited for as long as a group may take to be READY."""
    lacks = groups.untried(turn.fleet, rollout, turn.now)
    if not lacks or turn.now < rollout.entered + keys.ready_timeout_s:
        return None
    text = f"not validated within {keys.ready_timeout_s:g} s: {lacks}"
    return news(rollout, Happened.FAILED, text, "not_ready")


def _watched(turn: Turn, rollout: Rollout, keys: Keys, watch: Watch) -> Move | None:
    """By what the last reading says; between two readings nothing is judged again."""
    if watch.seen is not None and watch.segment != turn.fleet.segment:
        text = "the counters are another gateway process's: what this step counts begins again"
        return news(rollout, Happened.WINDOW_LOST, text)
    if watch.read_at != turn.now or watch.window != rollout.window:
        return None
    said = verdict(rules(keys), watch.evidence, window(watch, rollout))
    say(turn, rollout, said.reason)
    if said.kind is Kind.ROLL_BACK:
        return news(rollout, Happened.FAILED, said.reason, said.ground.value)
    if groups.deserted(turn.fleet, rollout, watch.without_s):
        text = f"all the traffic, nobody to serve: {groups.unready(turn.fleet, rollout, turn.now)}"
        return news(rollout, Happened.FAILED, text, "instances")
    kept = rollout.phase is Phase.PROMOTING and watch.held_s >= keys.keep_old_s
    if not kept and (rollout.phase is not Phase.STEP or said.kind is not Kind.PASS):
        return None
    if lacks := groups.short(turn.fleet, rollout, turn.now):
        say(turn, rollout, lacks)
        return None
    if kept:
        text = f"the old group was kept for {keys.keep_old_s:g} s, and leaves"
        return news(rollout, Happened.KEPT, text)
    if rollout.steps[rollout.step - 1].gate:
        say(turn, rollout, f"waits for promote: {said.reason}")
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
        turn.put_watch(rollout.model, replace(watch, leaves_with=0))
    wanted = fleet.replicas(rollout.model).get(rollout.version, 0)
    left = sum(
        (one.model, one.version) == (rollout.model, rollout.version)
        for one in fleet.launches.values()
    )
    if left > wanted:
        return None
    return news(rollout, Happened.EMPTIED, rollout.reason)


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
        untried = rollout.phase is Phase.VALIDATING and watch.asked_at < rollout.entered
        if rollout.phase is Phase.STARTING or untried:
            found.append(rollout.entered + keys.ready_timeout_s)
        elif rollout.watched:
            found.append(max(now, reads_at(rollout, keys, watch)))
    return found
