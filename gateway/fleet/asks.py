"""What operators ask for: planned first, carried out once the store has it.

Floor 1, pure.   Flow: Asked -> [plan] -> Write -> IntentKept -> [carry out] -> Receipt
`plan` changes nothing and says everything: what the store must hold, and a sentence for each change
(a dry run ends there). A refusal is a Denied. Asking for what is so already is not a change.
"""

from dataclasses import replace
from math import isfinite
from typing import Final

from gateway.config import INSTANCES_MAX, NAME, NAME_RULE, Problem, is_address
from gateway.control import (
    AddInstance,
    Ask,
    CancelLease,
    Denied,
    DrainInstance,
    Reload,
    RemoveInstance,
    ResetInstanceWeight,
    ResetWeights,
    SetInstanceWeight,
    SetWeights,
    StartInstance,
    StopInstance,
    UndrainInstance,
)
from gateway.fleet import drains, forgetting, rollout_asks, rollout_moves
from gateway.fleet.commands import Tell
from gateway.fleet.drain import ENDED, FAREWELLS, Drain, Phase
from gateway.fleet.durable import OF_INSTANCE, drain_change, instance_document, overrides_change
from gateway.fleet.plan import NOTHING, Plan
from gateway.fleet.registry import STATIC, Origin, Seen
from gateway.fleet.rollout import Move
from gateway.fleet.snapshot import FleetSnapshot, Launched, Stage, overrides_with, overrides_without
from gateway.fleet.turn import Turn
from gateway.fleet.weights import NO_OVERRIDES, Forget, Override, Overrides, override
from gateway.messages import Cut
from gateway.records import Intent
from gateway.store.base import Put, Remove

ASKED: Final = "asked by an operator"
WEIGHT_MAX: Final = 1_000_000.0  # as in config.toml


def plan(fleet: FleetSnapshot, ask: Ask | Move | Forget, now: float, by: str = "") -> Plan:
    """What has to be stored, and what that changes, a sentence each.

    Raises: Denied; there is nothing to be carried out.
    """
    match ask:
        case SetWeights():
            return _plan_weights(fleet, ask, by, now)
        case ResetWeights(model):
            return _plan_reset(fleet, model)
        case SetInstanceWeight(name, weight):
            return _plan_instance_weight(fleet, name, weight)
        case ResetInstanceWeight(name):
            return _plan_instance_reset(fleet, name)
        case DrainInstance(name, grace_s, stop, force):
            grace = fleet.settings.drain.grace_s if grace_s is None else grace_s
            _check_number("grace_s", grace, 86_400.0 * 7)
            return _plan_drain(fleet, name, drains.Order(grace, stop, False, ASKED), force, now)
        case StopInstance(name, force):
            grace = stop_grace(fleet, ask)
            _check_number("grace_s", grace, 86_400.0 * 7)
            return _plan_drain(fleet, name, drains.Order(grace, True, force, ASKED), force, now)
        case StartInstance(name):
            return _plan_start(fleet, name, now)
        case UndrainInstance(name):
            return _plan_undrain(fleet, name, now)
        case AddInstance():
            return _plan_add(fleet, ask)
        case RemoveInstance(name):
            return _plan_remove(fleet, name, now)
        case CancelLease(request):
            return Plan(NOTHING, (f"request {request}: cut",), unstored=True)
        case Forget():
            return forgetting.plan(fleet, ask)
        case Reload():
            raise AssertionError("a reload is planned when the file has been read")
        case _:
            return rollout_asks.plan(fleet, ask, by, now)


