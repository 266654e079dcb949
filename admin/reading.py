"""Routes that read: views of the fleet, config, events, metrics and the gateway's own probes.

Floor 3, I/O.
None of them changes anything, whatever it is called with. A parameter that a route does not know is
refused: a misspelt filter must not list everything as if it had been heeded.
"""

from typing import Final

from aiohttp import web

from admin import probes, requests, views
from admin.answers import (
    CONTROL,
    check,
    checked,
    drain_document,
    instance_document,
    json_answer,
    numbered,
)
from admin.events import Streams
from admin.openapi import specification
from admin.refusals import Refused

STREAMS: Final = web.AppKey("streams", Streams)
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus' text format
LANDING: Final = """\
Sluicegate, admin port.

  sluicegate status               what runs, what is ready, what is wrong
  sluicegate --help               every verb

  GET /admin/v1/status            the same as JSON
  GET /admin/v1/openapi.json      every call
  GET /metrics                    for Prometheus
  GET /livez /readyz /startupz    probes of the gateway itself
"""


async def landing(_: web.Request) -> web.Response:
    return web.Response(text=LANDING)


async def metrics(request: web.Request) -> web.Response:
    text = request.app[CONTROL].metrics()
    return web.Response(body=text, headers={"Content-Type": METRICS_TYPE})


# --- probes --------------------------------------------------------------------------------------


async def livez(request: web.Request) -> web.Response:
    return _probe(probes.alive(request.app[CONTROL].status()))


async def readyz(request: web.Request) -> web.Response:
    return _probe(probes.ready(request.app[CONTROL].status()))


async def startupz(request: web.Request) -> web.Response:
    return _probe(probes.started(request.app[CONTROL].status()))


def _probe(probe: probes.Probe) -> web.Response:
    return json_answer({"ok": probe.ok, "reason": probe.reason}, 200 if probe.ok else 503)


# --- the fleet -----------------------------------------------------------------------------------


async def status(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    return json_answer(views.status(request.app[CONTROL].status()))


async def instances(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    control = request.app[CONTROL]
    return numbered(control, "instances", [views.instance(one) for one in control.instances()])


async def instance(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    return json_answer(instance_document(request.app[CONTROL], request.match_info["instance"]))


async def drains(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    control = request.app[CONTROL]
    return numbered(control, "drains", [views.drain(one) for one in control.drains()])


async def drain(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    control, name = request.app[CONTROL], request.match_info["instance"]
    document = drain_document(control, name)
    if document is None:
        instance_document(control, name)  # when there is no such instance, say that instead
        raise Refused("unknown_drain", f"no drain of {name} runs or has ended")
    return json_answer(document)


async def models(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    control = request.app[CONTROL]
    return numbered(control, "models", [views.model(one) for one in control.models()])


async def model(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    name = request.match_info["model"]
    for one in request.app[CONTROL].models():
        if one.name == name:
            return json_answer(views.model(one))
    raise Refused("unknown_model", f"no model is called {name}")


async def leases(request: web.Request) -> web.Response:
    wanted = checked(requests.lease_filter(request.query))
    control = request.app[CONTROL]
    found = control.leases(wanted.instance, wanted.model)
    return numbered(control, "leases", [views.lease(one) for one in found])


async def events(request: web.Request) -> web.StreamResponse:
    wanted = checked(requests.following(request.query, request.headers.get("Last-Event-ID")))
    streams = request.app[STREAMS]
    streams.check_room()
    return await streams.serve(request, request.app[CONTROL].events(wanted.after), wanted)


async def history(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    control = request.app[CONTROL]
    return numbered(control, "history", [views.change(one) for one in control.history()])


async def config(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    control = request.app[CONTROL]
    return numbered(control, "config", control.config())


async def openapi(request: web.Request) -> web.Response:
    check(requests.plain(request.query))
    return json_answer(specification())
