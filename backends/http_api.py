"""The instance's HTTP: generating calls, models, probes, metrics, and every refusal.

Floor 3, I/O.
It answers from the first second of a life, long before there is a model: a port that is open says
nothing here, the state does.
"""

import math
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import orjson
from aiohttp import web

from backends import answers
from backends.errors import (
    Draining,
    EngineFailed,
    InstanceError,
    NotReady,
    PromptTooLong,
    QueueFull,
    RequestInvalid,
    UnknownModel,
)
from backends.facts import Facts, Loaded
from backends.generate import Generator
from backends.kserve import KServe, is_kserve
from backends.metrics import exposition
from sluicegate.v1.states import State

BODY_MAX_BYTES: Final = 16 << 20  # several times the longest context as text
# Far above the gateway's 4 s: of two ends that may close an idle connection, the one that sends
# requests must be the first, or a request meets a closed door.
KEEPALIVE_S: Final = 75.0
CUT_S: Final = 0.2  # for handlers to leave once they are cancelled; whatever is held was cut before
PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class _Row:
    """How a refusal is told."""

    status: int
    type: str
    code: str | None
    refused: str = ""  # nothing was done, and it may be sent elsewhere
    retry_after_s: int = 0


# The most particular class first.
_ROWS: Final[tuple[tuple[type[InstanceError], _Row], ...]] = (
    (PromptTooLong, _Row(400, "invalid_request_error", "context_length_exceeded")),
    (RequestInvalid, _Row(400, "invalid_request_error", None)),
    (UnknownModel, _Row(404, "invalid_request_error", "model_not_found")),
    (QueueFull, _Row(503, "server_error", "full", refused="full", retry_after_s=1)),
    (Draining, _Row(503, "server_error", "draining", refused="draining", retry_after_s=1)),
    (NotReady, _Row(503, "server_error", "not_ready", retry_after_s=5)),
    (EngineFailed, _Row(500, "server_error", "engine_failed")),
)


class HttpApi:
    def __init__(self, facts: Facts, rng: Random, wall_s: Callable[[], float]) -> None:
        self._facts = facts
        self._generator = Generator(facts, rng, wall_s)
        self._kserve = KServe(facts, rng)
        self._created = int(wall_s())

    def app(self) -> web.Application:
        made = web.Application(client_max_size=BODY_MAX_BYTES, middlewares=[self._refusals])
        made.add_routes(
            [
                web.post("/v1/chat/completions", self._generator.chat),
                web.post("/v1/completions", self._generator.completions),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{model}", self._model),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/startupz", self._startupz),
                web.get("/metrics", self._metrics),
                *self._kserve.routes(),
            ]
        )
        return made

    # --- refusals -----------------------------------------------------------------------------

    @web.middleware
    async def _refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except InstanceError as exc:
            return self._refusal(exc, request)
        except web.HTTPException as exc:  # aiohttp's own: no such path, method or room for a body
            kept = {name: exc.headers[name] for name in ("Allow",) if name in exc.headers}
            row = _Row(exc.status, "invalid_request_error", None)
            return _answer(exc.status, _told(request, exc.reason, row, None, {}), kept)

    def _refusal(self, exc: InstanceError, request: web.Request) -> web.Response:
        row = next(row for kind, row in _ROWS if isinstance(exc, kind))
        param = exc.path or None if isinstance(exc, RequestInvalid) else None
        if isinstance(exc, UnknownModel):
            param = "model"
        more = self._standing() if isinstance(exc, NotReady) else {}
        headers = {}
        if row.refused:
            headers["x-sluicegate-refused"] = row.refused
        if row.retry_after_s:
            headers["Retry-After"] = str(row.retry_after_s)
        return _answer(row.status, _told(request, str(exc), row, param, more), headers)

    def _standing(self) -> dict[str, object]:
        standing = self._facts.life.standing
        return {
            "state": standing.state.name,
            "phase": standing.phase.name.lower(),
            "progress": math.floor(standing.progress),  # 100 only when it is done
            "reason": standing.reason,
        }

    # --- everything that generates nothing ----------------------------------------------------

    async def _models(self, _: web.Request) -> web.Response:
        return _answer(200, {"object": "list", "data": [self._card()]})

    async def _model(self, http: web.Request) -> web.Response:
        name = http.match_info["model"]
        if name != self._facts.identity.model:
            raise UnknownModel(f"this instance serves {self._facts.identity.model}, not {name!r}")
        return _answer(200, self._card())

    def _card(self) -> dict[str, object]:
        identity, loaded = self._facts.identity, self._facts.loaded
        context = loaded.max_seq_len if isinstance(loaded, Loaded) else None
        return answers.model_card(identity.model, identity.version, self._created, context)

    async def _livez(self, _: web.Request) -> web.Response:
        return _answer(200, self._standing())

    async def _readyz(self, _: web.Request) -> web.Response:
        return self._probe(State.READY)

    async def _startupz(self, _: web.Request) -> web.Response:
        return self._probe(State.READY, State.DRAINING)  # a draining instance did start

    def _probe(self, *passing: State) -> web.Response:
        passed = self._facts.life.standing.state in passing
        return _answer(200 if passed else 503, self._standing())

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=exposition(self._facts), headers={"Content-Type": PROMETHEUS_TEXT})


class HttpServer:
    """The listening socket and what is behind it. Bound when made, so the address is known."""

    def __init__(self, api: HttpApi, host: str, port: int) -> None:
        """Raises: OSError if the address cannot be bound."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as exc:
            raise OSError(f"cannot listen on {host}:{port}: {exc.strerror or exc}") from exc
        self.port: int = self._socket.getsockname()[1]
        self._runner = web.AppRunner(
            api.app(),
            access_log=None,  # the gateway writes one
            handler_cancellation=True,  # a client that leaves takes its request along
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=CUT_S,
        )

    async def start(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()

    async def close(self) -> None:
        """Close the port and every connection; answers that are still going on are cut."""
        await self._runner.cleanup()


def _told(
    request: web.Request, message: str, row: _Row, param: str | None, more: dict[str, object]
) -> dict[str, object]:
    """The document of a refusal, as the protocol of the path spells it."""
    if is_kserve(request.path):
        return {"error": message, **more}
    return answers.error(message, row.type, param, row.code, more)


def _answer(
    status: int, document: dict[str, object], headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status,
        body=orjson.dumps(document),
        content_type="application/json",
        headers=headers,
    )