def carry_out(turn: Turn, ask: Ask | Move | Forget) -> None:
    """Change the fleet; the store has it already."""
    fleet = turn.fleet
    match ask:
        case SetWeights(model, weights):
            chosen = _overridden(fleet, model, weights)
            turn.change(overrides={**fleet.overrides, model: chosen})
            shares = ", ".join(f"{name} {one.weight:g}" for name, one in chosen.items())
            turn.record("weights", model, f"weights of {model}: {shares}", weights=dict(weights))
            rollout_moves.carry_out(turn)
        case ResetWeights(model):
            kept = {key: one for key, one in fleet.overrides.items() if key != model}
            turn.change(overrides=kept)
            turn.record("weights", model, f"weights of {model} are those of the file again")
        case SetInstanceWeight(name, weight):
            over = Override(weight, fleet.instances[name].weight)
            turn.change(instance_overrides=overrides_with(fleet.instance_overrides, name, over))
            turn.record("weights", name, f"weight of {name}: {weight:g}", weight=weight)
        case ResetInstanceWeight(name):
            turn.change(instance_overrides=overrides_without(fleet.instance_overrides, name))
            own = fleet.instances[name].weight
            turn.record("weights", name, f"weight of {name}: {own:g} again", weight=own)
        case DrainInstance(name, grace_s, stop, _):
            grace = fleet.settings.drain.grace_s if grace_s is None else grace_s
            order = drains.Order(grace, stop, False, ASKED)
            drains.begin(turn, fleet.instances[name], order)
        case StopInstance(name, force):
            grace = stop_grace(fleet, ask)
            seen = fleet.instances[name]
            drains.begin(turn, seen, drains.Order(grace, True, force, ASKED))
        case UndrainInstance(name):
            drains.undo(turn, name)
        case StartInstance(name):
            drain = fleet.drains.get(name)
            if drain is not None and drain.stop:
                drains.undo(turn, name)
            drains.revive(turn, name)
        case AddInstance(name):
            turn.put(_added(ask))
            turn.record("instance", name, f"{name} added at {ask.http}", grpc=ask.grpc)
        case RemoveInstance(name):
            drains.retire(turn, fleet.instances[name])
        case CancelLease(request):
            cut = Cut((), (int(request, 16),), drains.token(turn))
            turn.order(*(Tell(row, cut) for row in turn.fleet.holding().values()))
        case Forget():
            forgetting.carry_out(turn, ask)
        case Reload():
            raise AssertionError("a reload is carried out by adoption.py")
        case _:
            rollout_moves.carry_out(turn)
    turn.routes_moved = True


# --- weights -------------------------------------------------------------------------------------


def _model(fleet: FleetSnapshot, name: str) -> None:
    if fleet.model(name) is None:
        raise Denied("unknown_model", f"no model {name} in config.toml")


def _check_number(name: str, value: float, most: float = WEIGHT_MAX) -> None:
    if not isfinite(value) or not 0 <= value <= most:
        problem = Problem(name, f"must be from 0 to {most:g}, not {value:g}")
        raise Denied("invalid", str(problem), (problem,))


def _overridden(fleet: FleetSnapshot, model: str, weights: dict[str, float]) -> Overrides:
    found = fleet.model(model)
    file = found.weights if found else {}
    return override(file, fleet.overrides.get(model, NO_OVERRIDES), weights)


def _plan_weights(fleet: FleetSnapshot, ask: SetWeights, by: str, now: float) -> Plan:
    model, weights = ask.model, ask.weights
    _model(fleet, model)
    before = fleet.weights(model)
    present = {seen.version for seen in fleet.instances.values() if seen.model == model}
    known = before.keys() | present
    for version, weight in weights.items():
        _check_number(f"weights.{version}", weight)
        if version not in known:
            problem = Problem(f"weights.{version}", f"{model} has no version {version}")
            raise Denied("invalid", str(problem), (problem,))
    chosen = _overridden(fleet, model, weights)
    old = {version: before[version].weight if version in before else 0.0 for version in chosen}
    moved = [version for version, one in chosen.items() if one.weight != old[version]]
    if not moved and not any(weights.get(version) for version in fleet.blocked(model)):
        return Plan(NOTHING, (f"weights of {model} are so already",))
    sentences = tuple(
        f"weight of {model} version {version}: {old[version]:g} to {chosen[version].weight:g}"
        for version in moved
    )
    owned = rollout_asks.overridden(fleet, ask, by, now)
    after = replace(fleet, overrides={**fleet.overrides, model: chosen})
    told = (*sentences, *owned.sentences, *_darkened(fleet, after, model))
    return Plan((overrides_change(model, chosen), *owned.changes), told, rollout=owned.rollout)


def _plan_reset(fleet: FleetSnapshot, model: str) -> Plan:
    _model(fleet, model)
    rollout_asks.refuse_owned(fleet, model)
    found = fleet.model(model)
    rollout_asks.refuse_blocked(fleet, model, found.weights if found else {})
    if not fleet.overrides.get(model):
        return Plan(NOTHING, (f"weights of {model} are those of the file already",))
    after = replace(fleet, overrides={**fleet.overrides, model: NO_OVERRIDES})
    sentence = f"weights of {model}: back to the file"
    return Plan((Remove("weights", model),), (sentence, *_darkened(fleet, after, model)))


