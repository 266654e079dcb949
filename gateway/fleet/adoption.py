"""A new config.toml taken over: whole, or not at all.

Floor 1, pure.   Flow: SettingsRead -> [plan] -> Write -> IntentKept -> [carry out]
What the file takes away is drained, never dropped; what it adds is added without touching others;
an operator's weights and drains stand until the file's own value changes.
"""

from collections.abc import Mapping
from dataclasses import replace

from gateway.config import Settings, changed, placed, unchangeable
from gateway.control import Denied
from gateway.fleet import drains, launches
from gateway.fleet.commands import Count, Unfollow
from gateway.fleet.durable import (
    OF_INSTANCE,
    created_change,
    overrides_change,
    replicas_change,
    section_change,
)
from gateway.fleet.events import SettingsRead
from gateway.fleet.plan import Plan
from gateway.fleet.registry import STATIC, Origin, Seen, listed
from gateway.fleet.rollout_asks import owned
from gateway.fleet.slots import section_of
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.turn import Turn
from gateway.fleet.weights import Override, Overrides, rebased, surviving
from gateway.store.base import Change, Remove


def plan(fleet: FleetSnapshot, event: SettingsRead) -> Plan:
    """What the new file changes, a sentence each.

    Raises: Denied with every problem; what is in force stays.
    """
    if event.settings is None:
        count = f"{len(event.problems)} problem{'s' if len(event.problems) > 1 else ''}"
        text = f"config.toml has {count}: what is in force stays"
        raise Denied("invalid", text, event.problems)
    fixed = placed(unchangeable(fleet.settings, event.settings), event.text)
    fixed += placed(owned(fleet, event.settings), event.text)
    if fixed:
        raise Denied("invalid", "config.toml changes what cannot change live", fixed)
    moved = changed(fleet.settings, event.settings)
    missing = [row.id for row in event.settings.instance if row.id not in fleet.instances]
    if not moved and not missing:
        return Plan((), ("config.toml says what is in force already",))
    changes: list[Change] = []
    for model, left in _surviving(fleet, event.settings).items():
        if left != fleet.overrides[model]:
            changes.append(overrides_change(model, left) if left else Remove("weights", model))
    for model, left in _surviving_replicas(fleet, event.settings).items():
        if left != fleet.replica_overrides[model]:
            changes.append(replicas_change(model, left) if left else Remove("replicas", model))
    changes += (
        Remove("weights", f"{OF_INSTANCE}{name}") for name in _yielded(fleet, event.settings)
    )
    sentences = [f"{path} changed" for path in moved] or [f"{name} is added" for name in missing]
    return Plan(tuple(changes), tuple(sentences), unstored=True)


def _surviving(fleet: FleetSnapshot, settings: Settings) -> dict[str, Overrides]:
    """Those of a rollout stay all the same, and stand above what the file says now: it was changed
    while no gateway ran, else it would have been refused."""
    files = {model.name: model.weights for model in settings.model}
    found: dict[str, Overrides] = {}
    for model, overrides in fleet.overrides.items():
        rollout, file = fleet.rollout(model), files.get(model, {})
        theirs = rollout is not None and rollout.watched
        found[model] = rebased(file, overrides) if theirs else surviving(file, overrides)
    return found


def _surviving_replicas(fleet: FleetSnapshot, settings: Settings) -> dict[str, Overrides]:
    files: dict[str, Mapping[str, float]] = {model.name: model.replicas for model in settings.model}
    found: dict[str, Overrides] = {}
    for model, overrides in fleet.replica_overrides.items():
        rollout, file = fleet.rollout(model), files.get(model, {})
        kept = surviving(file, overrides)
        if rollout is not None and rollout.active and rollout.version in overrides:
            own = Override(overrides[rollout.version].weight, file.get(rollout.version))
            kept = {**kept, rollout.version: own}
        found[model] = kept
    return found


def _yielded(fleet: FleetSnapshot, settings: Settings) -> set[str]:
    """Instances whose run-time weight gives way: the file's own value for them is another."""
    file = {row.id: row.weight for row in settings.instance}
    overrides = fleet.instance_overrides.items()
    return {name for name, one in overrides if one.over != file.get(name, one.over)}


