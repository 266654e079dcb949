"""Device memory: what an instance needs, what is free, whether a whole group has room.

Floor 1, pure.   Flow: needs, launches -> [capacity] -> placement
Every process that is there counts with what it needs, not with what it has taken so far (F3). Who
waits to be started comes first: a group is not promised what others have been promised.
"""

from collections.abc import Mapping

from gateway.config import Device
from gateway.fleet.placement import BYTES_PER_GB, Room, Tenant, gb, taken
from gateway.fleet.rollout import Rollout
from gateway.fleet.snapshot import FleetSnapshot


def needs(fleet: FleetSnapshot, model: str, version: str) -> int:
    """Of one instance, in bytes; 0: nobody says.

    The config's word goes before the manifest's: a foreign server has none of ours.
    """
    found = fleet.model(model)
    if found is not None and found.memory_gb:
        return int(found.memory_gb * BYTES_PER_GB)
    return fleet.needs.get((model, version), 0)


def devices(fleet: FleetSnapshot, wish: str) -> tuple[Device, ...]:
    """Where it may be started: where it is wished, or on any of the first one's kind."""
    every = fleet.settings.device
    kind = every[0].kind if every else ""
    return tuple(one for one in every if (one.name == wish if wish else one.kind == kind))


def rooms(fleet: FleetSnapshot, wish: str) -> tuple[Room, ...]:
    return tuple(
        Room(one.name, one.memory_gb, _tenants(fleet, one.name)) for one in devices(fleet, wish)
    )


def _tenants(fleet: FleetSnapshot, device: str) -> tuple[Tenant, ...]:
    return tuple(
        Tenant(one.name, needs(fleet, one.model, one.version), one.loading)
        for one in fleet.launches.values()
        if one.device == device and one.pid
    )


# --- of a group ----------------------------------------------------------------------------------


def known(fleet: FleetSnapshot, model: str, version: str) -> bool:
    """Whether its manifest has been looked at."""
    return (model, version) in fleet.needs


def to_start(fleet: FleetSnapshot, rollout: Rollout) -> int:
    """Instances of the new group that do not run yet."""
    running = sum(
        one.pid != 0
        for one in fleet.launches.values()
        if (one.model, one.version) == (rollout.model, rollout.version)
    )
    return max(0, rollout.replicas - running)


def imported(fleet: FleetSnapshot, rollout: Rollout) -> bool:
    """Whether instances have to be started that load a snapshot of the model repository."""
    found = fleet.model(rollout.model)
    return found is not None and not found.command and to_start(fleet, rollout) > 0


def shortage(fleet: FleetSnapshot, rollout: Rollout) -> str:
    """Why the new group has no room as a whole, with the figures; "" when it has."""
    count, each = to_start(fleet, rollout), needs(fleet, rollout.model, rollout.version)
    found = fleet.model(rollout.model)
    there = rooms(fleet, found.device if found else "")
    left: Mapping[str, int] | None = _unpromised(fleet, rollout, there)
    for _ in range(count):
        left = taken(left, each) if left is not None else None
    if left is not None:
        return ""
    free = ", ".join(
        f"{gb(max(0, room.free_bytes))} of {gb(room.total_bytes)} are free on {room.device}"
        for room in there
    )
    return f"no room for version {rollout.version}: {count} x {gb(each)} needed, {free}"


def _unpromised(
    fleet: FleetSnapshot, rollout: Rollout, there: tuple[Room, ...]
) -> Mapping[str, int]:
    """Free memory by device, without what those need who wait to be started there."""
    free: Mapping[str, int] = {room.device: max(0, room.free_bytes) for room in there}
    for one in fleet.launches.values():
        own = (one.model, one.version) == (rollout.model, rollout.version)
        if one.pid or own or fleet.instances[one.name].retired:
            continue
        mine = {device.name for device in devices(fleet, one.wish)}
        left = taken(
            {name: count for name, count in free.items() if name in mine},
            needs(fleet, one.model, one.version),
        )
        free = {**free, **(left or {})}
    return free


def told(fleet: FleetSnapshot, rollout: Rollout) -> str:
    """What the group needs and what there is, for whoever reads the plan."""
    if not known(fleet, rollout.model, rollout.version):
        return "its memory is looked up when it begins"
    each = needs(fleet, rollout.model, rollout.version)
    if not each:
        return "nobody says how much memory it needs"
    found = fleet.model(rollout.model)
    there = rooms(fleet, found.device if found else "")
    free = ", ".join(f"{gb(max(0, room.free_bytes))} on {room.device}" for room in there)
    return f"{to_start(fleet, rollout)} x {gb(each)} of memory needed, free: {free}"
