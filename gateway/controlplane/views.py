"""What admin reads, made from the snapshot and the segment.

Floor 1, pure: reads memory, keeps nothing.   Flow: snapshot -> [views] -> admin
Loop time becomes wall time here, because the views are for people.
"""

from collections.abc import Mapping
from typing import Final

from gateway.control import (
    ChangeView,
    DeviceView,
    DrainView,
    InstanceView,
    LeaseView,
    LostView,
    ModelView,
    VersionView,
    WorkerView,
)
from gateway.fleet.adoption import taken
from gateway.fleet.drain import ENDED, Drain, Lost
from gateway.fleet.history import Entry
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.rollout_evidence import running
from gateway.fleet.slots import NO_SLOT
from gateway.fleet.snapshot import FleetSnapshot, Stage
from gateway.fleet.table import ready_in_s, reason, standing
from gateway.records import Health, Intent
from gateway.rollout.machine import Phase
from gateway.state.shared import BEAT_NS, CONNECTIONS, Segment
from sluicegate.v1.states import State

NS = 1_000_000_000
WAITING: Final = frozenset({Stage.FAILED, Stage.BACKING_OFF, Stage.CRASH_LOOP, Stage.QUEUED})
Shares = Mapping[tuple[str, str], float]  # observed lately, by (model, version)


def instance(fleet: FleetSnapshot, seen: Seen, segment: Segment, now: float) -> InstanceView:
    status = seen.status
    launched = fleet.launches.get(seen.name)
    stands = standing(fleet, seen, now, fleet.sent(seen.model))
    return InstanceView(
        id=seen.name,
        incarnation=seen.incarnation,
        model=seen.model,
        version=seen.version,
        http=seen.http,
        grpc=seen.grpc,
        state=stands.state,
        phase=stands.phase,
        progress=stands.progress,
        reason=stands.reason,
        intent=seen.intent.value,
        health=seen.opinion.health.value,
        weight=fleet.weight_of(seen),
        limit=fleet.limit_of(seen),
        in_flight=_elsewhere(fleet, seen.name)
        + (segment.in_flight(seen.slot) if seen.slot != NO_SLOT else 0),
        active_requests=seen.active_requests,
        queue_depth=status.queue_depth if status else 0,
        tokens_per_s=status.tokens_per_s if status else 0.0,
        batch_utilisation_ratio=status.batch_utilisation_ratio if status else 0.0,
        routable=fleet.routable(seen),
        device=_device(seen),
        origin=seen.origin.value,
        since=fleet.wall + seen.since,
        ready_in_s=ready_in_s(fleet, seen, now),
        restarts=launched.restarts if launched else 0,
        pid=max(launched.pid, 0) if launched else 0,
        load_ms=status.load_ms if status else 0.0,
        compile_ms=status.compile_ms if status else 0.0,
        warmup_ms=status.warmup_ms if status else 0.0,
    )


def _elsewhere(fleet: FleetSnapshot, name: str) -> int:
    """Requests of the predecessor, as it says."""
    return (fleet.elsewhere or {}).get(name, 0)


def _device(seen: Seen) -> DeviceView | None:
    device = seen.status.device if seen.status else None
    if device is None:
        return None
    return DeviceView(
        kind=device.kind,
        id=device.id,
        memory_total_bytes=device.memory_total_bytes,
        memory_used_bytes=device.memory_used_bytes,
        memory_reserved_bytes=device.memory_reserved_bytes,
        memory_free_bytes=device.memory_free_bytes,
        memory_peak_bytes=device.memory_peak_bytes,
    )


def models(fleet: FleetSnapshot, segment: Segment, observed: Shares) -> tuple[ModelView, ...]:
    return tuple(
        ModelView(
            name=model.name,
            policy=model.policy,
            limit=model.limit,
            waiting=segment.waiting(fleet.book.sections.get(model.name, 0)),
            queue_max=model.queue_max,
            versions=_versions(fleet, model.name, observed),
        )
        for model in fleet.settings.model
    )


def _versions(fleet: FleetSnapshot, model: str, observed: Shares) -> tuple[VersionView, ...]:
    weights, sizes, blocked = fleet.sent(model), fleet.replicas(model), fleet.blocked(model)
    groups: dict[str, list[Seen]] = {version: [] for version in weights}
    for seen in fleet.instances.values():
        if seen.model == model:
            groups.setdefault(seen.version, []).append(seen)
    routable = {
        version: sum(fleet.routable(seen) for seen in group) for version, group in groups.items()
    }
    shared = sum(weights[version].weight for version, count in routable.items() if count)
    return tuple(
        VersionView(
            version=version,
            weight=weights[version].weight if version in weights else 0.0,
            origin="run-time" if version in weights and weights[version].overridden else "file",
            file_weight=(
                weights[version].file
                if version in weights and weights[version].overridden
                else None
            ),
            effective=weights[version].weight / shared if routable[version] and shared else 0.0,
            observed=observed.get((model, version), 0.0),
            blocked=version in blocked,
            replicas=sizes.get(version, 0),
            instances=len(group),
            ready=sum(seen.state is State.READY for seen in group),
            routable=routable[version],
        )
        for version, group in groups.items()
    )


