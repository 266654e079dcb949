"""Route tables for property tests."""

from hypothesis import strategies as st

from gateway.records import (
    Bounds,
    InstanceName,
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

NAMES = st.text("abcdefghij-._0123456789", min_size=1, max_size=12)
SHARES = st.floats(0, 1e6, allow_nan=False)
SECONDS = st.floats(0, 1e4, allow_nan=False)
COUNTS = st.integers(0, 1 << 50)

TARGETS = st.builds(
    Target,
    slot=st.integers(0, 1023),
    instance=NAMES.map(InstanceName),
    incarnation=NAMES,
    host=st.just("127.0.0.1"),
    port=st.integers(1, 65535),
    weight=SHARES,
    limit=st.integers(1, 1000),
    ready_since_ns=COUNTS,
)
VERSIONS = st.builds(
    Version,
    name=NAMES.map(VersionName),
    weight=SHARES,
    blocked=st.booleans(),
    targets=st.lists(TARGETS, max_size=4).map(tuple),
)
STANDINGS = st.builds(
    Standing,
    instance=NAMES.map(InstanceName),
    version=NAMES.map(VersionName),
    state=NAMES,
    phase=NAMES,
    progress=st.floats(0, 100),
    reason=st.text(max_size=30),
    ready_in_s=st.floats(-1, 1e4),
)
ROUTES = st.builds(
    Route,
    model=NAMES.map(ModelName),
    section=st.integers(1, 255),
    created_s=COUNTS,
    versions=st.lists(VERSIONS, max_size=3, unique_by=lambda one: one.name).map(tuple),
    standings=st.lists(STANDINGS, max_size=3).map(tuple),
    policy=st.sampled_from(Policy),
    queue_max=st.integers(0, 1000),
    queue_timeout_s=SECONDS,
    replayable=st.booleans(),
    pinnable=st.booleans(),
    slow_start_s=SECONDS,
    canary_fallback=st.booleans(),
    canary=st.none() | NAMES.map(VersionName),
    stable=st.none() | NAMES.map(VersionName),
)
BOUNDS = st.builds(
    Bounds,
    head_max_bytes=COUNTS,
    body_max_bytes=COUNTS,
    route_body_max_bytes=COUNTS,
    route_body_total_bytes=COUNTS,
    replay_max_bytes=COUNTS,
    replays_max=st.integers(0, 16),
    half_close=st.sampled_from(["serve", "abort"]),
)
TIMEOUTS = st.builds(Timeouts, *[SECONDS] * 8)


def tables() -> st.SearchStrategy[RouteTable]:
    return st.builds(
        RouteTable,
        generation=COUNTS,
        routes=st.lists(ROUTES, max_size=3).map(tuple),
        default_model=NAMES.map(ModelName),
        bounds=BOUNDS,
        timeouts=TIMEOUTS,
        sampling=st.builds(Sampling, ratio=st.floats(0, 1), redact=st.booleans()),
    )
