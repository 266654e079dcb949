"""Real gRPC on loopback; events are awaited, never waited for by the clock."""

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from gateway.config import Poll
from gateway.controlplane import poll
from gateway.controlplane.channels import Channels, Garbled, reading
from gateway.controlplane.poll import CALLS_MAX, LOADING_TIMEOUT_S, Followed, Poller
from gateway.fleet.events import Event, Observed, PollFailed, Source
from sluicegate.v1 import lifecycle_pb2 as pb
from sluicegate.v1.states import State
from tests.gateway.controlplane.lifecycle import FakeLifecycle
from tests.sim.clock import simulate

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
        async with asyncio.timeout(300):
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


def named(bench: Bench, http: str) -> Poller:
    """A poller of instances to whom the file gives this HTTP address."""
    return Poller(
        bench.channels,
        bench.events.put_nowait,
        lambda: bench.rules,
        lambda name: (0, 0),
        lambda name: http,
        random.Random(1),
    )


async def test_a_name_is_resolved_and_an_unknown_one_is_a_failed_poll() -> None:
    bench = Bench()
    poller = named(bench, "localhost:8000")
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


# --- many instances, on a clock of our own -------------------------------------------------------


class Station:
    """Channels to instances that answer when they are let; what was asked, and when."""

    def __init__(self, answers: bool = True) -> None:
        self.polls: list[tuple[str, float, float]] = []  # address, when, within which time
        self.watched: list[int] = []  # intervals asked for
        self.let = asyncio.Event()
        self.status = FakeLifecycle.said()
        if answers:
            self.let.set()

    def stub(self, address: str) -> "Line":
        return Line(self, address)

    async def drop(self, address: str) -> None:
        pass


class Line:
    def __init__(self, station: Station, address: str) -> None:
        self._at, self._address = station, address

    async def GetStatus(self, request: object, timeout: float) -> pb.InstanceStatus:  # noqa: N802
        now = asyncio.get_running_loop().time()
        self._at.polls.append((self._address, now, timeout))
        await self._at.let.wait()
        return self._at.status

    async def WatchStatus(  # noqa: N802
        self, request: pb.WatchStatusRequest
    ) -> AsyncIterator[pb.InstanceStatus]:
        self._at.watched.append(request.interval_ms)
        await asyncio.Event().wait()
        yield self._at.status


def polled(station: Station, count: int, seconds: float, rules: Poll | None = None) -> None:
    """Follow so many instances for so long."""

    async def follow() -> None:
        poller = Poller(
            station,  # type: ignore[arg-type]  # as much of Channels as polls need
            lambda event: None,
            lambda: rules or Poll(),
            lambda name: (0, 0),
            lambda name: "",
            random.Random(7),
        )
        for k in range(count):
            poller.follow(f"i{k}", f"127.0.0.1:{k}")
        await asyncio.sleep(seconds)
        await poller.close()

    simulate(follow())


def test_each_instance_is_polled_once_an_interval_and_all_of_them_are_spread_over_it() -> None:
    station = Station()
    polled(station, 1000, 20.5)
    begins: dict[str, list[float]] = {}
    for address, when, _ in station.polls:
        begins.setdefault(address, []).append(when)
    for times in begins.values():
        gaps = [two - one for one, two in pairwise(times)]
        assert all(0.9 <= gap <= 1.1 for gap in gaps[1:])
        assert len(set(gaps[1:])) > 10
    assert len(begins) == 1000
    tenths = Counter(int(when * 10) for _, when, _ in station.polls if when >= 2.0)
    assert max(tenths.values()) < 150  # of a thousand a second: no wave


def test_at_most_so_many_polls_are_under_way_and_the_others_wait_for_their_turn() -> None:
    station = Station(answers=False)
    polled(station, CALLS_MAX + 50, 0.5)
    assert len(station.polls) == CALLS_MAX


def test_every_poll_has_a_deadline_and_one_that_loads_has_more_time() -> None:
    station = Station()
    polled(station, 1, 3.0, Poll(timeout_s=0.5))
    assert [within for *_, within in station.polls][:2] == [LOADING_TIMEOUT_S, 0.5]
    loading = Station()
    loading.status.state = pb.INITIALIZING
    polled(loading, 1, 3.0, Poll(timeout_s=0.5))
    assert {within for *_, within in loading.polls} == {LOADING_TIMEOUT_S}


def test_a_watch_is_for_changes_and_repeats_itself_seldom() -> None:
    station = Station()
    polled(station, 1, 1.0)
    assert station.watched == [10_000]


async def test_a_name_that_moved_is_looked_up_again_when_a_poll_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dial that fails asks for a poll: it would fail for ever at the address of before."""
    answers: list[str | OSError] = ["10.0.0.1", "10.0.0.2"]

    async def resolve(address: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(poll, "_resolve", resolve)
    bench = Bench()
    poller = named(bench, "model.example:8000")
    poller.follow("a", await bench.instance.start())
    assert getattr(await bench.next(Source.POLL), "host", "") == "10.0.0.1"
    poller.poll_now("a")
    assert getattr(await bench.next(Source.POLL), "host", "") == "10.0.0.2"
    # Nobody answers for names just now: the last answer holds. That there is no such name is one.
    answers = [OSError(socket.EAI_AGAIN, "try again")]
    poller.poll_now("a")
    assert getattr(await bench.next(Source.POLL), "host", "") == "10.0.0.2"
    answers = [OSError(socket.EAI_NONAME, "no such name")]
    poller.poll_now("a")
    assert isinstance(await bench.next(), PollFailed)
    await poller.close()
    await bench.close()


async def test_one_host_is_remembered_however_many_an_instance_names() -> None:
    bench = Bench()
    one = Followed("a", "127.0.0.1:1")
    for number in range(100):
        await bench.poller._host(one, f"127.0.0.{number}:8000")
    assert (one.http, one.host) == ("127.0.0.99:8000", "127.0.0.99")
    await bench.close()
