"""What a move changes: the rollout's record, the model's weights, the sizes of its groups.

Floor 1, pure.   Flow: ask or news -> [stepping] -> Write -> the same, carried out
Both times from the same record, so what the store has is what becomes true. The old group is not
touched before the end: until then its instances, and the weights as they were, are the way back.
"""

from dataclasses import replace
from typing import Final

from gateway.control import Denied
from gateway.fleet.durable import overrides_change, replicas_change
from gateway.fleet.rollout import Move, Rollout, Transition, shares
from gateway.fleet.rollout_documents import ROLLOUTS, WATCHES, rollout_change
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.weights import NO_OVERRIDES, Override, Overrides, in_force, override, surviving
from gateway.rollout.machine import ENDED, Happened, Phase, Refusal, transition
from gateway.store.base import Change, Remove

KEPT_MAX: Final = 20  # rollouts of a model; besides, those that block their version:
BLOCKED_MAX: Final = 64  # the newest ones, and each whose version is used


def drawn_up(fleet: FleetSnapshot, rollout: Rollout, move: Move, by: str, now: float) -> Rollout:
    """The rollout as it is after the move.

    Raises: Denied when the move is not one of its phase.
    """
    after = transition(rollout.phase, move.happened)
    if isinstance(after, Refusal):
        raise Denied("conflict", f"rollout {rollout.id}: {after.text}")
    at = fleet.wall + now
    step, window = _position(rollout, move.happened)
    model = fleet.model(rollout.model)
    cuts = model is not None and model.rollout.at_rollback == "cut"
    return replace(
        rollout,
        phase=after,
        step=step,
        window=window,
        by_hand=move.happened is Happened.OVERRIDDEN
        or (rollout.by_hand and after is rollout.phase),
        since=at,
        entered=now,
        reason=move.reason,
        ground=move.ground or rollout.ground,
        checks=move.checks or rollout.checks,
        ended=at if after in ENDED else None,
        cut=cuts if after is Phase.ROLLING_BACK else rollout.cut,
        transitions=(*rollout.transitions, Transition(at, after, step, move.reason, by)),
    )


def _position(rollout: Rollout, happened: Happened) -> tuple[int, int]:
    """The step, and the window that is counted in."""
    step, window = rollout.step, rollout.window
    match happened:
        case Happened.VALIDATED | Happened.PASSED | Happened.PROMOTED:
            return step + 1, window + 1
        case Happened.PASSED_LAST | Happened.PROMOTED_FULLY:
            return len(rollout.steps), window + 1
        case Happened.WINDOW_LOST:
            return step, window + 1
        case Happened.RESUMED if rollout.by_hand:  # what was counted was under other weights
            return step, window + 1
    return step, window


def weights(fleet: FleetSnapshot, after: Rollout) -> Overrides:
    """The model's run-time weights once the rollout is `after`."""
    found, model = fleet.model(after.model), after.model
    file, standing = found.weights if found else {}, fleet.overrides.get(model, NO_OVERRIDES)
    if after.watched or after.phase is Phase.DONE:
        return override(file, standing, shares(after.rest, after.version, after.weight))
    if after.phase is Phase.ROLLING_BACK and after.step:
        former = surviving(file, after.before)
        said = in_force(file, former)
        if any(version in said and said[version].weight > 0 for version in after.rest):
            return former
        return override(file, standing, shares(after.rest, after.version, 0.0))
    return standing


def replicas(fleet: FleetSnapshot, after: Rollout) -> Overrides:
    """The same of the groups that are ours to run."""
    found, model = fleet.model(after.model), after.model
    file = found.replicas if found else {}
    standing = dict(fleet.replica_overrides.get(model, NO_OVERRIDES))
    before = fleet.rollout(model)
    begun = before is not None and before.phase not in {Phase.PENDING, Phase.CHECKING_CAPACITY}
    if after.phase is Phase.STARTING and after.replicas:
        standing[after.version] = Override(after.replicas, file.get(after.version))
    elif after.phase is Phase.ROLLING_BACK and begun:
        standing.pop(after.version, None)
        if after.version in file:
            standing[after.version] = Override(0, file[after.version])
    elif after.phase is Phase.DONE:
        for version in after.rest.keys() & fleet.replicas(model).keys():
            standing[version] = Override(0, file.get(version))
    return standing


def changes(fleet: FleetSnapshot, after: Rollout) -> tuple[Change, ...]:
    """What the store is to hold, all of it or nothing."""
    model = after.model
    found: list[Change] = [rollout_change(after)]
    said = weights(fleet, after)
    if said != fleet.overrides.get(model, NO_OVERRIDES):
        found.append(overrides_change(model, said) if said else Remove("weights", model))
    sizes = replicas(fleet, after)
    if sizes != fleet.replica_overrides.get(model, NO_OVERRIDES):
        found.append(replicas_change(model, sizes) if sizes else Remove("replicas", model))
    found += (Remove(ROLLOUTS, one) for one in superfluous(fleet, after))
    if after.phase is Phase.PENDING:  # nobody looks at what was counted of the one before
        found += (Remove(WATCHES, one.id) for one in fleet.rollouts.get(model, ())[-1:])
    return tuple(found)


def listed(fleet: FleetSnapshot, after: Rollout, stored: tuple[Change, ...]) -> tuple[Rollout, ...]:
    """The model's rollouts with this one among them, as the store has them."""
    removed = {one.key for one in stored if isinstance(one, Remove) and one.kind == ROLLOUTS}
    return tuple(one for one in _with(fleet, after) if one.id not in removed)


def superfluous(fleet: FleetSnapshot, after: Rollout) -> tuple[str, ...]:
    """Ids of the oldest ones; but none that blocks a version which somebody may still ask for."""
    many = _with(fleet, after)
    last = {one.version: one for one in many}  # it says whether the version is blocked
    blocking = [one for one in many if last[one.version] is one and one.blocks]
    kept = [*many[-KEPT_MAX:], *blocking[-BLOCKED_MAX:]]
    if len(blocking) > BLOCKED_MAX:
        used = fleet.used(after.model)
        kept += (one for one in blocking if one.version in used)
    numbers = {one.number for one in kept}
    return tuple(one.id for one in many if one.number not in numbers)


def _with(fleet: FleetSnapshot, after: Rollout) -> tuple[Rollout, ...]:
    others = (one for one in fleet.rollouts.get(after.model, ()) if one.number != after.number)
    return tuple(sorted((*others, after), key=lambda one: one.number))
