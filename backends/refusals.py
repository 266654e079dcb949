"""How an instance says no over HTTP: one row for each error, in the shape that the path speaks.

Floor 3, no I/O.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson
from aiohttp import web

from backends.errors import (
    Draining,
    EngineFailed,
    InstanceError,
    NotReady,
    PromptTooLong,
    QueueFull,
    RequestInvalid,
    ServerAway,
    ServerGone,
    UnknownModel,
)
from backends.lifecycle import Standing

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
    (ServerAway, _Row(503, "server_error", "server_away", refused="away", retry_after_s=1)),
    (ServerGone, _Row(502, "server_error", "server_gone")),
    (EngineFailed, _Row(500, "server_error", "engine_failed")),
)


class Refusals:
    """`standing`: of the instance that says no."""

    def __init__(self, standing: Callable[[], Standing]) -> None:
        self._standing = standing

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except InstanceError as exc:
            return self._refusal(exc, request)
        except web.HTTPException as exc:  # aiohttp's own: no such path, method or room for a body
            kept = {name: exc.headers[name] for name in ("Allow",) if name in exc.headers}
            row = _Row(exc.status, "invalid_request_error", None)
            return answer(exc.status, _told(request, exc.reason, row, None, {}), kept)
        except web.RequestPayloadError as exc:  # chunks that are none, bytes that are no gzip
            row = next(row for kind, row in _ROWS if kind is RequestInvalid)
            words = f"the body cannot be read: {' '.join(str(exc).split())}"
            return answer(row.status, _told(request, words, row, None, {}))

    def _refusal(self, exc: InstanceError, request: web.Request) -> web.Response:
        row = next(row for kind, row in _ROWS if isinstance(exc, kind))
        param = exc.path or None if isinstance(exc, RequestInvalid) else None
        if isinstance(exc, UnknownModel):
            param = "model"
        more = described(self._standing()) if isinstance(exc, NotReady) else {}
        headers = {}
        if row.refused:
            headers["x-sluicegate-refused"] = row.refused
        if row.retry_after_s:
            headers["Retry-After"] = str(row.retry_after_s)
        return answer(row.status, _told(request, str(exc), row, param, more), headers)


def described(standing: Standing) -> dict[str, object]:
    return {
        "state": standing.state.name,
        "phase": standing.phase.name.lower(),
        "progress": math.floor(standing.progress),  # 100 only when it is done
        "reason": standing.reason,
    }


def is_kserve(path: str) -> bool:
    return path == "/v2" or path.startswith("/v2/")


def _told(
    request: web.Request, message: str, row: _Row, param: str | None, more: dict[str, object]
) -> dict[str, object]:
    """The document of a refusal, as the protocol of the path spells it."""
    if is_kserve(request.path):
        return {"error": message, **more}
    return openai_error(message, row.type, param, row.code, more)


def openai_error(
    message: str, kind: str, param: str | None, code: str | None, more: Mapping[str, object]
) -> dict[str, object]:
    """OpenAI's shape of an error; `more` stands beside its four fields."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code, **more}}


def answer(
    status: int, document: Mapping[str, object], headers: Mapping[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status,
        body=orjson.dumps(document),
        content_type="application/json",
        headers=headers,
    )
