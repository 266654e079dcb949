"""Routes that change something: weights, instances, drains, leases, config.

Floor 3, I/O.
Each reads its body, checks all of it, asks, and answers with the receipt.
"""

from aiohttp import web

from admin import requests, views
from admin.answers import CONTROL, check, checked, drain_document, json_answer
from admin.asking import BODY_MAX_BYTES, asked, body_of, carry_out, from_body, from_path
from gateway.control import (
    CancelLease,
    Reload,
    RemoveInstance,
    ResetInstanceWeight,
    ResetWeights,
    StartInstance,
    UndrainInstance,
)


async def add_instance(request: web.Request) -> web.Response:
    return await carry_out(request, checked(requests.add_instance(await body_of(request))))


async def remove_instance(request: web.Request) -> web.Response:
    return await carry_out(request, await from_path(request, "instance", RemoveInstance))


async def set_instance_weight(request: web.Request) -> web.Response:
    return await carry_out(
        request, await from_body(request, "instance", requests.set_instance_weight)
    )


async def reset_instance_weight(request: web.Request) -> web.Response:
    return await carry_out(request, await from_path(request, "instance", ResetInstanceWeight))


async def drain_instance(request: web.Request) -> web.Response:
    """Answers with the drain beside the receipt: a second one finds the one that runs."""
    ask = await from_body(request, "instance", requests.drain_instance)
    receipt = await asked(request, ask)
    return json_answer({**receipt, "drain": drain_document(request.app[CONTROL], ask.instance)})


async def undrain_instance(request: web.Request) -> web.Response:
    return await carry_out(request, await from_path(request, "instance", UndrainInstance))


async def stop_instance(request: web.Request) -> web.Response:
    return await carry_out(request, await from_body(request, "instance", requests.stop_instance))


async def start_instance(request: web.Request) -> web.Response:
    return await carry_out(request, await from_path(request, "instance", StartInstance))


async def set_weights(request: web.Request) -> web.Response:
    name, body = request.match_info["model"], await body_of(request)
    override = checked(requests.overriding(request.query))
    ask = checked(requests.set_weights(name, body, override))
    return await carry_out(request, ask, ("override",))


async def reset_weights(request: web.Request) -> web.Response:
    return await carry_out(request, await from_path(request, "model", ResetWeights))


async def cancel_lease(request: web.Request) -> web.Response:
    return await carry_out(request, await from_path(request, "request_id", CancelLease))


async def reload(request: web.Request) -> web.Response:
    check(requests.nothing(await body_of(request)))
    return await carry_out(request, Reload())


async def check_config(request: web.Request) -> web.Response:
    """Changes nothing; a POST because the candidate is a body."""
    check(requests.plain(request.query))
    text = checked(requests.config_text(await body_of(request), BODY_MAX_BYTES))
    return json_answer(views.checked(request.app[CONTROL].check(text)))
