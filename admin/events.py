"""Events as they happen, to a browser or a CLI: server-sent events, resumed by Last-Event-ID.

Floor 3, I/O.
Owner: the control process's event loop. A stream costs one task; there are at most STREAMS_MAX. A
comment goes out when nothing else has for a while: that is how a client that left is noticed, and
how proxies are kept from closing a quiet connection.
Source: HTML Living Standard, section 9.2 (server-sent events).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import orjson
from aiohttp import web

from admin import views
from admin.refusals import Refused
from admin.requests import Following
from gateway.control import Event

STREAMS_MAX: Final = 64  # consoles and CLIs; each holds a connection and a queue of events
KEEP_ALIVE_S: Final = 15.0  # proxies close a silent connection after 30 to 60
STALLED_S: Final = 30.0  # a client that reads nothing gives its place to others
QUIET_S: Final = 0.1  # remembered events come without waiting; after this silence they are all out
RETRY_MS: Final = 1000  # a browser comes back after this long

FIELDS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx in front must not hold events back
}


def encode(event: Event) -> bytes:
    """One event on the wire. JSON has no raw line ends, so it is one `data` line."""
    return b"id: %d\ndata: %b\n\n" % (event.id, orjson.dumps(views.event(event)))


async def _written(response: web.StreamResponse, data: bytes) -> None:
    """Raises: TimeoutError when the client has not read for so long that there is no room."""
    async with asyncio.timeout(STALLED_S):
        await response.write(data)


class Streams:
    """All open event streams; `close` ends them, so that the server can end."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()
        self._open = 0

    def close(self) -> None:
        self._closing.set()

    def check_room(self) -> None:
        """Raises: Refused when as many as there may be are open already."""
        if self._open >= STREAMS_MAX:
            raise Refused("streams_full", f"{self._open} event streams are open, the most allowed")

    async def serve(
        self, request: web.Request, events: AsyncIterator[Event], wanted: Following
    ) -> web.StreamResponse:
        """Send events until the client leaves, the server closes or, not following, silence."""
        self._open += 1
        response = web.StreamResponse(headers=FIELDS)
        closing: asyncio.Future[Any] = asyncio.ensure_future(self._closing.wait())
        try:
            await response.prepare(request)
            await response.write(b"retry: %d\n\n" % RETRY_MS)
            await self._pump(response, events, wanted.follow, closing)
        except ConnectionResetError:
            pass  # the client left
        except TimeoutError:  # it is there, and reads nothing: an end would not reach it either
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._open -= 1
            closing.cancel()
            if isinstance(events, AsyncGenerator):
                await events.aclose()
        return response

    async def _pump(
        self,
        response: web.StreamResponse,
        events: AsyncIterator[Event],
        follow: bool,
        closing: asyncio.Future[Any],
    ) -> None:
        patience_s = KEEP_ALIVE_S if follow else QUIET_S
        upcoming: asyncio.Future[Any] = asyncio.ensure_future(anext(events, None))
        try:
            while not closing.done():
                await asyncio.wait(
                    {upcoming, closing}, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
                )
                if upcoming.done():
                    event = upcoming.result()
                    if event is None:
                        return  # the gateway has no more to tell
                    await _written(response, encode(event))
                    upcoming = asyncio.ensure_future(anext(events, None))
                elif follow and not closing.done():
                    await _written(response, b": nothing new\n\n")
                else:
                    return
        finally:
            upcoming.cancel()
            await asyncio.wait({upcoming})
