"""Keepalive on real connections: the options of both sides, on a clock that is fifty times as fast.

The names are what is tested: grpcio ignores those that it does not know, without a word.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from backends.beat import OPTIONS as BEAT
from backends.service import OPTIONS as INSTANCE
from gateway.controlplane.channels import OPTIONS as POLL
from gateway.controlplane.enrol import OPTIONS as REGISTRY
from sluicegate.v1 import lifecycle_pb2 as pb
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from tests.gateway.controlplane.lifecycle import FakeLifecycle
from tests.gateway.controlplane.wiretap import tapped

Options = Sequence[tuple[str, Any]]
PATIENCE_S = 300.0
NOTICED_S = (
    15.0  # a frozen peer shows in 0.3 s; without the timeout's right name, after 20 s or more
)


def faster(options: Options, ping_timeout_ms: int = 60_000) -> list[tuple[str, Any]]:
    """Pings come faster. How long an answer may take is left to the test that misses one: on a busy
    machine the answer of somebody who is well can be late."""
    times = {"grpc.keepalive_time_ms": 200, "grpc.http2.ping_timeout_ms": ping_timeout_ms}
    return [(name, times.get(name, value)) for name, value in options]


@pytest.mark.parametrize(
    ("client", "server"), [(POLL, INSTANCE), (BEAT, REGISTRY)], ids=["poll", "beat"]
)
async def test_pings_on_an_idle_connection_are_answered_and_never_too_many(
    client: Options, server: Options
) -> None:
    instance = FakeLifecycle(options=server)
    async with (
        tapped(await instance.start()) as (address, tap),
        grpc.aio.insecure_channel(address, options=faster(client)) as channel,
    ):
        stub = stubs.LifecycleStub(channel)
        async with asyncio.timeout(PATIENCE_S):
            await stub.GetStatus(pb.GetStatusRequest())
            await tap.pings_until(tap.pings + 6)
            await stub.GetStatus(pb.GetStatusRequest())
        assert (tap.goaways, tap.connections) == (0, 1)
    await instance.stop()


async def test_a_server_that_permits_no_pings_would_have_hung_up() -> None:
    """What the test above would see, if the server's options did nothing."""
    instance = FakeLifecycle()
    async with (
        tapped(await instance.start()) as (address, tap),
        grpc.aio.insecure_channel(address, options=faster(POLL)) as channel,
    ):
        stub = stubs.LifecycleStub(channel)
        async with asyncio.timeout(PATIENCE_S):
            await stub.GetStatus(pb.GetStatusRequest())
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        assert tap.goaways == 1
    await instance.stop()


async def test_a_frozen_peer_ends_the_stream_to_it() -> None:
    instance = FakeLifecycle(options=INSTANCE)
    async with (
        tapped(await instance.start()) as (address, tap),
        grpc.aio.insecure_channel(address, options=faster(POLL, 300)) as channel,
    ):
        watch = stubs.LifecycleStub(channel).WatchStatus(pb.WatchStatusRequest())
        instance.become(pb.DRAINING)
        async with asyncio.timeout(PATIENCE_S):
            assert await watch.read()
        tap.flowing.clear()
        async with asyncio.timeout(NOTICED_S):
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await watch.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        tap.flowing.set()
    await instance.stop()