def yield_to_file(turn: Turn) -> None:
    """The file was changed while no gateway ran: what it overrules is not kept for later."""
    overrides = dict(turn.fleet.overrides)
    for model, left in _surviving(turn.fleet, turn.fleet.settings).items():
        if left != overrides[model]:
            overrides[model] = left
            turn.keep(overrides_change(model, left) if left else Remove("weights", model))
    turn.change(overrides={model: one for model, one in overrides.items() if one})
    sizes = dict(turn.fleet.replica_overrides)
    for model, left in _surviving_replicas(turn.fleet, turn.fleet.settings).items():
        if left != sizes[model]:
            sizes[model] = left
            turn.keep(replicas_change(model, left) if left else Remove("replicas", model))
    turn.change(replica_overrides={model: one for model, one in sizes.items() if one})
    for name in _yielded(turn.fleet, turn.fleet.settings):
        turn.forget_weight(name)


def carry_out(turn: Turn, settings: Settings) -> None:
    """Put the new settings in force."""
    overrides = {model: one for model, one in _surviving(turn.fleet, settings).items() if one}
    gone = _yielded(turn.fleet, settings)
    kept = {name: one for name, one in turn.fleet.instance_overrides.items() if name not in gone}
    sizes = {model: one for model, one in _surviving_replicas(turn.fleet, settings).items() if one}
    turn.change(
        settings=settings,
        overrides=overrides,
        instance_overrides=kept,
        replica_overrides=sizes,
    )
    in_force(turn)
    give_sections(turn)
    date_models(turn)
    _statics(turn, settings)
    launches.adopt(turn)
    turn.routes_moved = True


def in_force(turn: Turn) -> None:
    """What the file says is in force: whatever was wrong with it before."""
    turn.change(refused=())


def refused(turn: Turn, event: SettingsRead, denied: Denied) -> None:
    """The file was not taken; what is wrong with it is shown until a good one is. Who only tried
    is told, and nobody else."""
    if event.dry_run:
        return
    problems = [str(problem) for problem in denied.problems]
    turn.order(Count("reloads", "refused"))
    text = f"config.toml not taken over ({event.why}): {'; '.join(problems) or denied.message}"
    turn.record("config", "config.toml", text, warn=True, problems=problems, why=event.why)
    if denied.code not in {"revision_moved", "closing", "handing_over"}:  # not the file's
        turn.change(refused=tuple(problems) or (denied.message,))


def give_sections(turn: Turn) -> None:
    """Every model has its own cells in the segment."""
    for model in turn.fleet.settings.model:
        if model.name in turn.fleet.book.sections:
            continue
        book, section = section_of(turn.fleet.book, model.name)
        turn.change(book=book)
        if section:
            turn.keep(section_change(model.name, section, turn.fleet.segment))


def date_models(turn: Turn) -> None:
    """Every model is as old as the gateway's knowledge of it, whatever restarts since."""
    fleet = turn.fleet
    now_s = int(fleet.wall + turn.now)
    names = [model.name for model in fleet.settings.model if model.name not in fleet.created_s]
    if names:
        turn.change(created_s={**fleet.created_s, **dict.fromkeys(names, now_s)})
        turn.keep(*(created_change(name, now_s) for name in names))


def taken(seen: Seen) -> str:
    """Why the file's instance of this id is not there."""
    text = f"{seen.name} of config.toml is taken by one of origin {seen.origin.value}"
    return f"{text}: reload when that one has left, or choose another id"


def _statics(turn: Turn, settings: Settings) -> None:
    """Instances added, changed and taken out."""
    wanted = {row.id: row for row in settings.instance}
    for name, seen in tuple(turn.fleet.instances.items()):
        if seen.origin is Origin.CONFIG and name not in wanted and not seen.retired:
            drains.retire(turn, seen)
    for name, row in wanted.items():
        fresh = listed(row, turn.now)
        old = turn.fleet.instances.get(name)
        if old is None:
            turn.put(fresh)
            continue
        if old.origin not in STATIC:
            turn.record("config", name, taken(old), warn=True)
            continue
        if old.retired:
            drains.restore(turn, old)
            old = turn.fleet.instances[name]
        if old.origin is Origin.API:  # it is the file's from now on
            old = replace(old, origin=Origin.CONFIG)
            turn.keep(Remove("instances", name))
        same = (old.http, old.grpc, old.model, old.version)
        if same == (row.http, row.grpc, row.model, row.version):
            turn.put(replace(old, weight=row.weight, limit=row.limit))
        else:  # maybe another process: nothing known holds, but it may be the same one all the same
            turn.order(Unfollow(name))
            turn.put(replace(fresh, intent=old.intent, superseded=old.superseded))
