"""A version that is gone leaves nothing behind: what was set for it at run time goes with it.

Floor 1, pure.   Flow: snapshot -> [forgetting] -> Forget -> store -> carried out
A rollout ends with a weight and a size of 0 for the version that it replaced. They hold until its
group has left; after that they say what is so without them, and the version would stand in every
table for ever. Only that goes: a weight above 0, and what stands above a value of the file, is
somebody's will, and no weight in force is moved by what is forgotten.
"""

from collections.abc import Iterator

from gateway.control import Denied
from gateway.fleet.durable import overrides_change, replicas_change
from gateway.fleet.events import Asked
from gateway.fleet.plan import Plan
from gateway.fleet.rollout_evidence import RETRY_S
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.turn import Turn
from gateway.fleet.weights import NO_OVERRIDES, Forget, Overrides, idle
from gateway.store.base import Change, Remove


def left_behind(fleet: FleetSnapshot, model: str) -> frozenset[str]:
    """Versions of which nothing is there but what was set for them at run time.

    None while a rollout is under way: it may bring its versions back.
    """
    rollout = fleet.rollout(model)
    if rollout is not None and rollout.active:
        return frozenset()
    weights = fleet.overrides.get(model, NO_OVERRIDES)
    found = idle(weights) | idle(fleet.replica_overrides.get(model, NO_OVERRIDES))
    return found - fleet.used(model) if found else found


def due(turn: Turn) -> Iterator[Forget]:
    """What has to be forgotten, of each model that is not being asked about already."""
    fleet = turn.fleet
    if not fleet.begun or fleet.still or fleet.closing is not None or turn.now < fleet.forgets_at:
        return
    asks = (one.ask for one in fleet.asks if isinstance(one, Asked))
    asked = {ask.model for ask in asks if isinstance(ask, Forget)}
    for model in sorted((fleet.overrides.keys() | fleet.replica_overrides.keys()) - asked):
        versions = left_behind(fleet, model)
        if versions:
            yield Forget(model, versions)


def plan(fleet: FleetSnapshot, ask: Forget) -> Plan:
    """Raises: Denied when one of the versions has come back, or is named again."""
    model = ask.model
    back = ask.versions - left_behind(fleet, model)
    if back:
        raise Denied("conflict", f"version {min(back)} of {model} is in use again")
    changes: list[Change] = []
    before, after = fleet.overrides.get(model, NO_OVERRIDES), _weights(fleet, ask)
    if after != before:
        changes.append(overrides_change(model, after) if after else Remove("weights", model))
    before, after = fleet.replica_overrides.get(model, NO_OVERRIDES), _sizes(fleet, ask)
    if after != before:
        changes.append(replicas_change(model, after) if after else Remove("replicas", model))
    gone = " and ".join(f"version {one}" for one in sorted(ask.versions))
    verb = "is" if len(ask.versions) == 1 else "are"
    text = f"{gone} of {model} {verb} gone: so is what was set for it at run time"
    return Plan(tuple(changes), (text,))


def carry_out(turn: Turn, ask: Forget) -> None:
    """The store has it."""
    fleet, model = turn.fleet, ask.model
    weights = {**fleet.overrides, model: _weights(fleet, ask)}
    sizes = {**fleet.replica_overrides, model: _sizes(fleet, ask)}
    turn.change(
        overrides={name: one for name, one in weights.items() if one},
        replica_overrides={name: one for name, one in sizes.items() if one},
    )


def not_kept(turn: Turn) -> None:
    """The store has not taken it: nothing depends on it, and it is tried again."""
    turn.change(forgets_at=turn.now + RETRY_S)


def deadlines(fleet: FleetSnapshot, now: float) -> list[float]:
    return [fleet.forgets_at] if fleet.forgets_at > now and fleet.closing is None else []


def _weights(fleet: FleetSnapshot, ask: Forget) -> Overrides:
    return _without(fleet.overrides.get(ask.model, NO_OVERRIDES), ask)


def _sizes(fleet: FleetSnapshot, ask: Forget) -> Overrides:
    return _without(fleet.replica_overrides.get(ask.model, NO_OVERRIDES), ask)


def _without(overrides: Overrides, ask: Forget) -> Overrides:
    return {version: one for version, one in overrides.items() if version not in ask.versions}
