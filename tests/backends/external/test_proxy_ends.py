"""Slow, gone and cut: raw bytes in front of the proxy, and a server behind it that misbehaves."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from tests.backends.external.front import PATIENCE_S, before, before_app, front

PART = bytes(1 << 16)
FAR_TOO_MUCH = 1 << 30
# Kernel buffers of two loopback connections and our own: nothing near FAR_TOO_MUCH.
BOUND = 64 << 20


async def test_a_slow_client_stops_the_server() -> None:
    written, stuck = 0, asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % FAR_TOO_MUCH)
        while written < BOUND:
            writer.write(PART)
            written += len(PART)
            draining = asyncio.ensure_future(writer.drain())
            done, _ = await asyncio.wait([draining], timeout=1.0)
            if not done:  # nobody has read for a second
                draining.cancel()
                break
        stuck.set()

    async with before(endless) as made, asyncio.timeout(PATIENCE_S):
        reader, writer = await made.dial()
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await stuck.wait()
        writer.transport.abort()
    assert written < BOUND


async def test_a_slow_server_stops_the_client() -> None:
    leaving = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await leaving.wait()
        writer.close()

    async with before(deaf) as made, asyncio.timeout(PATIENCE_S):
        _, writer = await made.dial()
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % FAR_TOO_MUCH)
        written = 0
        while written < BOUND:
            writer.write(PART)
            written += len(PART)
            draining = asyncio.ensure_future(writer.drain())
            done, _ = await asyncio.wait([draining], timeout=1.0)
            if not done:
                draining.cancel()
                break
        writer.transport.abort()
        leaving.set()
    assert written < BOUND


@pytest.mark.parametrize("begun", [True, False], ids=["in the answer", "before it"])
async def test_a_client_that_leaves_ends_the_servers_connection_at_once(begun: bool) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if begun:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        asked.set()
        assert await reader.read() == b""
        left.set()
        writer.close()

    async with before(patient) as made, asyncio.timeout(PATIENCE_S):
        reader, writer = await made.dial()
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asked.wait()
        if begun:
            await reader.readuntil(b"x\r\n")
        writer.transport.abort()
        await left.wait()
    assert made.standin.served_total == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
    ],
    ids=["no last chunk", "too short", "no chunk"],
)
async def test_what_the_server_cuts_is_cut_and_never_ended_cleanly(answer: bytes) -> None:
    head_seen = asyncio.Event()

    async def cuts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        await head_seen.wait()
        writer.write(body)
        writer.close()

    async with before(cuts) as made, aiohttp.ClientSession() as http:
        async with http.get(made.url) as answered:
            head_seen.set()
            with pytest.raises(aiohttp.ClientError):
                await answered.read()
        assert made.standin.served_total == 0


@pytest.mark.parametrize("dies", [False, True])
async def test_an_answer_that_ends_with_its_connection_is_cut_if_the_server_died(
    dies: bool,
) -> None:
    listening: list[asyncio.Server] = []
    head_seen = asyncio.Event()

    async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not await reader.read(1):
            writer.close()
            return
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await head_seen.wait()
        if dies:
            listening[0].close()
        writer.close()

    server = await asyncio.start_server(ends, "127.0.0.1", 0)
    listening.append(server)
    port = server.sockets[0].getsockname()[1]
    async with front(f"http://127.0.0.1:{port}") as made, asyncio.timeout(PATIENCE_S):
        reader, writer = await made.dial()
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b"connection: close" in head
        assert b"chunked" not in head
        head_seen.set()
        if dies:
            with pytest.raises(ConnectionResetError):
                await reader.read()
        else:
            assert await reader.read() == b"hello"
        writer.close()
        assert made.standin.served_total == (0 if dies else 1)
    server.close()


async def test_a_server_that_ends_without_an_answer_is_a_connection_without_one() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with before(silent) as made, aiohttp.ClientSession() as http:
        with pytest.raises((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)):
            await http.post(made.url, data=b"x")


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\x01\x02 what\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"],
)
async def test_garbage_for_an_answer_is_502(garbage: bytes) -> None:
    async def raves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(garbage)
        writer.close()

    async with before(raves) as made, aiohttp.ClientSession() as http:
        async with http.get(made.url) as answered:
            assert answered.status == 502
            assert (await answered.json())["error"]["code"] == "server_gone"
        assert "x-sluicegate-refused" not in answered.headers


async def test_a_server_that_is_not_there_got_nothing_and_says_so() -> None:
    async with front("http://127.0.0.1:9") as made, aiohttp.ClientSession() as http:
        for method in ("GET", "POST"):
            async with http.request(method, made.url, data=b"x") as answered:
                refused = (answered.status, answered.headers["x-sluicegate-refused"])
                assert refused == (503, "away")


async def test_an_answer_that_comes_before_the_end_of_the_request_is_passed_on() -> None:
    async def impatient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await writer.drain()
        await reader.read(1 << 16)
        writer.close()

    async with before(impatient) as made, asyncio.timeout(PATIENCE_S):
        reader, writer = await made.dial()
        writer.write(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + PART)
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        writer.transport.abort()


async def test_more_than_it_has_room_for_is_refused_as_full() -> None:
    going_on = asyncio.Event()

    async def waits(request: web.Request) -> web.Response:
        await going_on.wait()
        return web.Response()

    async with before_app(waits, slots=1) as made, aiohttp.ClientSession() as http:
        first = asyncio.create_task(http.get(made.url))
        await made.standin.gate.holds(1)  # type: ignore[attr-defined]
        async with http.get(made.url) as refused:
            assert (refused.status, refused.headers["x-sluicegate-refused"]) == (503, "full")
        going_on.set()
        assert (await first).status == 200


async def test_a_client_that_ends_its_side_is_a_client_that_leaves() -> None:
    """As for any instance: the gateway keeps its side open."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        left.set()
        writer.close()

    async with before(patient) as made, asyncio.timeout(PATIENCE_S):
        reader, writer = await made.dial()
        writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        await asked.wait()
        writer.write_eof()
        await left.wait()
        assert await reader.read() == b""
        writer.close()
