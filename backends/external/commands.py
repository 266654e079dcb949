"""`sluicegate agent -- COMMAND`: one process that stands for a server of somebody else.

Floor 5: wiring and signals.
Exit codes as of `sluicegate instance`: 0 stopped as ordered, 1 failed (worth a restart), 2 wrong
arguments or an address that is taken, 70 whoever started us is gone, 78 a restart would change
nothing. Standard output stays empty.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from random import Random
from typing import Any, Final

import click
import uvloop

from backends.device import measure
from backends.errors import CannotListen
from backends.external.presets import PLAIN, PRESETS, Preset, Protocol
from backends.external.settings import AgentSettings
from backends.external.standin import StandIn
from backends.external.work import AgentWork
from backends.gate import Gate
from backends.life import Life
from backends.living import Ending, Living
from backends.log import configure
from backends.options import EXIT_ADDRESS, address, advertised, name
from backends.settings import Address
from backends.status import Identity
from sluicegate.processes import adopt_orphans, descendants, end_with, kill

log = logging.getLogger(__name__)

# Ours alone: a server has no business with them.
SECRETS: Final = ("SLUICEGATE_LAUNCH_TOKEN", "SLUICEGATE_UPSTREAM_KEY")

EPILOG = """\b
Examples:
  sluicegate agent --model qwen --version 1 --preset vllm-mindspore -- \\
      vllm-mindspore serve /models/qwen --served-model-name qwen --port {port}
  sluicegate agent --model digits --version 1 --protocol kserve --upstream 127.0.0.1:8000 -- \\
      my-kserve-server
