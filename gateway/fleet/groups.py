"""The instances of one version: which there are, whether they are ready, what ails them.

Floor 1, pure.   Flow: registry, launches -> [groups] -> rollouts
"""

from collections.abc import Mapping

from gateway.fleet.commands import Validate
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.rollout import WHOLE, Rollout
from gateway.fleet.snapshot import FleetSnapshot, Stage
from gateway.fleet.table import standing
from gateway.records import Intent

HOPELESS = frozenset({Stage.FAILED, Stage.CRASH_LOOP})


def group(fleet: FleetSnapshot, model: str, version: str) -> tuple[Seen, ...]:
    """All of them but those that have to leave."""
    return tuple(
        seen
        for seen in fleet.instances.values()
        if (seen.model, seen.version) == (model, version) and not seen.retired
    )


def ready(fleet: FleetSnapshot, model: str, version: str) -> int:
    return sum(fleet.admissible(seen) for seen in group(fleet, model, version))


def size(fleet: FleetSnapshot, model: str, version: str) -> int:
    """Instances that it has or is about to have."""
    others = sum(seen.origin is not Origin.LAUNCHED for seen in group(fleet, model, version))
    return fleet.replicas(model).get(version, 0) + others


def complete(fleet: FleetSnapshot, rollout: Rollout) -> bool:
    """Whether the new group is READY, every instance of it."""
    there = group(fleet, rollout.model, rollout.version)
    whole = len(there) >= max(1, rollout.replicas)
    return whole and all(fleet.admissible(seen) for seen in there)


def unready(fleet: FleetSnapshot, rollout: Rollout, now: float) -> str:
    """Who is waited for, and what each says."""
    weights = fleet.weights(rollout.model)
    told = [
        f"{one.instance} {one.phase or one.state.lower() or 'not there'}"
        + (f" {one.progress:.0f} %" if one.progress else "")
        + (f" ({one.reason})" if one.reason and not one.reason.startswith("the weight of") else "")
        for one in (
            standing(fleet, seen, now, weights)
            for seen in group(fleet, rollout.model, rollout.version)
            if not fleet.admissible(seen)
        )
    ]
    return ", ".join(told) or "no instance of it is there"


def short(fleet: FleetSnapshot, rollout: Rollout, now: float) -> str:
    """Why the new group could not bear more than it does now; or ""."""
    if ready(fleet, rollout.model, rollout.version) >= max(1, rollout.replicas):
        return ""
    return f"waits for its instances: {unready(fleet, rollout, now)}"


def deserted(fleet: FleetSnapshot, rollout: Rollout, without_s: float | None) -> bool:
    """Whether every request goes where nobody is for too long, while the old group could serve."""
    alone = rollout.weight >= WHOLE and ready(fleet, rollout.model, rollout.stable) > 0
    unheard = _awaited(fleet, rollout.model, rollout.version)
    long = without_s is not None and without_s >= fleet.health_rules().recent_s
    return alone and long and not unheard


def untried(fleet: FleetSnapshot, rollout: Rollout, now: float) -> str:
    """Why no samples can be tried on both groups just now; or ""."""
    if not complete(fleet, rollout):
        return f"waits for its instances: {unready(fleet, rollout, now)}"
    if _awaited(fleet, rollout.model, rollout.stable):
        return f"waits for word of the instances of version {rollout.stable}"
    return ""


def validation(fleet: FleetSnapshot, rollout: Rollout) -> Validate:
    """Of the instances of both groups that can be asked."""

    def addresses(version: str) -> tuple[str, ...]:
        there = group(fleet, rollout.model, version)
        return tuple(seen.http for seen in there if fleet.admissible(seen))

    return Validate(
        rollout.model,
        rollout.id,
        rollout.samples,
        addresses(rollout.version),
        addresses(rollout.stable),
    )


def _awaited(fleet: FleetSnapshot, model: str, version: str) -> bool:
    """Whether some were known before this control's life, and have not been heard of in it."""
    return any(seen.name in fleet.awaited for seen in group(fleet, model, version))


def lives(fleet: FleetSnapshot, rollout: Rollout, before: Mapping[str, str]) -> dict[str, str]:
    """Instances of both versions that we have started, with their incarnations. Of others nobody
    knows whether somebody wanted their end. `before`: those of the last reading, which stand until
    their instance has been heard of in this control's life."""
    found = {}
    for name, launched in fleet.launches.items():
        seen = fleet.instances[name]
        ours = launched.model == rollout.model
        ours = ours and launched.version in {rollout.version, rollout.stable}
        if not ours or not launched.pid or seen.retired or seen.intent is Intent.STOP:
            continue
        if seen.status is None:
            found[name] = before.get(name, "")
        elif seen.grpc:  # else it said farewell, or its next life has not registered yet
            found[name] = seen.incarnation
    return {name: incarnation for name, incarnation in found.items() if incarnation}


def ailment(fleet: FleetSnapshot, rollout: Rollout) -> str:
    """Why the new group cannot become what it should be, if one of ours has given up; or ""."""
    for one in fleet.launches.values():
        mine = (one.model, one.version) == (rollout.model, rollout.version)
        if mine and one.stage in HOPELESS and not fleet.instances[one.name].retired:
            said = fleet.instances[one.name].status
            why = f": {said.reason}" if said is not None and said.reason else ""
            return f"{one.name} {one.reason}{why}"
    return ""
