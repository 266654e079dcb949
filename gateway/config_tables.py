"""The tables of config.toml: every key, its type, its range and its default.

Floor 1, pure.
`config.toml` in the repository documents the same keys at the same defaults; a test holds the two
together. What must fit between tables is in `config_crossed`.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.config_values import (
    Address,
    Bytes,
    Listen,
    Loopback,
    Name,
    PositiveSeconds,
    Ratio,
    Seconds,
    StoreUrl,
    Weight,
)

INSTANCES_MAX: Final = 1000  # slots of the segment, and some for those that have just ended


class Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Gateway(Table):
    listen: tuple[Listen, ...] = Field(("127.0.0.1:8080",), min_length=1, max_length=16)
    workers: int = Field(1, ge=0, le=64)  # 0: one per core
    default_model: str = ""
    head_max_bytes: int = Field(65_536, ge=1024, le=1 << 24)
    body_max_bytes: Bytes = 1 << 30
    route_body_max_bytes: Bytes = 64 << 20
    route_body_total_bytes: Bytes = 512 << 20
    replay_max_bytes: Bytes = 1 << 20
    replays_max: int = Field(2, ge=0, le=16)
    half_close: Literal["serve", "abort"] = "abort"
    shutdown_delay_s: Seconds = 0
    worker_stuck_s: PositiveSeconds = 5
    run_dir: str = "var/run"
    log_dir: str = "var/log"


class Timeouts(Table):
    connect_s: Seconds = 2
    first_byte_s: Seconds = 600
    idle_s: Seconds = 120
    total_s: Seconds = 0
    client_head_s: Seconds = 10
    client_body_idle_s: Seconds = 30
    client_idle_s: Seconds = 75
    pool_idle_s: Seconds = 4


class Admin(Table):
    listen: Loopback = "127.0.0.1:9901"


class Registry(Table):
    listen: Loopback = "127.0.0.1:9902"
    ttl_s: PositiveSeconds = 30
    beat_s: PositiveSeconds = 10


class Poll(Table):
    interval_s: PositiveSeconds = 1.0
    timeout_s: PositiveSeconds = 1.0
    failures: int = Field(3, ge=1, le=100)
    successes: int = Field(2, ge=1, le=100)
    stuck_s: PositiveSeconds = 30
    failed_requests: int = Field(10, ge=0, le=10_000)


class Drain(Table):
    grace_s: Seconds = 30
    kill_after_s: PositiveSeconds = 10


class Store(Table):
    url: StoreUrl = "sqlite:var/sluicegate.db"


class Repository(Table):
    root: str = "var/models"
    cache: str = "var/cache"


class Launch(Table):
    restart_min_s: PositiveSeconds = 1
    restart_max_s: PositiveSeconds = 60
    load_timeout_s: PositiveSeconds = 1800
    load_threads: int = Field(0, ge=0, le=1024)  # CPUs; 0: all
    load_nice: int = Field(0, ge=0, le=19)
    error_linger_s: Seconds = 30
    log_max_bytes: int = Field(16 << 20, ge=1 << 16, le=1 << 40)


class Recorder(Table):
    enabled: bool = False
    dir: str = Field("var/samples", min_length=1)
    ratio: Ratio = 0.01
    per_bucket: int = Field(16, ge=1, le=10_000)
    max_bytes: int = Field(4 << 20, ge=1 << 12, le=1 << 30)  # of a model's file
    redact: bool = True


class Device(Table):
    name: Name
    kind: Literal["cpu", "gpu", "ascend"] = "cpu"
    index: int = Field(0, ge=0, le=1023)  # which of its kind; of a cpu without meaning
    memory_gb: float = Field(gt=0, le=100_000, allow_inf_nan=False)


class Step(Table):
    """Of a rollout: this percent of the model's new requests, for at least so long."""

    weight: float = Field(gt=0, le=100, allow_inf_nan=False)
    hold_s: Seconds = 600
    requests_min: int = Field(100, ge=0, le=1_000_000_000)
    gate: bool = False  # true: waits for `promote` at its end


class Validation(Table):
    """Of a new version, before any real request reaches it."""

    samples: str = ""  # a JSONL file; "": none
    error_ratio_max: Ratio = 0
    latency_ratio_max: float = Field(2, ge=0, le=1000, allow_inf_nan=False)
    answers: Literal["off", "exact", "similar"] = "off"
    similarity: Ratio = 0.9
    concurrency: int = Field(2, ge=1, le=64)
    request_s: PositiveSeconds = 120
    timeout_s: PositiveSeconds = 600
    samples_max: int = Field(200, ge=1, le=100_000)
    memory_ratio_max: float = Field(1.2, ge=0, le=1000, allow_inf_nan=False)


class Rollout(Table):
    steps: tuple[Step, ...] = Field(
        (Step(weight=5), Step(weight=25), Step(weight=100)), min_length=1, max_length=100
    )
    ready_timeout_s: PositiveSeconds = 1800
    keep_old_s: Seconds = 600
    failure_limit: float = Field(0.05, gt=0, lt=1)
    false_alarm: float = Field(0.01, gt=0, lt=0.5)
    latency_ratio_max: float = Field(1.5, ge=0, le=1000, allow_inf_nan=False)
    ttft_ratio_max: float = Field(1.5, ge=0, le=1000, allow_inf_nan=False)
    at_rollback: Literal["finish", "cut"] = "finish"
    validation: Validation = Validation()


class Model(Table):
    name: Name
    weights: dict[Name, Weight] = Field(min_length=1)
    policy: Literal["least_loaded", "round_robin", "random", "affinity"] = "least_loaded"
    limit: int = Field(4, ge=1, le=1_000_000)
    queue_max: int = Field(64, ge=0, le=1_000_000)
    queue_timeout_s: Seconds = 30
    replayable: bool = False
    canary_fallback: bool = False
    pinnable: bool = False
    slow_start_s: Seconds = 0
    replicas: dict[Name, Annotated[int, Field(ge=0, le=1000)]] = Field(default_factory=dict)
    device: str = ""  # name of a [[device]]; "": any of the first one's kind
    memory_gb: float = Field(0, ge=0, le=100_000, allow_inf_nan=False)  # 0: by the manifest
    threads: int = Field(0, ge=0, le=1024)  # of a launched instance; 0: all cores
    warmup_rounds: int = Field(3, ge=0, le=1000)
    warmup_baseline_ms: float = Field(0, ge=0, le=1_000_000, allow_inf_nan=False)  # 0: none
    prefix_reuse: bool = True  # of a launched instance
    command: tuple[str, ...] = ()  # (): `sluicegate instance` on the snapshot
    rollout: Rollout = Rollout()


class Instance(Table):
    id: Name
    model: str
    version: str
    http: Address
    grpc: Address
    weight: Weight = 1
    limit: int = Field(0, ge=0, le=1_000_000)  # 0: the model's


class Webhook(Table):
    name: Name
    url: str
    events: tuple[Literal["rollout", "weights", "drain", "instance", "config", "lease"], ...] = (
        Field(("rollout",), min_length=1)
    )
    secret_env: str = ""  # name of an environment variable
    secret_file: str = ""
    ca_file: str = ""  # "": the system's
    timeout_s: PositiveSeconds = 10
    retries: int = Field(8, ge=0, le=100)
