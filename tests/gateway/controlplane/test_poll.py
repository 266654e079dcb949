"""Real gRPC on loopback; events are awaited, never waited for by the clock."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from gateway.config import Poll
from gateway.controlplane.channels import Channels, Garbled, reading
from gateway.controlplane.poll import Poller
from gateway.fleet.events import Event, Observed, PollFailed, Source
from sluicegate.v1 import lifecycle_pb2 as pb
from sluicegate.v1.states import State
from tests.gateway.controlplane.lifecycle import FakeLifecycle

NEVER_S = 3600.0  # an interval that does not come: every poll of these tests is asked for


class Bench:
    def __init__(self, interval_s: float = NEVER_S, timeout_s: float = 5.0) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.instance = FakeLifecycle()
        self.channels = Channels()
        self.rules = Poll(interval_s=interval_s, timeout_s=timeout_s)
        self.poller = Poller(
            self.channels,
            self.events.put_nowait,
            lambda: self.rules,
            lambda name: (70, 7),
            lambda name: "",
            random.Random(1),
        )

    async def next(self, source: Source | None = None) -> Event:
        async with asyncio.timeout(60):
            while True:
                event = await self.events.get()
                if source is None or getattr(event, "source", None) is source:
                    return event

    async def close(self) -> None:
        await self.poller.close()
        await self.channels.close()
        await self.instance.stop()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()


async def test_a_poll_brings_the_whole_status_with_what_the_segment_says(bench: Bench) -> None:
    address = await bench.instance.start()
    bench.poller.follow("a", address)
    event = await bench.next(Source.POLL)
    assert isinstance(event, Observed)
    assert (event.name, event.grpc, event.host) == ("a", address, "127.0.0.1")
    assert (event.received_bytes, event.held) == (70, 7)
    assert event.status.state is State.READY


async def test_a_change_comes_by_the_stream_without_a_poll(bench: Bench) -> None:
    bench.poller.follow("a", await bench.instance.start())
    await bench.next(Source.POLL)
    bench.instance.become(pb.DRAINING)
    event = await bench.next(Source.WATCH)
    assert isinstance(event, Observed)
    assert event.status.state is State.DRAINING
    assert bench.instance.calls == ["poll"]


async def test_poll_now_does_not_wait_for_the_interval(bench: Bench) -> None:
    bench.poller.follow("a", await bench.instance.start())
    await bench.next(Source.POLL)
    bench.poller.poll_now("a")
    await bench.next(Source.POLL)
    assert bench.instance.calls == ["poll", "poll"]


async def test_without_a_stream_it_is_polled_only(bench: Bench) -> None:
    bench.instance.watchable = False
    bench.poller.follow("a", await bench.instance.start())
    await bench.next(Source.POLL)
    bench.poller.poll_now("a")
    await bench.next(Source.POLL)


async def test_a_refused_connection_fails_at_once_and_is_not_slow(bench: Bench) -> None:
    address = await bench.instance.start()
    await bench.instance.stop()
    bench.poller.follow("a", address)
    event = await bench.next()
    assert isinstance(event, PollFailed)
    assert (event.slow, event.received_bytes, event.held) == (False, 70, 7)
    assert event.reason.startswith("poll: unavailable")


async def test_no_answer_within_the_limit_is_slow() -> None:
    bench = Bench(timeout_s=0.05)
    bench.poller.follow("a", await bench.instance.start())
    await bench.next(Source.POLL)  # READY: the short limit holds from now on
    bench.instance.hang = True
    bench.poller.poll_now("a")
    event = await bench.next()
    assert isinstance(event, PollFailed)
    assert event.slow
    await bench.close()


async def test_a_status_that_could_do_harm_is_a_failed_poll(bench: Bench) -> None:
    bench.instance.status.tokens_per_s = float("nan")
    bench.poller.follow("a", await bench.instance.start())
    event = await bench.next()
    assert isinstance(event, PollFailed)
    assert "tokens_per_s must be a finite number" in event.reason


async def test_an_unfollowed_instance_is_asked_nothing_more(bench: Bench) -> None:
    bench.poller.follow("a", await bench.instance.start())
    await bench.next(Source.POLL)
    bench.poller.unfollow("a")
    bench.poller.poll_now("a")
    bench.instance.become(pb.DRAINING)
    other = FakeLifecycle("b")
    bench.poller.follow("b", await other.start())
    assert getattr(await bench.next(), "name", "") == "b"
    assert bench.instance.calls == ["poll"]
    await other.stop()


async def test_a_name_is_resolved_and_an_unknown_one_is_a_failed_poll() -> None:
    bench = Bench()
    poller = Poller(
        bench.channels,
        bench.events.put_nowait,
        lambda: bench.rules,
        lambda name: (0, 0),
        lambda name: "localhost:8000",
        random.Random(1),
    )
    poller.follow("a", await bench.instance.start())
    event = await bench.next(Source.POLL)
    assert isinstance(event, Observed)
    assert event.host in {"127.0.0.1", "::1"}
    await poller.close()
    await bench.close()


@pytest.mark.parametrize(
    "message",
    [
        pb.InstanceStatus(instance_id="a", incarnation="x", phase=pb.SERVING),
        pb.InstanceStatus(instance_id="a", incarnation="x", state=pb.READY),
        pb.InstanceStatus(instance_id="a", state=pb.READY, phase=pb.SERVING),
    ],
    ids=["no state", "no phase", "no incarnation"],
)
def test_a_status_that_means_nothing_is_refused(message: pb.InstanceStatus) -> None:
    with pytest.raises(Garbled):
        reading(message)
