"""Build the route table.

Floor 1, pure.   Flow: registry -> [table] -> workers
Only admissible instances are in it. A version without any stays, empty, so that a pin to it is a
503 and its share falls to the others; a model without any keeps its route for the same reason: an
absent route is a 404. Standings say why, for the bodies of 503s.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gateway.fleet.registry import Seen, hindrance
from gateway.fleet.rollout import TRIED
from gateway.fleet.snapshot import FleetSnapshot, Launched
from gateway.fleet.weights import InForce
from gateway.records import (
    Bounds,
    InstanceName,
    Intent,
    ModelName,
    Policy,
    Route,
    RouteTable,
    Sampling,
    Standing,
    Target,
    Timeouts,
    Version,
    VersionName,
)
from sluicegate.v1.states import State

UNKNOWN_S: Final = -1.0
LATE_S: Final = 1.0  # an instance that is later than the last one was is expected any moment


def target(fleet: FleetSnapshot, seen: Seen) -> Target | None:
    """The instance as the data plane sees it; None while it is not admissible."""
    if not fleet.admissible(seen):
        return None
    return _target(seen, fleet.weight_of(seen), _room(fleet, seen, fleet.limit_of(seen)))


def _room(fleet: FleetSnapshot, seen: Seen, limit: int) -> int:
    """What a predecessor that still finishes requests leaves of the limit; the instance's own gate
    has the last word."""
    return max(1, limit - fleet.held_elsewhere(seen.name))


def _target(seen: Seen, weight: float, limit: int) -> Target:
    return Target(
        slot=seen.slot,
        instance=InstanceName(seen.name),
        incarnation=seen.incarnation,
        host=seen.host,
        port=int(seen.http.rpartition(":")[2]),
        weight=weight,
        limit=limit,
        ready_since_ns=int(seen.ready_since * 1_000_000_000),  # loop time is CLOCK_MONOTONIC
    )


def _routes(fleet: FleetSnapshot, now: float) -> tuple[Route, ...]:
    """What a model has in common is looked up once, not for each instance."""
    stand = standings(fleet, now)
    limits = {model.name: model.limit for model in fleet.settings.model}
    groups: dict[str, dict[str, list[Target]]] = {name: {} for name in limits}
    for seen in fleet.instances.values():
        if seen.model not in groups:
            continue
        group = groups[seen.model].setdefault(seen.version, [])
        if fleet.admissible(seen):
            limit = seen.limit or limits[seen.model]
            group.append(_target(seen, fleet.weight_of(seen), _room(fleet, seen, limit)))
    return tuple(
        Route(
            model=ModelName(model.name),
            section=fleet.book.sections.get(model.name, 0),
            created_s=fleet.created_s.get(model.name, 0),
            versions=_versions(fleet, model.name, groups[model.name]),
            standings=stand[model.name],
            policy=Policy(model.policy),
            queue_max=model.queue_max,
            queue_timeout_s=model.queue_timeout_s,
            replayable=model.replayable,
            pinnable=model.pinnable,
            slow_start_s=model.slow_start_s,
            canary_fallback=model.canary_fallback,
            **_rolled_out(fleet, model.name),
        )
        for model in fleet.settings.model
    )


def _rolled_out(fleet: FleetSnapshot, model: str) -> dict[str, VersionName | None]:
    """The two versions of a rollout, from the start of its instances to its end or its failure."""
    rollout = fleet.rollout(model)
    if rollout is None or rollout.phase not in TRIED or rollout.version in fleet.blocked(model):
        return {"canary": None, "stable": None}
    return {"canary": VersionName(rollout.version), "stable": VersionName(rollout.stable)}


def _versions(
    fleet: FleetSnapshot, model: str, groups: dict[str, list[Target]]
) -> tuple[Version, ...]:
    weights, blocked = fleet.sent(model), fleet.blocked(model)
    return tuple(
        Version(
            name=VersionName(version),
            weight=weights[version].weight if version in weights else 0.0,
            blocked=version in blocked,
            targets=tuple(groups.get(version, ())),
        )
        for version in dict.fromkeys([*weights, *groups, *blocked])  # who pins one is told why
    )


def build(fleet: FleetSnapshot, generation: int, now: float) -> RouteTable:
    """The whole table.

    Cost: O(instances), some 3 us each; built only when something that it is made of has moved.
    """
    gateway, timeouts = fleet.settings.gateway, fleet.settings.timeouts
    recorder = fleet.settings.recorder
    return RouteTable(
        generation=generation,
        routes=_routes(fleet, now),
        default_model=ModelName(gateway.default_model),
        bounds=Bounds(
            head_max_bytes=gateway.head_max_bytes,
            body_max_bytes=gateway.body_max_bytes,
            route_body_max_bytes=gateway.route_body_max_bytes,
            route_body_total_bytes=gateway.route_body_total_bytes,
            replay_max_bytes=gateway.replay_max_bytes,
            replays_max=gateway.replays_max,
            half_close=gateway.half_close,
        ),
        timeouts=Timeouts(**timeouts.model_dump()),
        sampling=Sampling(recorder.ratio if recorder.enabled else 0, recorder.redact),
    )


def same(one: RouteTable | None, other: RouteTable) -> bool:
    """Whether both say the same, generation and standings apart."""
    return one is not None and _content(one) == _content(other)


def names(table: RouteTable | None, slot: int) -> bool:
    """Whether the table leads to the slot."""
    if table is None:
        return False
    versions = (version for route in table.routes for version in route.versions)
    return any(target.slot == slot for version in versions for target in version.targets)


def _content(table: RouteTable) -> RouteTable:
    bare = tuple(replace(route, standings=()) for route in table.routes)
    return replace(table, generation=0, routes=bare)


# --- standings -----------------------------------------------------------------------------------


def standings(fleet: FleetSnapshot, now: float) -> dict[str, tuple[Standing, ...]]:
    """Every known instance of each model, admissible or not."""
    found: dict[str, list[Standing]] = {model.name: [] for model in fleet.settings.model}
    weights = {model: fleet.sent(model) for model in found}
    for seen in fleet.instances.values():
        if seen.model in found:
            found[seen.model].append(standing(fleet, seen, now, weights[seen.model]))
    return {model: tuple(many) for model, many in found.items()}


def standing(
    fleet: FleetSnapshot, seen: Seen, now: float, weights: Mapping[str, InForce]
) -> Standing:
    """`weights`: those in force of its model."""
    launched = fleet.launches.get(seen.name)
    status = None if launched is not None and _unheard(seen, launched) else seen.status
    stage = launched.stage.value if launched and (not launched.pid or status is None) else ""
    wanted = seen.intent is Intent.ACTIVE and fleet.weight_of(seen) > 0
    return Standing(
        instance=InstanceName(seen.name),
        version=VersionName(seen.version),
        state=status.state.name if status else "",
        phase=stage or (status.phase.name.lower() if status else ""),
        progress=status.progress if status and not stage else 0.0,
        reason=reason(fleet, seen, weights),
        ready_in_s=ready_in_s(fleet, seen, now) if wanted else UNKNOWN_S,  # nobody may go there
    )


def _unheard(seen: Seen, launched: Launched) -> bool:
    """Whether its process has not said anything yet: what is known is of the life before."""
    return launched.loading and seen.state in {None, State.STOPPED, State.ERROR}


def reason(fleet: FleetSnapshot, seen: Seen, weights: Mapping[str, InForce]) -> str:
    """Why it is not routable, or what it says of itself; the launcher's word first."""
    launched = fleet.launches.get(seen.name)
    if launched is not None and not launched.pid and launched.reason:
        said = seen.status.reason if seen.status and seen.state is State.ERROR else ""
        return f"{launched.reason}: {said}" if said else launched.reason
    blocked = hindrance(seen, fleet.weight_of(seen))
    if blocked or seen.state is not State.READY:
        return blocked
    rollback = fleet.blocked(seen.model).get(seen.version)
    if rollback is not None:
        return f"its version was rolled back: {rollback.reason}"
    share = weights.get(seen.version)
    if share is None or share.weight <= 0:
        return f"the weight of version {seen.version} is 0"
    return seen.status.reason if seen.status else ""


