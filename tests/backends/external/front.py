"""The proxy between real sockets, and a client of it that speaks bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson
from aiohttp import web

from backends.external.proxy import Proxy
from backends.external.standin import StandIn
from backends.http_server import HttpServer
from backends.refusals import Refusals
from sluicegate.v1.states import Phase
from tests.backends.external.rig import settings_for, standin_for

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PATIENCE_S = 300.0


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
