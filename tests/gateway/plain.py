"""Small tables for tests: one model `m`, one version `1`, and what a test changes about them."""

from dataclasses import replace
from typing import Any, Final

from gateway.records import (
    Bounds,
    InstanceName,
    ModelName,
    Policy,
    Route,
    RouteTable,
    Sampling,
    Target,
    Timeouts,
    Version,
    VersionName,
)

BOUNDS: Final = Bounds(
    head_max_bytes=65_536,
    body_max_bytes=1 << 30,
    route_body_max_bytes=64 << 20,
    route_body_total_bytes=512 << 20,
    replay_max_bytes=1 << 20,
    replays_max=2,
    half_close="abort",
)
TIMEOUTS: Final = Timeouts(
    connect_s=2,
    first_byte_s=600,
    idle_s=120,
    total_s=0,
    client_head_s=10,
    client_body_idle_s=30,
    client_idle_s=75,
    pool_idle_s=4,
)

NO_SAMPLES: Final = Sampling(0, True)


def target(slot: int, port: int, limit: int = 1000, weight: float = 1.0) -> Target:
    name = InstanceName(f"i{slot}")
    return Target(slot, name, f"life-{slot}", "127.0.0.1", port, weight, limit, 0)


def version(
    *targets: Target, name: str = "1", weight: float = 100.0, blocked: bool = False
) -> Version:
    return Version(VersionName(name), weight, blocked, targets)


def route(*versions: Version, model: str = "m", **changes: Any) -> Route:
    plain = Route(
        model=ModelName(model),
        section=1,
        created_s=1_700_000_000,
        versions=versions,
        standings=(),
        policy=Policy.LEAST_LOADED,
        queue_max=64,
        queue_timeout_s=30,
        replayable=False,
        pinnable=False,
        slow_start_s=0,
        canary_fallback=False,
        canary=None,
        stable=None,
    )
    return replace(plain, **changes)


def table(
    generation: int,
    *routes: Route,
    default: str = "m",
    bounds: Bounds = BOUNDS,
    timeouts: Timeouts = TIMEOUTS,
    sampling: Sampling = NO_SAMPLES,
) -> RouteTable:
    return RouteTable(generation, routes, ModelName(default), bounds, timeouts, sampling)
