"""The admin API as one aiohttp application, over the one object that admin holds.

Floor 4, no I/O of its own.
Nothing here decides: `requests` reads, `views` writes, `guard` and `refusals` say no, the control
process does what it is asked. The routes are those of `openapi`; a test walks both.
"""

from typing import Final

from aiohttp import web

from admin import changes, reading
from admin.answers import CONTROL, guarding, refusing
from admin.asking import BODY_MAX_BYTES
from admin.events import Streams
from admin.openapi import PREFIX
from admin.rollouts import routes as rollouts
from gateway.control import Control

IDLE_S: Final = 60.0  # for a request's head, and between two: longer than scrapes are apart


def served(app: web.Application, farewell_s: float, idle_s: float = IDLE_S) -> web.AppRunner:
    """The app's runner. Who connects and asks nothing is not kept, nor who is slow to ask."""
    return web.AppRunner(
        app, access_log=None, shutdown_timeout=farewell_s, keepalive_timeout=idle_s
    )


def create_app(control: Control) -> web.Application:
    """The application for the admin socket; its runner's cleanup ends open event streams."""
    app = web.Application(middlewares=[refusing, guarding], client_max_size=BODY_MAX_BYTES)
    app[CONTROL] = control
    app[reading.STREAMS] = streams = Streams()

    async def close_streams(_: web.Application) -> None:
        streams.close()

    app.on_shutdown.append(close_streams)
    app.add_routes(_beside())
    app.add_routes(_under(PREFIX))
    app.add_routes(_of_rollouts(PREFIX))
    return app


def _beside() -> list[web.RouteDef]:
    return [
        web.get("/", reading.landing),
        web.get("/metrics", reading.metrics),
        web.get("/livez", reading.livez),
        web.get("/readyz", reading.readyz),
        web.get("/startupz", reading.startupz),
    ]


def _under(prefix: str) -> list[web.RouteDef]:
    instance = f"{prefix}/instances/{{instance}}"
    return [
        web.get(f"{prefix}/status", reading.status),
        web.get(f"{prefix}/instances", reading.instances),
        web.post(f"{prefix}/instances", changes.add_instance),
        web.get(instance, reading.instance),
        web.delete(instance, changes.remove_instance),
        web.put(f"{instance}/weight", changes.set_instance_weight),
        web.delete(f"{instance}/weight", changes.reset_instance_weight),
        web.put(f"{instance}/drain", changes.drain_instance),
        web.delete(f"{instance}/drain", changes.undrain_instance),
        web.post(f"{instance}/stop", changes.stop_instance),
        web.post(f"{instance}/start", changes.start_instance),
        web.get(f"{prefix}/drains", reading.drains),
        web.get(f"{prefix}/drains/{{instance}}", reading.drain),
        web.get(f"{prefix}/models", reading.models),
        web.get(f"{prefix}/models/{{model}}", reading.model),
        web.put(f"{prefix}/models/{{model}}/weights", changes.set_weights),
        web.delete(f"{prefix}/models/{{model}}/weights", changes.reset_weights),
        web.get(f"{prefix}/leases", reading.leases),
        web.delete(f"{prefix}/leases/{{request_id}}", changes.cancel_lease),
        web.get(f"{prefix}/events", reading.events, allow_head=False),  # a HEAD would never end
        web.get(f"{prefix}/history", reading.history),
        web.get(f"{prefix}/config", reading.config),
        web.post(f"{prefix}/config/check", changes.check_config),
        web.post(f"{prefix}/config/reload", changes.reload),
        web.get(f"{prefix}/openapi.json", reading.openapi),
    ]


def _of_rollouts(prefix: str) -> list[web.RouteDef]:
    one = f"{prefix}/models/{{model}}/rollout"
    return [
        web.get(f"{prefix}/rollouts", rollouts.every),
        web.get(f"{one}s", rollouts.history),
        web.get(one, rollouts.latest),
        web.post(one, rollouts.start),
        web.post(f"{one}/promote", rollouts.promote),
        web.post(f"{one}/pause", rollouts.pause),
        web.post(f"{one}/resume", rollouts.resume),
        web.post(f"{one}/abort", rollouts.abort),
        web.post(f"{one}/retry", rollouts.retry),
    ]
