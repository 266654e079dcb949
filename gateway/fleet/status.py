"""What an instance says of itself, as a frozen record.

Floor 0, pure.   Flow: poll -> [status] -> registry -> table
The twin of `InstanceStatus` in lifecycle.proto: the shells translate, nothing below them sees gRPC.
"""

from dataclasses import dataclass

from sluicegate.v1.states import Phase, State


@dataclass(frozen=True, slots=True)
class Device:
    """The device an instance computes on, as it sees it."""

    kind: str  # cpu | gpu | ascend
    id: str
    memory_total_bytes: int = 0
    memory_used_bytes: int = 0
    memory_reserved_bytes: int = 0
    memory_free_bytes: int = 0
    memory_peak_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """One reading of one instance."""

    instance_id: str
    incarnation: str  # opaque; changes at every start
    sequence: int
    model: str
    version: str
    http: str  # host:port
    grpc: str
    state: State
    phase: Phase
    progress: float = 0.0  # percent
    reason: str = ""
    active_requests: int = 0
    queue_depth: int = 0
    queue_wait_ms: float = 0.0
    batch_utilisation_ratio: float = 0.0
    last_latency_ms: float = 0.0
    tokens_per_s: float = 0.0
    served_total: int = 0
    progress_total: int = 0
    rejected_total: int = 0
    max_concurrency: int = 0
    prompt_tokens_total: int = 0
    completion_tokens_total: int = 0
    device: Device | None = None
    load_ms: float = 0.0
    compile_ms: float = 0.0
    warmup_ms: float = 0.0
