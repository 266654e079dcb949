"""An inference API that answers by a script: what validations are tried on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

Answering = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


async def well(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return says("Paris is the capital of France.")


async def broken(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(status=500, text="out of memory")


async def otherwise(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return says("I do not know that at all.")


async def slowly(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    await asyncio.sleep(0.5)  # many times what an answer over loopback takes
    return await well(request, body)


def says(text: str) -> web.Response:
    return web.json_response({"choices": [{"index": 0, "message": {"content": text}}]})


class Api:
    """One instance's inference API; what it was sent is kept."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.under_way = 0
        self.most = 0  # at once
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.seen.append((request.path, body))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return await self.answering(request, body)
        finally:
            self.under_way -= 1


@asynccontextmanager
async def serving(answering: Answering) -> AsyncIterator[Api]:
    api = Api(answering)
    app = web.Application()
    app.router.add_post("/{path:.*}", api.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api.url = f"http://{host}:{port}"
    try:
        yield api
    finally:
        await runner.cleanup()
