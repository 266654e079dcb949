"""The proxy between real sockets: raw bytes in front of it, aiohttp or raw bytes behind it."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from backends.external.proxy import Proxy, end_to_end
from backends.external.standin import StandIn
from backends.http_server import HttpServer
from backends.refusals import Refusals
from sluicegate.v1.states import Phase
from tests.backends.external.rig import settings_for, standin_for

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PATIENCE_S = 60.0


class Front:
    """The proxy, and a client of it that speaks bytes."""

    def __init__(self, standin: StandIn, port: int) -> None:
        self.standin = standin
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    async def dial(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def say(self, text: bytes) -> bytes:
        """Everything that comes back until the other side ends."""
        reader, writer = await self.dial()
        writer.write(text)
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def front(base: str, slots: int = 8) -> AsyncIterator[Front]:
    standin = standin_for(settings_for(max_concurrency=slots))
    standin.gate.widen(slots, 0)
    standin.life.progress(Phase.WARMING_UP, 1.0, "", 0.0)
    standin.life.verified(0.0)
    proxy = Proxy(standin, base, Random(7))
    app = web.Application(middlewares=[Refusals(lambda: standin.life.standing).middleware])
    app.router.add_route("*", "/{path:.*}", proxy.pass_on)
    server = HttpServer(app, "127.0.0.1", 0)
    await server.start()
    try:
        yield Front(standin, server.port)
    finally:
        await server.close()
        await proxy.close()
    assert standin.gate.in_flight == 0


@asynccontextmanager
async def before(behaviour: Behaviour, **more: Any) -> AsyncIterator[Front]:
    """In front of a server that does just that with each connection."""
    server = await asyncio.start_server(behaviour, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with front(f"http://127.0.0.1:{port}", **more) as made:
        yield made
    server.close()


def app_of(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    made = web.Application()
    made.router.add_route("*", "/{path:.*}", handler)
    return made


@asynccontextmanager
async def before_app(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], **more: Any
) -> AsyncIterator[Front]:
    server = HttpServer(app_of(handler), "127.0.0.1", 0)
    await server.start()
    async with front(f"http://127.0.0.1:{server.port}", **more) as made:
        yield made
    await server.close()


async def echo(request: web.Request) -> web.Response:
    document = {
        "method": request.method,
        "path": request.raw_path,
        "headers": {name.lower(): value for name, value in request.headers.items()},
        "body": len(await request.read()),
    }
    return web.json_response(document, headers={"x-served-by": "server", "Server": "theirs"})


def parted(answer: bytes) -> tuple[int, bytes, bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.lower(), body


def document_of(answer: bytes) -> Any:
    return orjson.loads(parted(answer)[2])


# --- what is passed on ----------------------------------------------------------------------------


async def test_a_request_arrives_as_it_was_sent_but_for_what_was_for_one_hop() -> None:
    async with before_app(echo) as made:
        answer = await made.say(
            b"POST /v1/a%2Fb;c?q=%20x&y=%C3%A9 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n"
            b"Authorization: Bearer k\r\nx-request-id: r-1\r\nX-Private: 1\r\nTE: trailers\r\n"
            b"Keep-Alive: timeout=5\r\nConnection: close, x-private\r\n\r\nhi"
        )
    status, head, _ = parted(answer)
    seen = document_of(answer)
    assert (status, seen["method"], seen["body"]) == (200, "POST", 2)
    assert seen["path"] == "/v1/a%2Fb;c?q=%20x&y=%C3%A9"
    assert seen["headers"]["authorization"] == "Bearer k"
    assert seen["headers"]["x-request-id"] == "r-1"
    assert {"x-private", "te", "keep-alive", "accept-encoding", "user-agent"} & set(
        seen["headers"]
    ) == set()
    assert b"x-served-by: server" in head
    assert head.count(b"server: theirs") == head.count(b"\r\nserver:") == 1


def test_every_field_that_connection_names_is_dropped_wherever_it_is_named() -> None:
    from multidict import CIMultiDict

    fields = CIMultiDict(
        [("Connection", "A"), ("connection", "b , close"), ("a", "1"), ("B", "2"), ("c", "3")]
    )
    assert dict(end_to_end(fields)) == {"c": "3"}


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET http://elsewhere/x?y HTTP/1.1", 200),
        (b"OPTIONS * HTTP/1.1", 404),
        (b"CONNECT h:443 HTTP/1.1", 404),
        (b"PROPFIND /x HTTP/1.1", 200),
    ],
)
async def test_targets_of_every_form(request_line: bytes, status: int) -> None:
    async with before_app(echo) as made:
        answer = await made.say(request_line + b"\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert parted(answer)[0] == status
    if b"elsewhere" in request_line:
        assert document_of(answer)["path"] == "/x?y"  # nobody is asked but the server


async def test_head_has_no_body_and_the_length_of_one() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(headers={"Content-Length": "1234"}, status=200)

    async with before_app(handler) as made:
        answer = await made.say(b"HEAD /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    status, head, body = parted(answer)
    assert (status, body) == (200, b"")
    assert b"content-length: 1234" in head


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_stay_without(status: int) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async with before_app(handler) as made:
        answer = await made.say(b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    assert (parted(answer)[0], parted(answer)[2]) == (status, b"")
    assert b"transfer-encoding" not in parted(answer)[1]


async def test_expect_is_answered_here_and_an_upgrade_is_not_made() -> None:
    async with before_app(echo) as made:
        reader, writer = await made.dial()
        writer.write(
            b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n"
            b"Connection: close\r\n\r\n"
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 100")
        writer.write(b"abc")
        assert b'"body": 3' in await reader.read()
        writer.close()
        answer = await made.say(
            b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
    assert parted(answer)[0] == 200
    assert "upgrade" not in document_of(answer)["headers"]


async def test_long_heads_pass_both_ways_and_endless_ones_do_not() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(headers={"x-long": request.headers["x-long"]})

    async with before_app(handler) as made:
        for size, status in ((60_000, 200), (70_000, 400)):
            answer = await made.say(
                b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nx-long: "
                + b"a" * size
                + b"\r\n\r\n"
            )
            assert parted(answer)[0] == status
            assert (b"a" * size in answer) is (status == 200)


async def test_redirects_cookies_and_encodings_are_the_clients_matter() -> None:
    packed = gzip.compress(b"hello" * 100)

    async def handler(request: web.Request) -> web.Response:
        assert "cookie" not in request.headers
        headers = {"Location": "/y", "Content-Encoding": "gzip"}
        return web.Response(status=302, body=packed, headers=headers)

    async with before_app(handler) as made, aiohttp.ClientSession(auto_decompress=False) as http:
        for _ in range(2):
            async with http.get(f"{made.url}/x", allow_redirects=False) as answered:
                assert (answered.status, await answered.read()) == (302, packed)


async def test_chunked_uploads_and_downloads_are_passed_on_as_they_come() -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for part in request.content.iter_any():
            arrived.put_nowait(part)
            await response.write(b"data: " + part + b"\n\n")
        return response

    async with before_app(handler) as made, asyncio.timeout(PATIENCE_S):
        reader, writer = await made.dial()
        writer.write(b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        for word in (b"one", b"two", b"three"):  # each is answered before the next is sent
            writer.write(b"%x\r\n%s\r\n" % (len(word), word))
            assert await arrived.get() == word
            await reader.readuntil(b"data: " + word + b"\n\n")
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"0\r\n\r\n")
        writer.close()
    assert made.standin.served_total == 1


# --- slow, gone and cut ---------------------------------------------------------------------------

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