def ready_in_s(fleet: FleetSnapshot, seen: Seen, now: float) -> float:
    """Seconds until it may be READY, from measured load times; UNKNOWN_S when nobody can say."""
    if fleet.admissible(seen):
        return 0.0
    whole = _load_s(fleet, seen)
    launched = fleet.launches.get(seen.name)
    if launched is not None and not launched.pid:
        wait = max(0.0, launched.retry_at - now)
        return wait + whole if whole > 0 and _comes_back(launched) else UNKNOWN_S
    loading = launched is not None and launched.loading
    if seen.state is not State.INITIALIZING and not loading:
        return UNKNOWN_S
    # A load is measured from the same moment on.
    spent = max(0.0, now - (launched.started_at if launched and loading else seen.began))
    if whole > 0:
        return max(whole - spent, LATE_S)
    progress = seen.status.progress if seen.state is State.INITIALIZING and seen.status else 0.0
    if progress < 1.0:  # too early to extend the line
        return UNKNOWN_S
    return spent * (100.0 - progress) / progress


def _load_s(fleet: FleetSnapshot, seen: Seen) -> float:
    """How long its like took last time; 0: never seen."""
    own = fleet.load_s.get((seen.model, seen.version))
    if own is not None:
        return own
    kin = [s for (model, _), s in fleet.load_s.items() if model == seen.model]
    return max(kin, default=0.0)


def _comes_back(launched: Launched) -> bool:
    return launched.stage.value in {"queued", "backing_off"}
