"""A front says READY of a server that it knows nothing of."""

import grpc

from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from tests.bench.lifecycle_front import Changing, fronted, served


async def test_each_address_has_a_front_that_says_ready_of_it() -> None:
    async with fronted(["127.0.0.1:1", "127.0.0.1:2"], "m") as instances:
        assert [one.http for one in instances] == ["127.0.0.1:1", "127.0.0.1:2"]
        assert len({one.name for one in instances}) == len({one.grpc for one in instances}) == 2
        for one in instances:
            async with grpc.aio.insecure_channel(one.grpc) as channel:
                said = await stubs.LifecycleStub(channel).GetStatus(wire.GetStatusRequest())
            assert said.state == wire.READY
            assert (said.instance_id, said.model, said.version) == (one.name, "m", "1")
            assert (said.http_address, said.grpc_address) == (one.http, one.grpc)


async def test_a_watch_says_it_at_once() -> None:
    async with (
        fronted(["127.0.0.1:1"], "m") as [one],
        grpc.aio.insecure_channel(one.grpc) as channel,
    ):
        watch = stubs.LifecycleStub(channel).WatchStatus(wire.WatchStatusRequest())
        async for said in watch:
            assert said.state == wire.READY
            break


async def test_orders_are_taken_and_change_nothing() -> None:
    async with (
        fronted(["127.0.0.1:1"], "m") as [one],
        grpc.aio.insecure_channel(one.grpc) as channel,
    ):
        stub = stubs.LifecycleStub(channel)
        assert (await stub.Drain(wire.DrainRequest(grace_s=1))).status.state == wire.READY
        assert (await stub.Resume(wire.ResumeRequest())).status.state == wire.READY
        assert (await stub.Stop(wire.StopRequest())).status.state == wire.READY


async def test_a_changing_front_tells_its_watchers_and_takes_orders() -> None:
    front = Changing("x", "127.0.0.1:1", "m", "2")
    async with (
        served(front) as one,
        grpc.aio.insecure_channel(one.grpc) as channel,
    ):
        stub = stubs.LifecycleStub(channel)
        watch = stub.WatchStatus(wire.WatchStatusRequest())
        told = list[tuple[str, int]]()
        async for said in watch:
            told.append((said.incarnation, said.state))
            match len(told):
                case 1:
                    front.say(wire.INITIALIZING, "next")
                case 2:
                    assert (await stub.Drain(wire.DrainRequest())).status.state == wire.DRAINING
                case 3:
                    assert (await stub.Resume(wire.ResumeRequest())).status.state == wire.READY
                case _:
                    break
    assert told == [
        ("1", wire.READY),
        ("next", wire.INITIALIZING),
        ("next", wire.DRAINING),
        ("next", wire.READY),
    ]
