"""Lifecycle over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from backends.service import GrpcServer, follow
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from sluicegate.v1.states import Phase
from tests.backends.rig import Rig, ready_rig, rig

NEVER_MS = 600_000  # a watch that speaks only of changes, as far as a test is concerned
TIMEOUT_S = 300.0


@dataclass
class Called:
    rig: Rig
    channel: grpc.aio.Channel
    stub: "stubs.LifecycleAsyncStub"  # exists for the type checker only


async def _called(made: Rig) -> AsyncIterator[Called]:
    server = GrpcServer(made.facts, "127.0.0.1", 0, default_grace_s=30.0, now=lambda: made.now)
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield Called(made, channel, stubs.LifecycleStub(channel))
    await server.close()


@pytest.fixture
async def loading() -> AsyncIterator[Called]:
    async for called in _called(rig()):
        yield called


@pytest.fixture
async def ready() -> AsyncIterator[Called]:
    async with ready_rig() as made:
        async for called in _called(made):
            yield called


async def test_status_is_answered_from_the_first_moment(loading: Called) -> None:
    status = await loading.stub.GetStatus(wire.GetStatusRequest(), timeout=TIMEOUT_S)
    assert (status.instance_id, status.state) == ("m-1-0", wire.INITIALIZING)
    assert status == loading.rig.facts.status()


async def test_a_drain_is_answered_and_repeated_with_what_is_left(ready: Called) -> None:
    first = await ready.stub.Drain(wire.DrainRequest(grace_s=20, reason="deploy"))
    ready.rig.now = 5.0
    second = await ready.stub.Drain(wire.DrainRequest(grace_s=99))
    assert (first.already, first.remaining_s, first.status.state) == (False, 20.0, wire.DRAINING)
    assert (second.already, second.remaining_s) == (True, 15.0)
    assert second.status.reason == "deploy; nothing is in flight"


async def test_an_order_without_a_grace_gets_the_configured_one(ready: Called) -> None:
    assert (await ready.stub.Drain(wire.DrainRequest())).remaining_s == 30.0
    await ready.stub.Stop(wire.StopRequest())
    assert ready.rig.life.stop_at == 30.0


async def test_resume_gives_the_instance_back(ready: Called) -> None:
    await ready.stub.Drain(wire.DrainRequest())
    assert (await ready.stub.Resume(wire.ResumeRequest())).status.state == wire.READY
    assert (await ready.stub.Resume(wire.ResumeRequest())).status.state == wire.READY


async def test_resume_after_a_stop_is_a_failed_precondition(ready: Called) -> None:
    await ready.stub.Stop(wire.StopRequest(grace_s=10))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ready.stub.Resume(wire.ResumeRequest())
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "cannot be taken back" in (caught.value.details() or "")


async def test_what_is_still_loading_cannot_be_drained(loading: Called) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await loading.stub.Drain(wire.DrainRequest())
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_stop_answers_at_once_and_a_forced_one_leaves_no_grace(ready: Called) -> None:
    ready.rig.now = 7.0
    reply = await ready.stub.Stop(wire.StopRequest(grace_s=10))
    assert (reply.status.state, ready.rig.life.stop_at) == (wire.DRAINING, 17.0)
    await ready.stub.Stop(wire.StopRequest(grace_s=10, force=True))
    assert ready.rig.life.stop_at == 7.0


async def test_a_watch_sends_each_change_and_ends_with_the_life(ready: Called) -> None:
    watch: Any = ready.stub.WatchStatus(
        wire.WatchStatusRequest(interval_ms=NEVER_MS), timeout=TIMEOUT_S
    )
    states = [(await _next(watch)).state]
    ready.rig.life.drain(30.0, "asked", 0.0)
    states.append((await _next(watch)).state)
    ready.rig.life.stopped("done", 1.0)
    while (status := await watch.read()) is not grpc.aio.EOF:
        states.append(status.state)
    assert states == [wire.READY, wire.DRAINING, wire.STOPPED]


async def test_a_watch_that_is_behind_gets_the_latest_and_never_an_older_one(
    loading: Called,
) -> None:
    watch = loading.stub.WatchStatus(
        wire.WatchStatusRequest(interval_ms=NEVER_MS), timeout=TIMEOUT_S
    )
    await _next(watch)
    for step in range(100):
        loading.rig.life.progress(Phase.COMPILING, step / 100, f"step {step}", 0.0)
    loading.rig.life.fail("broken", 0.0)
    sequences = []
    while True:
        status = await _next(watch)
        sequences.append(status.sequence)
        if status.state == wire.ERROR:
            break
    assert sequences == sorted(set(sequences))
    assert len(sequences) < 10


async def test_a_watch_also_speaks_without_a_change(ready: Called) -> None:
    watch = ready.stub.WatchStatus(wire.WatchStatusRequest(interval_ms=1), timeout=TIMEOUT_S)
    sequences = {(await _next(watch)).sequence for _ in range(3)}
    assert len(sequences) == 1


async def test_a_watch_that_is_given_up_is_forgotten(ready: Called) -> None:
    moments = follow(ready.rig.life, 600.0)
    await anext(moments)
    assert ready.rig.life.watchers == 1
    await moments.aclose()
    assert ready.rig.life.watchers == 0


async def test_a_change_during_the_last_send_is_not_lost(ready: Called) -> None:
    moments = follow(ready.rig.life, 600.0)
    await anext(moments)
    ready.rig.life.drain(30.0, "asked", 0.0)
    ready.rig.life.stopped("done", 0.0)
    async with asyncio.timeout(TIMEOUT_S):
        assert [None async for _ in moments] == [None]


async def test_health_is_serving_exactly_while_ready(ready: Called) -> None:
    health = health_pb2_grpc.HealthStub(ready.channel)
    serving = health_pb2.HealthCheckResponse.SERVING
    watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    seen = [(await _next(watch)).status]
    for service in ("", "sluicegate.v1.Lifecycle"):
        request = health_pb2.HealthCheckRequest(service=service)
        assert (await health.Check(request)).status == serving
    ready.rig.life.drain(30.0, "asked", 0.0)
    seen.append((await _next(watch)).status)
    assert seen == [serving, health_pb2.HealthCheckResponse.NOT_SERVING]


async def test_health_of_an_unknown_service_is_not_found(ready: Called) -> None:
    health = health_pb2_grpc.HealthStub(ready.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health.Check(health_pb2.HealthCheckRequest(service="other"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_an_address_that_is_taken_is_an_error_at_once(ready: Called) -> None:
    first = GrpcServer(ready.rig.facts, "127.0.0.1", 0, 30.0, lambda: 0.0)
    with pytest.raises(OSError, match="cannot listen on"):
        GrpcServer(ready.rig.facts, "127.0.0.1", first.port, 30.0, lambda: 0.0)
    await first.close()


async def _next(watch: Any) -> Any:
    message = await watch.read()
    assert message is not grpc.aio.EOF
    return message
