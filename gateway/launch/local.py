"""Instances as child processes of the supervisor.

Floor 3, I/O: one message.
`spawn` is pure: what is run, with which arguments, where its log goes. An instance binds port 0 and
says by registering where it can be reached; only the holder of the launch token may use its name.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from gateway.config import Device, Model, Settings
from gateway.fleet.commands import Launch
from gateway.fleet.launches import CHILD
from gateway.messages import Message, Spawn

TOKEN = "SLUICEGATE_LAUNCH_TOKEN"  # in the environment: command lines are public


class LocalLauncher:
    """order: how the supervisor is told. registry: host:port of the Registry service."""

    def __init__(self, order: Callable[[Message], None], registry: str) -> None:
        self._order = order
        self._registry = registry

    def launch(self, order: Launch, settings: Settings, token: str) -> None:
        self._order(spawn(order, settings, self._registry, token))


def spawn(order: Launch, settings: Settings, registry: str, token: str) -> Spawn:
    """The order to the supervisor that starts this instance."""
    model = next(one for one in settings.model if one.name == order.model)
    device = next(one for one in settings.device if one.name == order.device)
    command = (
        _own(order, settings, model, registry)
        if model.command
        else _default(order, settings, model, device, registry)
    )
    return Spawn(
        name=f"{CHILD}{order.name}",
        command=command,
        descriptors={"instances_life": "instances_life"},
        environment={TOKEN: token},
        log=str(Path(settings.gateway.log_dir) / f"{order.name}.log"),
        handed_over=True,
    )


def _default(
    order: Launch, settings: Settings, model: Model, device: Device, registry: str
) -> tuple[str, ...]:
    given = {
        "--model": order.model,
        "--version": order.version,
        "--root": settings.repository.root,
        "--cache-root": settings.repository.cache,
        "--instance-id": order.name,
        "--registry": registry,
        "--device": device.name,
        "--device-kind": device.kind,
        "--grace-s": f"{settings.drain.grace_s:g}",
        "--error-linger-s": f"{settings.launch.error_linger_s:g}",
        "--life-fd": "{instances_life}",
    }
    if model.threads:
        given["--threads"] = str(model.threads)
    pairs = (part for pair in given.items() for part in pair)
    return (sys.executable, "-P", "-m", "gateway.cli", "instance", *pairs)


def _own(order: Launch, settings: Settings, model: Model, registry: str) -> tuple[str, ...]:
    """`command` of the model, with what is in braces filled in; {instances_life} is filled later.

    Other braces stay as they are: they may be JSON.
    """
    known = {
        "model": order.model,
        "version": order.version,
        "instance_id": order.name,
        "registry": registry,
        "root": settings.repository.root,
        "cache": settings.repository.cache,
        "device": order.device,
    }
    return tuple(_filled(part, known) for part in model.command)


def _filled(part: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        part = part.replace(f"{{{name}}}", value)
    return part
