import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.controlplane.link import WorkerLinks
from gateway.controlplane.orders import SupervisorLink
from gateway.fleet.events import (
    ChildExited,
    ChildrenSeen,
    ChildStarted,
    DialFailed,
    Event,
    LeasesCut,
    ReloadAsked,
    SlotEmptied,
    SlotSent,
    StartFailed,
    StopAsked,
    WorkerAcked,
    WorkerLinked,
    WorkerUnlinked,
)
from gateway.messages import (
    Ack,
    Children,
    Empty,
    Exited,
    Hello,
    Kill,
    LineBuffer,
    Message,
    Sampled,
    Sent,
    Signalled,
    Spawned,
    SpawnFailed,
    Suspected,
    TellEmpty,
    WereCut,
    encode,
)
from gateway.state.ledger import Ledger
from gateway.state.shared import Layout, Segment, create


class Door:
    """A door on a real socket, and a worker's end of it."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.links = WorkerLinks(self.events.put_nowait)

    async def open(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_unix_server(self.links.connection, path)
        self.reader, self.writer = await asyncio.open_unix_connection(path)

    async def next(self) -> Event:
        async with asyncio.timeout(300):
            return await self.events.get()

    def say(self, *messages: Message) -> None:
        self.writer.write(b"".join(encode(message) for message in messages))


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    made = Door()
    await made.open(str(tmp_path / "door.sock"))
    yield made
    made.writer.close()
    made.server.close()


async def test_what_a_worker_says_becomes_events_of_its_row(door: Door) -> None:
    said: list[Message] = [
        Hello(1, 3, 77, 9, True),
        Ack(10),
        Sent(5, 6),
        Empty(5, 7),
        WereCut(8, ()),
        Suspected(5, "refused"),
    ]
    door.say(*said)
    kinds = [type(await door.next()) for _ in said]
    assert kinds == [WorkerLinked, WorkerAcked, SlotSent, SlotEmptied, LeasesCut, DialFailed]


async def test_samples_go_to_the_recorder_and_are_no_events(door: Door) -> None:
    sample = Sampled(1.5, "m", "/v1/completions", "<100", {"model": "m"})
    said: list[Message] = [Hello(1, 3, 77, 9, True), sample, Ack(10)]
    door.say(*said)  # to nobody: it is lost
    assert [type(await door.next()) for _ in range(2)] == [WorkerLinked, WorkerAcked]
    heard: list[Sampled] = []
    door.links.on_sampled = heard.append
    door.say(sample, Ack(11))
    assert isinstance(await door.next(), WorkerAcked)
    assert heard == [sample]


async def test_a_message_goes_to_the_row_it_is_for_and_to_nobody_else(door: Door) -> None:
    door.say(Hello(1, 3, 77, 0, True))
    linked = await door.next()
    assert isinstance(linked, WorkerLinked)
    assert (linked.index, linked.row, linked.pid, linked.generation) == (1, 3, 77, 0)
    assert linked.compiled
    door.links.tell(2, TellEmpty(1, 1))
    door.links.tell(3, TellEmpty(5, 7))
    async with asyncio.timeout(300):
        assert LineBuffer().feed(await door.reader.readline()) == [TellEmpty(5, 7)]


async def test_a_broken_link_is_told_with_its_pid(door: Door) -> None:
    door.say(Hello(1, 3, 77, 0, True))
    await door.next()
    door.writer.close()
    event = await door.next()
    assert isinstance(event, WorkerUnlinked)
    assert (event.row, event.pid) == (3, 77)


async def test_an_old_link_that_ends_after_the_new_one_began_is_nobodys(
    door: Door, tmp_path: Path
) -> None:
    door.say(Hello(1, 3, 77, 0, True))
    await door.next()
    _, second = await asyncio.open_unix_connection(str(tmp_path / "door.sock"))
    second.write(encode(Hello(1, 3, 77, 0, True)))
    await door.next()
    door.writer.close()
    second.write(encode(Ack(4)))
    assert isinstance(await door.next(), WorkerAcked)
    second.close()


# --- the supervisor ------------------------------------------------------------------------------


async def test_what_the_supervisor_says_becomes_events_and_its_end_is_ours() -> None:
    fd = create(Layout(rows=2, slots=2, sections=2, leases=2))
    segment = Segment(fd)
    Ledger(segment, 1)
    events: list[Event] = []
    ended = asyncio.Event()
    link = SupervisorLink(segment, events.append, ended.set)
    link.data_received(
        b"".join(
            encode(message)
            for message in (
                Children({"worker0.0": 7}, 1, {"instance.a": "t cpu0"}),
                Exited("instance.a", 8, -9),
                Spawned("instance.a", 9),
                SpawnFailed("instance.a", "no such file"),
                Signalled(0, True),
                Signalled(1, False),
            )
        )
    )
    kinds = [ChildrenSeen, ChildExited, ChildStarted, StartFailed, ReloadAsked, StopAsked]
    assert [type(event) for event in events] == kinds
    assert isinstance(events[0], ChildrenSeen)
    assert events[0].unsettled == {1}
    link.connection_lost(None)
    assert ended.is_set()
    os.close(fd)


async def test_an_order_is_one_line() -> None:
    written: list[bytes] = []

    class Pipe(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            written.append(bytes(data))

    fd = create(Layout(rows=2, slots=2, sections=2, leases=2))
    link = SupervisorLink(Segment(fd), lambda event: None, lambda: None)
    link.connection_made(Pipe())
    link.order(Kill("worker0.0", 9))
    assert LineBuffer().feed(written[0]) == [Kill("worker0.0", 9)]
    os.close(fd)
