"""What becomes of a question, over real sockets: an answer, or why there is none."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from backends.external.asking import BODY_MAX_BYTES, Asker
from backends.external.questions import Answered, Question, Reply, Silent
from tests.ports import free_port

PATIENCE_S = 60.0
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(behaviour: Behaviour) -> AsyncIterator[str]:
    listening = await asyncio.start_server(behaviour, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/x"
    listening.close()


def says(text: bytes, heard: list[bytes] | None = None) -> Behaviour:
    """Reads a request's head, answers so, and closes."""

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if heard is not None:
            heard.append(head)
        writer.write(text)
        writer.close()

    return behaviour


async def ask(url: str, timeout_s: float = PATIENCE_S, key: str = "") -> Reply:
    asker = Asker(key)
    try:
        return await asker.ask(Question("GET", url), timeout_s)
    finally:
        await asker.close()


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_any_status_is_an_answer(status: int) -> None:
    async with server(says(b"HTTP/1.1 %d X\r\nContent-Length: 2\r\n\r\nhi" % status)) as url:
        assert await ask(url) == Answered(status, b"hi")


async def test_a_redirect_is_followed_nowhere() -> None:
    text = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with server(says(text)) as url:
        assert await ask(url) == Answered(302, b"")


@pytest.mark.parametrize(("key", "sent"), [("", False), ("secret", True)])
async def test_the_key_goes_along_if_there_is_one(key: str, sent: bool) -> None:
    heard: list[bytes] = []
    async with server(says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", heard)) as url:
        await ask(url, key=key)
    assert (b"authorization: bearer secret" in heard[0].lower()) is sent
    assert (b"authorization" in heard[0].lower()) is sent


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "ServerDisconnectedError"),
        (b"SSH-2.0-x\r\n\r\n", "speaks no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", "ClientPayloadError"),
    ],
    ids=["nothing", "no HTTP", "cut"],
)
async def test_what_is_no_whole_answer_is_silence_with_a_reason(text: bytes, words: str) -> None:
    async with server(says(text)) as url:
        reply = await ask(url)
    assert isinstance(reply, Silent)
    assert words in reply.why
    assert not reply.slow


async def test_where_nobody_listens_it_says_so() -> None:
    reply = await ask(f"http://127.0.0.1:{free_port()}/")
    assert reply == Silent("nothing listens there")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi"])
async def test_late_is_told_from_wrong(head: bytes) -> None:
    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await reader.read()
        writer.close()

    async with server(hangs) as url:
        assert await ask(url, 0.2) == Silent("no answer within 0.2 s", slow=True)


async def test_an_endless_answer_is_read_to_a_bound() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
        except ConnectionError:
            writer.close()

    async with server(endless) as url:
        reply = await ask(url)
    assert isinstance(reply, Answered)
    assert BODY_MAX_BYTES <= len(reply.body) < 2 * BODY_MAX_BYTES
