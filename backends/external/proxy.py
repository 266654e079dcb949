"""The thin proxy in front of the server: every request is counted, and passed on as it is.

Floor 3, I/O.
Flow: admit > head > [bytes both ways, as they come] > last byte > give back.
A reader that is slow stops the writer on the other side; a client that leaves takes its request
along at once; what the server cuts is cut for the client too, never ended cleanly.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Iterable, Mapping
from random import Random
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from backends.errors import NotReady, RequestInvalid, ServerAway, ServerGone
from backends.external.standin import StandIn
from backends.http_server import HEAD_MAX_BYTES
from sluicegate.v1.states import State

CONNECT_S: Final = 5.0  # it is on this machine
# Idle connections to the server: below the 5 s of uvicorn-based servers, so that we are the first
# of two ends to close one.
POOL_IDLE_S: Final = 4.0
BUFFER_BYTES: Final = 1 << 16  # read ahead of a slow reader; aiohttp holds up to twice that
REQUEST_ID_MAX: Final = 128  # characters of a client's own that are logged
# RFC 9110 7.6.1, and Expect: aiohttp has answered it already.
HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "proxy-authenticate"),
        *("proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "expect"),
    }
)
_AUTOMATIC: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


def session() -> aiohttp.ClientSession:
    """Connections to the server that change nothing on the way."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=POOL_IDLE_S, use_dns_cache=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_AUTOMATIC,
        auto_decompress=False,
        read_bufsize=BUFFER_BYTES,
        max_line_size=HEAD_MAX_BYTES,
        max_field_size=HEAD_MAX_BYTES,
    )


def end_to_end(fields: Mapping[str, str], dropped: Iterable[str] = ()) -> CIMultiDict[str]:
    """Without what was meant for the next hop only."""
    named = ",".join(value for name, value in fields.items() if name.lower() == "connection")
    gone = HOP_BY_HOP | {name.strip().lower() for name in named.split(",")} | set(dropped)
    return CIMultiDict((name, value) for name, value in fields.items() if name.lower() not in gone)


class Proxy:
    def __init__(self, standin: StandIn, base: str, rng: Random) -> None:
        self._standin = standin
        self._base = base
        self._rng = rng
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """The whole exchange.

        Raises: InstanceError, with nothing sent.
        """
        life, gate = self._standin.life, self._standin.gate
        request_id = request.headers.get("x-request-id") or f"{self._rng.getrandbits(64):016x}"
        try:
            admitted = gate.admit(life.standing, request_id[:REQUEST_ID_MAX])
        except NotReady as exc:
            if life.standing.state is State.ERROR:  # it was READY: somebody else may have it
                raise ServerAway(str(exc)) from exc
            raise
        try:
            return await self._exchange(request)
        finally:
            admitted.give_back()

    async def _exchange(self, request: web.Request) -> web.StreamResponse:
        began = asyncio.get_running_loop().time()
        answer = await self._asked(request)
        _end_with_connection(answer)
        ends_with_connection = _is_until_close(answer)
        try:
            fields = end_to_end(answer.headers)
            kind = _UntilClose if ends_with_connection else web.StreamResponse
            response = kind(status=answer.status, reason=answer.reason, headers=fields)
            if ends_with_connection:
                response.force_close()
            await response.prepare(request)
            async for part in answer.content.iter_any():
                self._standin.passed_bytes += len(part)
                await response.write(part)
            if ends_with_connection:
                await self._expect_server()
            await response.write_eof()
        except aiohttp.ClientError:
            if ends_with_connection:
                _reset(request)
            _cut(request)
            raise ServerGone("cut by the server") from None
        finally:
            # aiohttp keeps the connection if the answer was read to its end, else closes it: the
            # server sees that nobody listens.
            answer.release()
        if answer.status < 500:
            self._standin.answered(asyncio.get_running_loop().time() - began)
        return response

    async def _expect_server(self) -> None:
        """An answer that ended with its connection may have ended because the server did: one that
        is gone listens no more.

        Raises: aiohttp.ClientError.
        """
        url = URL(self._base)
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(url.host, url.port)
        except OSError as exc:  # TimeoutError too
            raise aiohttp.ClientPayloadError("the server has ended") from exc
        writer.close()

    async def _asked(self, request: web.Request) -> aiohttp.ClientResponse:
        """The head of the answer.

        Raises: ServerAway if nothing was sent; ServerGone, RequestInvalid.
        """
        target = request.rel_url.raw_path_qs
        if not target.startswith("/"):
            raise RequestInvalid("", f"{target[:64]!r} is not a path")
        if self._session is None:
            self._session = session()
        try:
            return await self._session.request(
                request.method,
                URL(self._base + target, encoded=True),
                headers=end_to_end(request.headers, ("host",)),
                data=_body(request) if request.can_read_body else None,
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise ServerAway(f"the server cannot be reached: {exc}") from exc
        except aiohttp.ClientResponseError as exc:
            raise ServerGone(f"the server's answer is no HTTP: {exc.message}") from exc
        except aiohttp.ClientError as exc:
            # It may have been read: an end without an answer, as the server gave it.
            _cut(request)
            raise ServerGone(f"the server gave no answer: {exc}") from exc


async def _body(request: web.Request) -> AsyncIterator[bytes]:
    async for part in request.content.iter_any():
        yield part


class _UntilClose(web.StreamResponse):
    """Its end is the end of the connection. In chunks, as aiohttp would send it, it could be taken
    for whole; the server has not said so."""

    _length_check = False


def _is_until_close(answer: aiohttp.ClientResponse) -> bool:
    framed = "Content-Length" in answer.headers or "Transfer-Encoding" in answer.headers
    return not framed and answer.method != "HEAD" and answer.status not in (204, 304)


def _end_with_connection(answer: aiohttp.ClientResponse) -> None:
    """A body whose connection has ended is over. aiohttp 3.14 waits for ever for the rest of one
    that became garbage in the middle: its parser's error goes to the next head, and there is none.
    """
    content = answer.content

    def end(_: object = None) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection has ended"))

    protocol = answer.connection.protocol if answer.connection is not None else None
    closed = protocol.closed if protocol is not None else None
    if closed is None:
        end()
        return

    def forget() -> None:  # it may be used again, for long
        closed.remove_done_callback(end)

    closed.add_done_callback(end)
    content.on_eof(forget)


def _reset(request: web.Request) -> None:
    """The end to come is a reset: any other would be taken for the end of the answer."""
    connection = request.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _cut(request: web.Request) -> None:
    """End the client's connection visibly."""
    if request.transport is not None:
        request.transport.abort()
