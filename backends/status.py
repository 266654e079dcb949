"""What an instance knows of itself -> the message that says it.

Floor 1, pure.
One function builds every InstanceStatus: polls, watches and beats cannot disagree.
"""

from dataclasses import dataclass, replace
from typing import Final

from backends.lifecycle import Standing
from backends.readings import Readings
from sluicegate.v1 import lifecycle_pb2 as wire

# Before there is an executor to read from.
NOTHING_YET: Final = Readings(0, 0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who it is and where it can be reached; none of it changes once the ports are bound."""

    instance_id: str
    incarnation: str  # opaque; another at every start
    model: str
    version: str
    http_address: str = ""  # host:port
    grpc_address: str = ""

    def at(self, http_address: str, grpc_address: str) -> "Identity":
        return replace(self, http_address=http_address, grpc_address=grpc_address)


@dataclass(frozen=True, slots=True)
class Memory:
    """The device's memory; 0 where it cannot be known."""

    kind: str  # cpu | gpu | ascend
    name: str  # in [[device]] of the gateway's config.toml
    total_bytes: int = 0
    free_bytes: int = 0
    peak_bytes: int = 0  # the most that this process held, if that is known


@dataclass(frozen=True, slots=True)
class Loads:
    """How long the way to READY took, by what it was spent on."""

    load_ms: float
    compile_ms: float
    warmup_ms: float
    check_ms: float = 0.0  # of what was looked at before, fetching included


@dataclass(frozen=True, slots=True)
class Held:
    """The gate's counts."""

    in_flight: int
    rejected_total: int
    slots: int  # requests it can run at once


def build(
    identity: Identity,
    standing: Standing,
    held: Held,
    readings: Readings,
    memory: Memory,
    loads: Loads,
) -> wire.InstanceStatus:
    return wire.InstanceStatus(
        instance_id=identity.instance_id,
        incarnation=identity.incarnation,
        sequence=standing.sequence,
        model=identity.model,
        version=identity.version,
        http_address=identity.http_address,
        grpc_address=identity.grpc_address,
        state=wire.State.ValueType(standing.state),
        phase=wire.Phase.ValueType(standing.phase),
        progress=standing.progress,
        reason=standing.reason,
        active_requests=held.in_flight,
        queue_depth=readings.queue_depth,
        queue_wait_ms=readings.queue_wait_ms,
        batch_utilisation_ratio=readings.batch_utilisation_ratio,
        last_latency_ms=readings.last_latency_ms,
        tokens_per_s=readings.tokens_per_s,
        served_total=readings.served_total,
        progress_total=readings.progress_total,
        rejected_total=held.rejected_total,
        max_concurrency=held.slots,
        prompt_tokens_total=readings.prompt_tokens_total,
        completion_tokens_total=readings.completion_tokens_total,
        device=_device(memory, readings),
        load_ms=loads.load_ms,
        compile_ms=loads.compile_ms,
        warmup_ms=loads.warmup_ms,
    )


def _device(memory: Memory, readings: Readings) -> wire.Device:
    return wire.Device(
        kind=memory.kind,
        id=memory.name,
        memory_total_bytes=memory.total_bytes,
        memory_used_bytes=readings.memory_bytes,
        memory_reserved_bytes=readings.memory_bytes,  # the cache is allocated up front
        memory_free_bytes=memory.free_bytes,
        # What was read between two steps, and what the system saw between two readings.
        memory_peak_bytes=max(readings.memory_peak_bytes, memory.peak_bytes),
    )
