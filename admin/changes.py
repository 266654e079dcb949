"""Routes that change something: read the body, check all of it, ask, answer with the receipt.

Floor 3, I/O.
Every change takes `?wait=1` (answer once all workers serve it), `?dry_run=1` (say what would
change) and `If-Match: <revision>` (only while nobody has changed anything since).
"""

import asyncio
from typing import Any, Final

import orjson
from aiohttp import web

from admin import requests, views
from admin.answers import CONTROL, check, checked, drain_document, json_answer
from admin.openapi import SAYS
from admin.refusals import Refused
from gateway.control import (
    Ask,
    CancelLease,
    Reload,
    RemoveInstance,
    ResetInstanceWeight,
    ResetWeights,
    StartInstance,
    UndrainInstance,
)

NAME_MAX: Final = 80
BODY_S: Final = 30.0  # for a body to come
BODY_MAX_BYTES: Final = 1 << 20  # a config.toml with thousands of instances fits


async def add_instance(request: web.Request) -> web.Response:
    return await _carry_out(request, checked(requests.add_instance(await _body(request))))


async def remove_instance(request: web.Request) -> web.Response:
    check(requests.nothing(await _body(request)))
    return await _carry_out(request, RemoveInstance(request.match_info["instance"]))


async def set_instance_weight(request: web.Request) -> web.Response:
    name, body = request.match_info["instance"], await _body(request)
    return await _carry_out(request, checked(requests.set_instance_weight(name, body)))


async def reset_instance_weight(request: web.Request) -> web.Response:
    check(requests.nothing(await _body(request)))
    return await _carry_out(request, ResetInstanceWeight(request.match_info["instance"]))


async def drain_instance(request: web.Request) -> web.Response:
    """Answers with the drain beside the receipt: a second one finds the one that runs."""
    name, body = request.match_info["instance"], await _body(request)
    receipt = await _asked(request, checked(requests.drain_instance(name, body)))
    return json_answer({**receipt, "drain": drain_document(request.app[CONTROL], name)})


async def undrain_instance(request: web.Request) -> web.Response:
    check(requests.nothing(await _body(request)))
    return await _carry_out(request, UndrainInstance(request.match_info["instance"]))


async def stop_instance(request: web.Request) -> web.Response:
    name, body = request.match_info["instance"], await _body(request)
    return await _carry_out(request, checked(requests.stop_instance(name, body)))


async def start_instance(request: web.Request) -> web.Response:
    check(requests.nothing(await _body(request)))
    return await _carry_out(request, StartInstance(request.match_info["instance"]))


async def set_weights(request: web.Request) -> web.Response:
    name, body = request.match_info["model"], await _body(request)
    return await _carry_out(request, checked(requests.set_weights(name, body)))


async def reset_weights(request: web.Request) -> web.Response:
    check(requests.nothing(await _body(request)))
    return await _carry_out(request, ResetWeights(request.match_info["model"]))


async def cancel_lease(request: web.Request) -> web.Response:
    check(requests.nothing(await _body(request)))
    return await _carry_out(request, CancelLease(request.match_info["request_id"]))


async def reload(request: web.Request) -> web.Response:
    check(requests.nothing(await _body(request)))
    return await _carry_out(request, Reload())


async def check_config(request: web.Request) -> web.Response:
    """Changes nothing; a POST because the candidate is a body."""
    check(requests.plain(request.query))
    text = checked(requests.config_text(await _body(request), BODY_MAX_BYTES))
    return json_answer(views.checked(request.app[CONTROL].check(text)))


# --- shared --------------------------------------------------------------------------------------


async def _carry_out(request: web.Request, ask: Ask) -> web.Response:
    return json_answer(await _asked(request, ask))


async def _asked(request: web.Request, ask: Ask) -> views.Document:
    how = checked(requests.options(request.query, request.headers.get("If-Match")))
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


async def _body(request: web.Request) -> Any:
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
