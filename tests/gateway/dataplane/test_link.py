"""The worker's line to control: it begins with hello, and outlives every control."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.link import RETRY_S, UNREAD_BYTES, Link
from gateway.messages import Ack, Empty, Hello, Leave, LineBuffer, Message, Sent, encode
from tests.gateway.dataplane.rig import FakeTransport
from tests.sim.clock import VirtualTimeLoop

PATIENCE_S: Final = 300.0  # for what takes a millisecond on a machine with nothing else to do
MESSAGES: Final = st.lists(
    st.builds(Leave, st.integers(0, 99)) | st.builds(Sent, st.integers(0, 9), st.integers(0, 9)),
    max_size=6,
)


def hello(generation: int) -> Hello:
    return Hello(0, 0, 1, generation, False)


class Control:
    """What a control process is to a link: `heard` of the connection that came last."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self.heard: asyncio.Queue[Message] = asyncio.Queue()
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        lines = LineBuffer()
        while received := await reader.read(65_536):
            for message in lines.feed(received):
                self.heard.put_nowait(message)
        writer.close()

    async def hears(self) -> Message:
        async with asyncio.timeout(PATIENCE_S):
            return await self.heard.get()

    def say(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    def end_connection(self) -> None:
        assert self._writer is not None
        self._writer.close()

    def end(self) -> None:
        self._server.close()


@pytest.fixture
async def control(tmp_path: Path) -> AsyncIterator[Control]:
    made = Control(tmp_path / "control")
    await made.start()
    yield made
    made.end()


@contextlib.asynccontextmanager
async def kept(link: Link) -> AsyncIterator[None]:
    task = asyncio.create_task(link.keep())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def nobody(message: Message) -> None:
    raise AssertionError(f"control said nothing, least of all {message}")


async def test_hello_is_the_first_that_each_control_hears(tmp_path: Path, control: Control) -> None:
    generations = iter(range(1, 9))
    link = Link(str(tmp_path / "control"), lambda: hello(next(generations)), nobody)
    link.say(Ack(7))  # nobody listens yet: lost, and asked for again
    async with kept(link):
        for generation in (1, 2, 3):
            assert await control.hears() == hello(generation)
            link.say(Empty(1, generation))
            assert await control.hears() == Empty(1, generation)
            control.end_connection()
    assert control.heard.empty()


async def test_what_is_said_while_control_is_gone_is_lost() -> None:
    link = Link("", lambda: hello(1), nobody)
    transport: Any = FakeTransport(link)
    link.say(Ack(1))
    link.connection_made(transport)
    link.say(Ack(2))
    link.connection_lost(None)
    link.say(Ack(3))
    assert transport.out == encode(hello(1)) + encode(Ack(2))


async def test_what_may_be_lost_is_said_only_to_a_control_that_reads() -> None:
    link = Link("", lambda: hello(1), nobody)
    assert not link.say_if_read(Ack(1))
    transport: Any = FakeTransport(link)
    unread = 0
    transport.get_write_buffer_size = lambda: unread
    link.connection_made(transport)
    assert link.say_if_read(Ack(2))
    unread = UNREAD_BYTES + 1
    assert not link.say_if_read(Ack(3))
    assert transport.out == encode(hello(1)) + encode(Ack(2))


async def test_a_line_that_the_last_control_did_not_finish_is_not_the_next_one_s(
    tmp_path: Path, control: Control
) -> None:
    heard: asyncio.Queue[Message] = asyncio.Queue()
    link = Link(str(tmp_path / "control"), lambda: hello(1), heard.put_nowait)
    async with kept(link):
        await control.hears()
        control.say(encode(Leave(1)) + encode(Leave(2))[:-3])
        async with asyncio.timeout(PATIENCE_S):
            assert await heard.get() == Leave(1)
        control.end_connection()
        await control.hears()
        control.say(encode(Leave(3)))
        async with asyncio.timeout(PATIENCE_S):
            assert await heard.get() == Leave(3)


@given(MESSAGES, st.sets(st.integers(1, 400)))
async def test_what_control_says_is_heard_in_order_however_it_arrives(
    messages: list[Message], cuts: set[int]
) -> None:
    heard: list[Message] = []
    link = Link("", lambda: hello(1), heard.append)
    transport: Any = FakeTransport(link)
    link.connection_made(transport)
    said = b"".join(encode(message) for message in messages)
    at = sorted(cut for cut in cuts if cut < len(said))
    for start, end in zip([0, *at], [*at, len(said)], strict=True):
        link.data_received(said[start:end])
    assert heard == messages
    assert transport.out == encode(hello(1))


class Absent(VirtualTimeLoop):
    """A loop on which nobody listens at first. `tried`: when it was asked to connect."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self._failures = failures
        self.tried: list[float] = []

    async def create_unix_connection(  # type: ignore[override]
        self, factory: Callable[[], Link], path: str
    ) -> tuple[Any, Link]:
        self.tried.append(self.time())
        if len(self.tried) <= self._failures:
            raise FileNotFoundError(2, "No such file or directory")
        link = factory()
        transport: Any = FakeTransport(link)
        link.connection_made(transport)
        return transport, link


@pytest.mark.parametrize("failures", [0, 1, 5])
def test_a_control_that_is_not_there_yet_is_tried_again_in_a_moment(failures: int) -> None:
    loop = Absent(failures)
    greeted = asyncio.Event()

    def says() -> Message:
        greeted.set()
        return hello(1)

    async def wait() -> float:
        async with kept(Link("", says, nobody)):
            await greeted.wait()
            return loop.time()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        took = runner.run(wait())
    assert took == loop.tried[-1] == sum([RETRY_S] * failures)
    assert len(loop.tried) == failures + 1