def _plan_instance_weight(fleet: FleetSnapshot, name: str, weight: float) -> Plan:
    seen = _instance(fleet, name)
    _check_number("weight", weight)
    before = fleet.weight_of(seen)
    if before == weight:
        return Plan(NOTHING, (f"weight of {name} is {weight:g} already",))
    over = Override(weight, seen.weight)
    change = overrides_change(f"{OF_INSTANCE}{name}", {name: over})
    chosen = overrides_with(fleet.instance_overrides, name, over)
    dark = _darkened(fleet, replace(fleet, instance_overrides=chosen), seen.model)
    return Plan((change,), (f"weight of {name}: {before:g} to {weight:g}", *dark))


def _plan_instance_reset(fleet: FleetSnapshot, name: str) -> Plan:
    seen = _instance(fleet, name)
    if name not in fleet.instance_overrides:
        return Plan(NOTHING, (f"weight of {name} is {seen.weight:g}, and nobody has set it",))
    left = overrides_without(fleet.instance_overrides, name)
    dark = _darkened(fleet, replace(fleet, instance_overrides=left), seen.model)
    sentence = f"weight of {name}: {fleet.weight_of(seen):g} back to {seen.weight:g}"
    return Plan((Remove("weights", f"{OF_INSTANCE}{name}"),), (sentence, *dark))


def _darkened(before: FleetSnapshot, after: FleetSnapshot, model: str) -> tuple[str, ...]:
    """A warning, when the change takes the model its last routable instance.

    A drain is refused then. Weights are not: all of them 0 is how a model is switched off.
    """
    if not _routable(before, model) or _routable(after, model):
        return ()
    return (f"no instance of {model} is routable any more: requests get 503",)


def _routable(fleet: FleetSnapshot, model: str) -> set[str]:
    every = (seen for seen in fleet.instances.values() if seen.model == model)
    return {seen.name for seen in every if fleet.routable(seen)}


# --- drains --------------------------------------------------------------------------------------


def _instance(fleet: FleetSnapshot, name: str) -> Seen:
    if name not in fleet.instances:
        raise Denied("unknown_instance", f"no instance {name}: see sluicegate instances")
    return fleet.instances[name]


def _plan_drain(
    fleet: FleetSnapshot, name: str, order: drains.Order, force: bool, now: float
) -> Plan:
    seen = _instance(fleet, name)
    running = fleet.drains.get(name)
    if running is not None and running.phase is not Phase.UNDRAINED:
        more = (order.stop and not running.stop) or (order.reclaim and not running.reclaim)
        removal = running.reason in FAREWELLS
        if not more and not removal and not _ends_with_it(fleet, running, order):
            return Plan(NOTHING, (f"{name} is drained already: {running.phase.value}",))
    if _routable(fleet, seen.model) == {name} and not force:
        how = "drain it with --stop --force" if order.stop else "--force"
        text = f"{name} is the last routable instance of {seen.model}: {how} if that is meant"
        raise Denied("last_routable", text)
    draft = drains.drafted(fleet, name, order, now)
    then = "and stopped" if draft.stop else "and held out"
    sentence = f"{name} is drained for at most {max(0.0, draft.deadline - now):g} s {then}"
    return Plan((drain_change(draft, fleet.wall, now),), (sentence,))


def _ends_with_it(fleet: FleetSnapshot, last: Drain, order: drains.Order) -> bool:
    """Whether what was stopped comes back as if nothing had been: held out is more than that."""
    over = last.stop and last.phase in ENDED
    return over and not order.stop and last.name not in fleet.launches


def _plan_undrain(fleet: FleetSnapshot, name: str, now: float) -> Plan:
    drain = fleet.drains.get(name)
    if drain is not None and name not in fleet.instances:  # held out, and not here just now
        return Plan((Remove("drains", name),), (f"{name} is not held out any more",))
    seen = _instance(fleet, name)
    launched = fleet.launches.get(name)
    waits = launched is not None and (launched.stage is Stage.FAILED or launched.retries)
    if seen.retired:
        raise Denied("conflict", f"{name} is not wanted any more: add it to config.toml again")
    if drain is not None and drain.phase is Phase.STOPPING:
        raise Denied(
            "conflict", f"{name} is stopping, too late to give it back: {_later(launched)}"
        )
    if seen.intent is Intent.ACTIVE and not waits:
        if drains.lags(seen):
            return Plan(NOTHING, (f"{name} is told again to take requests",), unstored=True)
        return Plan(NOTHING, (f"{name} is not drained",))
    sentences = (f"{name} is given back",)
    if drain is None:  # its launcher had given it up
        return Plan(NOTHING, sentences, unstored=True)
    return Plan((drain_change(drains.undrained(drain, now), fleet.wall, now),), sentences)


