"""Routes of rollouts: what runs, what has ended, and the verbs.

Floor 3, I/O.
Every verb answers with its receipt and, beside it, the rollout as it is then.
"""

from aiohttp import web

from admin import requests, views
from admin.answers import CONTROL, check, json_answer, numbered
from admin.asking import asked, from_body, from_path
from admin.refusals import Refused
from admin.rollouts import requests as bodies
from gateway.control import Control, PauseRollout, ResumeRollout, RolloutAsk, RolloutView


async def every(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    return _listed(request.app[CONTROL], request.app[CONTROL].rollouts(None))


async def history(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    control, model = request.app[CONTROL], _model(request)
    return _listed(control, control.rollouts(model))


def _listed(control: Control, found: tuple[RolloutView, ...]) -> web.Response:
    return numbered(control, "rollouts", [views.rollout(one) for one in found])


async def latest(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    model = _model(request)
    document = _latest(request.app[CONTROL], model)
    if document is None:
        raise Refused("unknown_rollout", f"no rollout of {model} runs or has ended")
    return json_answer(document)


async def start(request: web.Request) -> web.Response:
    return await _carry_out(request, await from_body(request, "model", bodies.start))


async def promote(request: web.Request) -> web.Response:
    return await _carry_out(request, await from_body(request, "model", bodies.promote))


async def pause(request: web.Request) -> web.Response:
    return await _carry_out(request, await from_path(request, "model", PauseRollout))


async def resume(request: web.Request) -> web.Response:
    return await _carry_out(request, await from_path(request, "model", ResumeRollout))


async def abort(request: web.Request) -> web.Response:
    return await _carry_out(request, await from_body(request, "model", bodies.abort))


async def retry(request: web.Request) -> web.Response:
    return await _carry_out(request, await from_body(request, "model", bodies.retry))


# --- shared --------------------------------------------------------------------------------------


async def _carry_out(request: web.Request, ask: RolloutAsk) -> web.Response:
    receipt = await asked(request, ask)
    return json_answer({**receipt, "rollout": _latest(request.app[CONTROL], ask.model)})


def _model(request: web.Request) -> str:
    """Raises: Refused when there is no such model."""
    name = request.match_info["model"]
    if name not in {one.name for one in request.app[CONTROL].models()}:
        raise Refused("unknown_model", f"no model is called {name}")
    return name


def _latest(control: Control, model: str) -> views.Document | None:
    """The one that runs; else the one that ended last."""
    return next((views.rollout(one) for one in control.rollouts(model)), None)
