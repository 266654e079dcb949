"""Every field of the message comes from where it should."""

from backends.lifecycle import Standing
from backends.readings import Readings
from backends.status import NOTHING_YET, Held, Identity, Loads, Memory, build
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1.states import Phase, State

IDENTITY = Identity("m-1-0", "life-1", "m", "1").at("10.0.0.1:8000", "10.0.0.1:9000")
STANDING = Standing("m-1-0", State.DRAINING, Phase.DRAINING, 100.0, "asked", sequence=9)
# Different numbers everywhere, so that no two fields can be swapped unnoticed.
READINGS = Readings(1, 2, 3.0, 0.4, 5.0, 6.0, 7, 8, 9, 10, 11, 12)


def test_everything_an_instance_knows_is_in_its_status() -> None:
    status = build(
        IDENTITY,
        STANDING,
        Held(in_flight=21, rejected_total=22, slots=23),
        READINGS,
        Memory("cpu", "cpu0", total_bytes=31, free_bytes=32),
        Loads(41.0, 42.0, 43.0),
    )
    assert status == wire.InstanceStatus(
        instance_id="m-1-0",
        incarnation="life-1",
        sequence=9,
        model="m",
        version="1",
        http_address="10.0.0.1:8000",
        grpc_address="10.0.0.1:9000",
        state=wire.DRAINING,
        phase=wire.PHASE_DRAINING,
        progress=100.0,
        reason="asked",
        active_requests=21,
        queue_depth=2,
        queue_wait_ms=3.0,
        batch_utilisation_ratio=0.4,
        last_latency_ms=6.0,
        tokens_per_s=5.0,
        served_total=8,
        progress_total=7,
        rejected_total=22,
        max_concurrency=23,
        prompt_tokens_total=9,
        completion_tokens_total=10,
        device=wire.Device(
            kind="cpu",
            id="cpu0",
            memory_total_bytes=31,
            memory_used_bytes=11,
            memory_reserved_bytes=11,
            memory_free_bytes=32,
            memory_peak_bytes=12,
        ),
        load_ms=41.0,
        compile_ms=42.0,
        warmup_ms=43.0,
    )


def test_before_there_is_a_model_every_count_is_nothing() -> None:
    status = build(
        IDENTITY, Standing("m-1-0"), Held(0, 0, 0), NOTHING_YET, Memory("cpu", ""), Loads(0, 0, 0)
    )
    assert (status.state, status.phase) == (wire.INITIALIZING, wire.STARTING)
    assert (status.max_concurrency, status.served_total, status.device.memory_used_bytes) == (
        0,
    ) * 3