def _later(launched: Launched | None) -> str:
    """What to do about one that stops."""
    return "start it anew" if launched is None else "start it when it is gone"


def _plan_start(fleet: FleetSnapshot, name: str, now: float) -> Plan:
    """It lifts a drain with stop, as an undrain does; one that is held out stays held out."""
    seen, drain = _instance(fleet, name), fleet.drains.get(name)
    launched = fleet.launches.get(name)
    if launched is None:
        raise Denied("conflict", f"{name} is not started by this gateway: start it where it runs")
    if seen.intent is Intent.STOP or seen.retired:
        return _plan_undrain(fleet, name, now)
    if launched.pid:
        return Plan(NOTHING, (f"{name} runs already",))
    if launched.stage is Stage.QUEUED:
        return Plan(NOTHING, (f"{name} {launched.reason or 'is about to start'}",))
    held = ", and stays held out" if drain and seen.intent is Intent.DRAIN else ""
    return Plan(NOTHING, (f"{name} is started{held}",), unstored=True)


def stop_grace(fleet: FleetSnapshot, ask: StopInstance) -> float:
    if ask.force:
        return 0.0
    return fleet.settings.drain.grace_s if ask.grace_s is None else ask.grace_s


# --- instances -----------------------------------------------------------------------------------


def _added(ask: AddInstance) -> Seen:
    return Seen(ask.id, ask.model, ask.version, Origin.API, http=ask.http, grpc=ask.grpc)


def _plan_add(fleet: FleetSnapshot, ask: AddInstance) -> Plan:
    old = fleet.instances.get(ask.id)
    if old is not None:
        if old.origin is Origin.API and old.retired:
            raise Denied("conflict", f"{ask.id} is being removed: add it when it has left")
        if (old.origin, old.http, old.grpc) == (Origin.API, ask.http, ask.grpc):
            return Plan(NOTHING, (f"{ask.id} is there already",))
        text = f"{ask.id} is taken by an instance of origin {old.origin.value}"
        raise Denied("conflict", f"{text}: choose another id, or remove that one first")
    _model(fleet, ask.model)
    if len(fleet.instances) >= INSTANCES_MAX:
        raise Denied("conflict", f"there are {INSTANCES_MAX} instances already: remove one first")
    problems = _malformed(ask)
    if problems:
        raise Denied("invalid", "; ".join(map(str, problems)), problems)
    document = instance_document(_added(ask))
    return Plan((Put("instances", ask.id, document),), (f"{ask.id} is added at {ask.http}",))


def _malformed(ask: AddInstance) -> tuple[Problem, ...]:
    """Everything that is wrong with what it names; of whatever API it came by."""
    names = {"id": ask.id, "model": ask.model, "version": ask.version}
    addresses = {"http": ask.http, "grpc": ask.grpc}
    return (
        *(
            Problem(key, f"must be {NAME_RULE}, not {value!a}")
            for key, value in names.items()
            if not NAME.fullmatch(value)
        ),
        *(
            Problem(key, f'must be "host:port", not {value!a}')
            for key, value in addresses.items()
            if not is_address(value)
        ),
    )


def _plan_remove(fleet: FleetSnapshot, name: str, now: float) -> Plan:
    seen = _instance(fleet, name)
    if seen.origin in {Origin.CONFIG, Origin.LAUNCHED}:
        table = "[[instance]]" if seen.origin in STATIC else "replicas"
        raise Denied("from_file", f"{name} comes from {table} in config.toml: take it out there")
    if seen.retired:
        return Plan(NOTHING, (f"{name} is being removed already",))
    order = drains.Order(fleet.settings.drain.grace_s, False, False, drains.farewell(seen))
    if _routable(fleet, seen.model) == {name}:
        text = f"{name} is the last routable instance of {seen.model}: drain it with force first"
        raise Denied("last_routable", f"{text} if that is meant")
    retired = replace(seen, retired=True)
    draft = drains.drafted(fleet, name, order, now)
    changes = (
        Put("instances", name, instance_document(retired)),
        drain_change(draft, fleet.wall, now),
    )
    return Plan(changes, (f"{name} is drained for at most {order.grace_s:g} s and forgotten",))
