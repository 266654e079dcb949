"""What every change shares: the body as it comes, how it is to be made, and its receipt.

Floor 3, I/O.
Every change takes `?wait=1` (answer once all workers serve it), `?dry_run=1` (say what would
change) and `If-Match: <revision>` (only while nobody has changed anything since).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import orjson
from aiohttp import web

from admin import requests, views
from admin.answers import CONTROL, Wanted, check, checked, json_answer
from admin.fields import Problems
from admin.openapi import SAYS
from admin.refusals import Refused
from gateway.control import Ask

NAME_MAX: Final = 80
BODY_S: Final = 30.0  # for a body to come
BODY_MAX_BYTES: Final = 1 << 20  # a config.toml with thousands of instances fits


async def carry_out(request: web.Request, ask: Ask, also: tuple[str, ...] = ()) -> web.Response:
    return json_answer(await asked(request, ask, also))


async def asked(request: web.Request, ask: Ask, also: tuple[str, ...] = ()) -> views.Document:
    """The receipt. `also`: parameters that the ask was made of."""
    how = checked(requests.options(request.query, request.headers.get("If-Match"), also))
    receipt = await request.app[CONTROL].ask(
        ask, wait=how.wait, dry_run=how.dry_run, revision=how.revision, by=_caller(request)
    )
    return views.receipt(receipt, how.dry_run)


def _caller(request: web.Request) -> str:
    """Who asks, as he says himself, and from where: for the history. Nothing is decided by it."""
    where = request.remote or "this machine"
    said = request.headers.get(SAYS, "")
    name = "".join(one for one in said if one.isascii() and one.isprintable())[:NAME_MAX]
    return f"{name or 'somebody'} at {where}"


async def from_path(request: web.Request, key: str, make: Callable[[str], Wanted]) -> Wanted:
    """What is made of a name in the path alone.

    Raises: Refused when the body says anything.
    """
    check(requests.nothing(await body_of(request)))
    return make(request.match_info[key])


async def from_body(
    request: web.Request, key: str, parse: Callable[[str, Any], Wanted | Problems]
) -> Wanted:
    """What is made of a name in the path and of the body.

    Raises: Refused when that has problems.
    """
    return checked(parse(request.match_info[key], await body_of(request)))


async def body_of(request: web.Request) -> Any:
    """The JSON document that was sent; no body at all counts as `{}`.

    Raises: Refused when it is not JSON, or slow; HTTPRequestEntityTooLarge past BODY_MAX_BYTES.
    """
    if (request.content_length or 0) > BODY_MAX_BYTES:  # nobody waits for what is refused
        raise Refused("body_too_large", f"a body has at most {BODY_MAX_BYTES} bytes")
    try:
        async with asyncio.timeout(BODY_S):
            raw = await request.read()
    except TimeoutError:
        raise Refused(
            "slow_body", f"the body has not come in {BODY_S:g} s: send it again"
        ) from None
    if not raw:
        return {}
    if request.content_type != "application/json":
        # Also keeps out forms, which a page of another site may send without asking (CORS).
        raise Refused("not_json_type", f"send application/json, not {request.content_type[:80]}")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as exc:
        raise Refused("not_json", f"the body is not JSON: {exc}") from None
