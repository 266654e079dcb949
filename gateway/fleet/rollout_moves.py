"""A rollout's move carried out: the store has it. Or it has not taken it, and it is tried again.

Floor 1, pure.   Flow: Move -> store -> [rollout_moves] -> fleet
"""

from dataclasses import replace
from math import inf

from gateway.fleet import launches
from gateway.fleet.commands import Count, ReadNeeds
from gateway.fleet.rollout import Move, Rollout, Watch, opened
from gateway.fleet.rollout_evidence import RETRY_S
from gateway.fleet.stepping import listed, replicas, weights
from gateway.fleet.turn import Turn
from gateway.rollout.machine import Happened, Phase


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
        rollouts={**fleet.rollouts, model: listed(fleet, after, fleet.storing)},
        overrides={name: one for name, one in overrides.items() if one},
        replica_overrides={name: one for name, one in replica_overrides.items() if one},
        drawn_up=None,
    )
    if before is not None and before.position == after.position and not before.active:
        return  # it is forgiven, no more
    _rewatch(turn, after, before)
    if sizes != fleet.replica_overrides.get(model, {}):
        launches.adopt(turn, launches.farewell(turn.fleet, after))
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
        watch = replace(watch, seen=None, lives={})
    watch = replace(opened(watch, after), said="", condemned=None)
    if after.phase is Phase.ROLLING_BACK:
        watch = replace(watch, leaves_with=turn.fleet.generation + 1)
    turn.change(watches={**others, after.model: watch})
    if before is None or not before.watched:  # they died before anybody watched
        turn.forget_deaths(after.model)


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
    turn.put_watch(move.model, again)
    turn.routes_moved = turn.routes_moved or condemned is not None
    text = f"rollout of {move.model}: {move.happened.value} could not be stored: {reason}"
    turn.record("rollout", move.model, text, warn=True)
