"""`scripted_instance`, and bad in the way that its version's name says: "2-errors", "3-slow"...

Run by gateways of live tests that roll such a version out. What is bad happens where it would in
life: in the HTTP answers, in the engine, in the process.
"""

import os
import sys
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

import backends.engines.families as families
from backends.commands import instance
from backends.engines.base import Sampling
from backends.engines.families import Parts
from backends.http_api import HttpApi
from backends.settings import Settings
from backends.snapshots.repository import Snapshot
from tests.backends.rig import ByteText, PlainScanner
from tests.live.scripted_instance import COMMAND as GOOD
from tests.live.scripted_instance import STEP_S, PacedEngine

COMMAND: Final = tuple("tests.live.bad_instance" if "scripted" in part else part for part in GOOD)
LOAD_S: Final = {"never": 3600.0}
SLOWER: Final = {"slow": 4}
CRASHES_AFTER: Final = 3  # requests
EXIT_CONFIG: Final = 78


def badness(version: str) -> str:
    return version.partition("-")[2]


class BadFamily:
    def require(self) -> None:
        pass

    def build(self, snapshot: Snapshot, settings: Settings) -> Parts:
        kind = badness(snapshot.manifest.version)
        engine = PacedEngine(LOAD_S.get(kind, 0.2), step_s=STEP_S * SLOWER.get(kind, 1))
        return Parts(engine, ByteText(), PlainScanner, Sampling(temperature=0.0))


def spoilt(kind: str) -> Middleware:
    asked = 0

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal asked
        if request.method != "POST":
            return await handler(request)
        asked += 1
        match kind:
            case "errors":
                return web.json_response({"error": {"message": "out of order"}}, status=500)
            case "empty":
                return web.Response(status=200, content_type="text/event-stream")
            case "truncates":
                response = web.StreamResponse(headers={"content-type": "text/event-stream"})
                await response.prepare(request)
                await response.write(b'data: {"choices": []}\n\n')
                assert request.transport is not None
                request.transport.abort()
                return response
            case "crashes" if asked >= CRASHES_AFTER:
                os._exit(1)
        return await handler(request)

    return middleware


def main() -> None:
    kind = badness(sys.argv[sys.argv.index("--version") + 1])
    if kind == "unusable":
        sys.exit(EXIT_CONFIG)
    families.FAMILIES = {"llm": BadFamily()}  # type: ignore[misc]  # this process has no other
    made = HttpApi.app

    def app(self: HttpApi) -> web.Application:
        application = made(self)
        application.middlewares.append(spoilt(kind))
        return application

    HttpApi.app = app  # type: ignore[method-assign]  # nor any other HTTP
    instance()


if __name__ == "__main__":
    main()
