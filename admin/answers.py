"""What every route shares: the control facade it reads, JSON out, and how it says no.

Floor 3, I/O.
`refusing` and `guarding` are the app's middlewares: whatever a route raises becomes one shape of
error, aiohttp's own refusals too. Bugs pass through and become aiohttp's 500.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import orjson
from aiohttp import web

from admin import guard, refusals, views
from admin.fields import Problems
from admin.refusals import Refused
from gateway.control import Control, Denied

CONTROL: Final = web.AppKey("control", Control)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Wanted = TypeVar("Wanted")


def json_answer(document: views.Document, status: int = 200) -> web.Response:
    body = orjson.dumps(document)
    return web.Response(body=body, status=status, content_type="application/json")


def numbered(control: Control, name: str, contents: Any) -> web.Response:
    return json_answer(views.numbered(name, contents, control.status()))


def checked(parsed: Wanted | Problems) -> Wanted:
    """What was asked for.

    Raises: Refused when it has problems.
    """
    if isinstance(parsed, tuple):
        raise refusals.invalid(parsed)
    return parsed


def check(problems: Problems) -> None:
    """Raises: Refused when there are problems."""
    if problems:
        raise refusals.invalid(problems)


def instance_document(control: Control, name: str) -> views.Document:
    for one in control.instances():
        if one.id == name:
            return views.instance(one)
    raise Refused("unknown_instance", f"no instance is called {name}")


def drain_document(control: Control, name: str) -> views.Document | None:
    """The drain of the instance that runs, or ended last."""
    return next((views.drain(one) for one in control.drains() if one.instance == name), None)


# --- middlewares ---------------------------------------------------------------------------------


@web.middleware
async def refusing(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as exc:
        return _refusal(exc)
    except Denied as exc:
        return _refusal(refusals.of_denied(exc))
    except web.HTTPNotFound:
        return _refusal(Refused("unknown_path", f"{request.path}: see /admin/v1/openapi.json"))
    except web.HTTPMethodNotAllowed as exc:
        allowed = ", ".join(sorted(exc.allowed_methods))
        refused = Refused("method_refused", f"{request.path} takes {allowed}, not {exc.method}")
        answer = _refusal(refused)
        answer.headers["Allow"] = allowed
        return answer
    except web.HTTPRequestEntityTooLarge as exc:
        return _refusal(Refused("body_too_large", exc.text or "the body is too large"))


@web.middleware
async def guarding(request: web.Request, handler: Handler) -> web.StreamResponse:
    guard.check_host(request.host)
    guard.check_origin(request.method, request.host, request.headers.get("Origin"))
    return await handler(request)


def _refusal(refused: Refused) -> web.Response:
    answer = json_answer(refusals.document(refused), refused.status)
    answer.headers["x-sluicegate-error"] = refused.code
    return answer