"""


def _environment(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    if wrong := [value for value in values if "=" not in value]:
        raise click.BadParameter(f"must be NAME=VALUE, not {wrong[0]!r}")
    return dict(value.split("=", 1) for value in values)


def _lengths(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        lengths = tuple(int(part) for part in value.split(",") if part)
    except ValueError:
        lengths = (-1,)
    if any(length < 1 for length in lengths):
        raise click.BadParameter(f"must be numbers of words like 50,300, not {value!r}")
    return lengths


def _options(command: Any) -> Any:
    seconds, count = click.FloatRange(min=0, min_open=True), click.IntRange(min=1)
    grace = click.FloatRange(min=0)
    unset: dict[str, Any] = {"default": "", "show_default": False}
    protocols = click.Choice([one.value for one in Protocol])
    listed = [
        click.option("--model", required=True, callback=name, help="Its name, here and there."),
        click.option("--version", required=True, callback=name, help="Its version."),
        click.option("--preset", type=click.Choice(tuple(PRESETS)), help="A server that is known."),
        click.option("--protocol", type=protocols, help="[default: openai]"),
        click.option("--upstream", **unset, help="HOST:PORT of the server; else {port}."),
        click.option("--health", **unset, help="Path or URL; 200 once it can answer."),
        click.option("--models", **unset, help="Path or URL of the list of its models."),
        click.option("--metrics", default=None, help="Path or URL; empty: it has none."),
        click.option("--verify", **unset, help="Path that the verification request goes to."),
        click.option("--verify-prompt", default="Hello", help="What it asks."),
        click.option("--warm-up", default="50,300,1000", callback=_lengths, help="Words each."),
        click.option("--env", multiple=True, callback=_environment, help="NAME=VALUE for it."),
        click.option("--max-concurrency", type=count, default=256, help="Requests at once."),
        click.option("--queue-max", type=click.IntRange(min=0), default=16, help="And waiting."),
        click.option("--load-timeout-s", type=seconds, default=1800.0, help="From start to READY."),
        click.option("--verify-timeout-s", type=seconds, default=300.0, help="It may compile."),
        click.option("--health-interval-s", type=seconds, default=2.0, help="Once READY."),
        click.option("--health-timeout-s", type=seconds, default=5.0, help="For each answer."),
        click.option("--health-failures", type=count, default=3, help="In a row: ERROR."),
        click.option("--kill-after-s", type=grace, default=5.0, help="SIGTERM to SIGKILL."),
        click.option("--instance-id", **unset, callback=name, help="Default: MODEL-VERSION."),
        click.option("--http", default="127.0.0.1:0", callback=address, help="HOST:PORT, 0: any."),
        click.option("--grpc", default="127.0.0.1:0", callback=address, help="HOST:PORT, 0: any."),
        click.option("--advertise", **unset, help="Host that others reach this one at."),
        click.option("--registry", **unset, help="HOST:PORT of the gateway's registry."),
        click.option("--launch-token", **unset, envvar=SECRETS[0], hidden=True),
        click.option("--key", **unset, envvar=SECRETS[1], hidden=True),
        click.option("--device", **unset, help="Name of the device in the gateway's config."),
        click.option("--device-kind", type=click.Choice(("cpu", "gpu", "ascend")), default="cpu"),
        click.option("--grace-s", type=grace, default=30.0, help="Of a drain and of SIGTERM."),
        click.option("--error-linger-s", type=grace, default=30.0, help="Before exit in ERROR."),
        click.option("--life-fd", type=click.IntRange(min=0), default=None, hidden=True),
        click.argument("command", nargs=-1, required=True),
    ]
    for option in reversed(listed):
        command = option(command)
    return command


@click.command(epilog=EPILOG, context_settings={"show_default": True})
@_options
def agent(life_fd: int | None, **given: Any) -> None:
    """Start COMMAND, a server of the OpenAI API or of KServe v2, and stand for it.

    Requests go through a thin proxy that counts them; READY is told once health, list of models, a
    verification request and warm-up samples are fine; a drain, a stop and the gateway's end are
    carried out on the server. In COMMAND and --env, {port}, {host}, {model} and {version} are
    filled in. The server must know the model by the name of --model.
    """
    if life_fd is not None:
        end_with(life_fd)
    adopt_orphans()
    try:
        settings = settle(given)
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc
    configure(settings.instance_id, settings.model, settings.version)
    try:
        ending = uvloop.run(_run(settings))
    except CannotListen as exc:
        log.error("cannot listen", extra={"reason": str(exc)})
        sys.exit(EXIT_ADDRESS)
    logging.shutdown()
    sys.exit(ending.code)


def settle(given: dict[str, Any]) -> AgentSettings:
    """What was given, with what the preset says and the port that was chosen.

    Raises: ValueError with a sentence.
    """
    named, protocol = given.pop("preset"), given.pop("protocol")
    preset: Preset = PRESETS[named] if named else PLAIN[Protocol(protocol or Protocol.OPENAI)]
    environment: dict[str, str] = {**preset.environment, **given.pop("env")}
    command: tuple[str, ...] = given.pop("command")
    upstream = Address.parse(given.pop("upstream") or preset.upstream or "127.0.0.1:0")
    if upstream.port == 0:
        if not any("{port}" in part for part in (*command, *environment.values())):
            raise ValueError("say where the server listens: --upstream HOST:PORT, or {port} in it")
        upstream = Address(upstream.host, _free_port(upstream.host))
    filled = {
        "port": str(upstream.port),
        "host": upstream.host,
        "model": given["model"],
        "version": given["version"],
    }
    given = advertised(given)
    given["instance_id"] = given["instance_id"] or f"{given['model']}-{given['version']}"
    base = f"http://{upstream.reached_at(upstream.port, '')}"
    metrics = given.pop("metrics")
    return AgentSettings(
        command=tuple(_fill(part, filled) for part in command),
        environment={key: _fill(value, filled) for key, value in environment.items()},
        upstream=upstream,
        protocol=Protocol(protocol) if protocol else preset.protocol,
        health=_place(given.pop("health") or preset.health, base, filled),
        models=_place(given.pop("models") or preset.models, base, filled),
        metrics=_place(preset.metrics if metrics is None else metrics, base, filled),
        **given,
    )


def _fill(part: str, filled: Mapping[str, str]) -> str:
    """Other braces stay as they are: they may be JSON."""
    for key, value in filled.items():
        part = part.replace(f"{{{key}}}", value)
    return part


def _place(place: str, base: str, filled: Mapping[str, str]) -> str:
    """Raises: ValueError."""
    place = _fill(place, filled)
    if not place or place.startswith(("http://", "https://")):
        return place
    if not place.startswith("/"):
        raise ValueError(f"{place!r} must be a path that begins with /, or a whole URL")
    return base + place


def _free_port(host: str) -> int:
    """A port that nobody has now. Should somebody take it before the server does, the server fails
    to bind it, exits, and is started again with another."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as one:
        one.bind((host, 0))
        port: int = one.getsockname()[1]
        return port


async def _run(settings: AgentSettings) -> Ending:
    """Raises: CannotListen."""
    rng, gate = Random(), Gate()
    identity = Identity(
        settings.instance_id, f"{rng.getrandbits(64):016x}", settings.model, settings.version
    )
    standin = StandIn(
        identity,
        gate,
        Life(settings.instance_id, gate),
        lambda: measure(settings.device_kind, settings.device),
        settings.max_concurrency,
    )
    environment = {key: value for key, value in os.environ.items() if key not in SECRETS}
    work = AgentWork(settings, standin, environment, rng, lambda: kill(descendants(os.getpid())))
    living = Living(settings, standin, work, rng)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, living.terminate)
    return await living.run()