def drain(fleet: FleetSnapshot, one: Drain, segment: Segment, now: float) -> DrainView:
    seen = fleet.instances.get(one.name)
    running = one.phase not in ENDED
    held = segment.in_flight(one.slot) if one.slot != NO_SLOT and running else 0
    held += _elsewhere(fleet, one.name) if running else 0
    return DrainView(
        instance=one.name,
        phase=one.phase.value,
        stop=one.stop,
        held=held,
        active_requests=seen.active_requests if seen else 0,
        began=fleet.wall + one.began,
        deadline=fleet.wall + one.deadline,
        remaining_s=max(0.0, one.deadline - now) if running else 0.0,
        ended=fleet.wall + one.ended if one.ended is not None else None,
        lost=tuple(_lost(lost) for lost in one.lost),
    )


def _lost(lost: Lost) -> LostView:
    return LostView(
        request_id=f"{lost.request.request_id:016x}",
        client_request_id=lost.request.client_request_id,
        model=lost.model,
        version=lost.version,
        instance=lost.instance,
        stage=lost.request.stage,
        age_s=lost.request.age_s,
        bytes=lost.request.bytes,
        cause=lost.cause,
    )


def change(one: Entry) -> ChangeView:
    return ChangeView(one.id, one.at, one.by, one.kind, one.subject, one.text, one.revision)


def leases(fleet: FleetSnapshot, segment: Segment, now: float) -> tuple[LeaseView, ...]:
    """Every request in flight and every one that has no instance yet, oldest first. A row without a
    process holds none."""
    found = []
    models = {section: model for model, section in fleet.book.sections.items()}
    now_ns = int(now * NS)
    for worker in fleet.workers.values():
        for lease in segment.leases(worker.row):
            holder = fleet.book.holders.get(lease.slot)
            found.append(
                LeaseView(
                    request_id=f"{lease.request_id:016x}",
                    client_request_id=lease.client_request_id,
                    model=holder.model if holder else models.get(lease.section, ""),
                    version=holder.version if holder else "",
                    instance=holder.instance if holder else "",
                    incarnation=holder.incarnation if holder else "",
                    connection=lease.connection,
                    stage=lease.stage.name.lower(),
                    age_s=max(0, now_ns - lease.start_ns) / NS,
                    bytes=lease.bytes,
                    worker=worker.pid,
                )
            )
    return tuple(sorted(found, key=lambda lease: -lease.age_s))


def workers(fleet: FleetSnapshot, segment: Segment, now: float) -> tuple[WorkerView, ...]:
    held: dict[int, int] = {}
    for worker in fleet.workers.values():
        for lease in segment.leases(worker.row):
            if lease.slot != NO_SLOT:
                held[lease.row] = held.get(lease.row, 0) + 1
    return tuple(
        WorkerView(
            index=worker.index,
            pid=worker.pid,
            generation=worker.acked,
            connections=segment.cells[segment.base(worker.row) + CONNECTIONS],
            in_flight=held.get(worker.row, 0),
            beat_age_s=max(0.0, now - segment.cells[segment.base(worker.row) + BEAT_NS] / NS),
            compiled=worker.compiled,
        )
        for worker in sorted(fleet.workers.values(), key=lambda one: (one.index, one.row))
    )


def data_plane(fleet: FleetSnapshot) -> str:
    """Whether the workers run compiled code, as they say themselves."""
    said = {worker.compiled for worker in fleet.workers.values()} - {None}
    if len(said) == 2:
        return "mixed"
    return "unknown" if not said else "compiled" if said == {True} else "interpreted"


def problems(fleet: FleetSnapshot) -> tuple[str, ...]:
    """Sentences that an operator should read."""
    found = [f"config.toml was not taken: {problem}" for problem in fleet.refused]
    for model in fleet.settings.model:
        group = [seen for seen in fleet.instances.values() if seen.model == model.name]
        if not any(fleet.routable(seen) for seen in group):
            found.append(f"{model.name}: no instance can take a request")
    for seen in fleet.instances.values():
        if fleet.model(seen.model) is None:
            found.append(f"{seen.name}: config.toml names no model {seen.model}")
        elif _ails(fleet, seen):
            why = reason(fleet, seen, fleet.sent(seen.model))
            found.append(f"{seen.name}: {why or 'it gives no reason'}")
    for row in fleet.settings.instance:
        other = fleet.instances.get(row.id)
        if other is not None and other.origin is not Origin.CONFIG:
            found.append(taken(other))
        elif other is None:
            found.append(f"{row.id} of config.toml is not there: reload")
    for rollout, _, watch in running(fleet):
        if rollout.phase is Phase.CHECKING_CAPACITY and watch.said:
            found.append(f"rollout {rollout.id} is {watch.said}")
    waits = ", ".join(sorted(fleet.awaited))
    if waits:
        found.append(f"no table is published before these have answered: {waits}")
    return tuple(found)


def _ails(fleet: FleetSnapshot, seen: Seen) -> bool:
    """Whether it is not as it should be. One that was told to stop is, whatever it answers."""
    launched = fleet.launches.get(seen.name)
    if launched is not None and launched.reason and launched.stage in WAITING:
        return True
    if seen.mismatch:
        return True
    bad = seen.opinion.health not in {Health.GOOD, Health.UNKNOWN} or seen.state is State.ERROR
    return bad and seen.intent is not Intent.STOP
