"""What the proxy passes on, between real sockets: raw bytes in front of it, aiohttp behind it."""

import asyncio
import gzip

import aiohttp
import pytest
from aiohttp import web

from backends.external.proxy import end_to_end
from tests.backends.external.front import PATIENCE_S, before_app, document_of, echo, parted


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
