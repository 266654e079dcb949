"""Instances as child processes of the supervisor, each behind a guard.

Floor 3, I/O: one message.
`spawn` is pure: what is run, with which arguments, where its log goes, which device it sees. An
instance binds port 0 and says by registering where it can be reached; only the holder of the launch
token may use its name.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from gateway.config import Device, Model, Settings
from gateway.fleet.commands import Launch
from gateway.fleet.launches import CHILD, label
from gateway.fleet.registry import hashed
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
        _own(order, settings, model, device, registry)
        if model.command
        else _default(order, settings, model, device, registry)
    )
    return Spawn(
        name=f"{CHILD}{order.name}",
        command=(*_guard(order, settings), *command),
        descriptors={"instances_life": "instances_life"},
        environment={TOKEN: token, **sight(device)},
        handed_over=True,
        label=label(hashed(token), order.device),
    )


def _guard(order: Launch, settings: Settings) -> tuple[str, ...]:
    given = {
        "--life-fd": "{instances_life}",
        "--said-fd": "{said}",
        "--log": str(Path(settings.gateway.log_dir) / f"{order.name}.log"),
        "--log-max-bytes": str(settings.launch.log_max_bytes),
        "--instance-id": order.name,
        "--model": order.model,
        "--version": order.version,
    }
    pairs = (part for pair in given.items() for part in pair)
    return (sys.executable, "-P", "-m", "gateway.mains.guard", *pairs, "--")


def sight(device: Device) -> dict[str, str]:
    """Environment in which a process sees this device, as number 0, and no other accelerator."""
    seen = {"ASCEND_RT_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": ""}
    match device.kind:
        case "ascend":
            # DEVICE_ID counts among the visible ones: MindSpore's and older launchers' word for it.
            return {**seen, "ASCEND_RT_VISIBLE_DEVICES": str(device.index), "DEVICE_ID": "0"}
        case "gpu":
            # Numbers as nvidia-smi has them, not fastest first.
            order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
            return {**seen, **order, "CUDA_VISIBLE_DEVICES": str(device.index)}
        case _:
            return seen


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
        "--warmup-rounds": str(model.warmup_rounds),
        "--life-fd": "{instances_life}",
    }
    wanted = {
        "--threads": model.threads,
        "--memory-gb": model.memory_gb,
        "--load-threads": settings.launch.load_threads,
        "--load-nice": settings.launch.load_nice,
        "--warmup-baseline-ms": model.warmup_baseline_ms,
    }
    if settings.recorder.enabled:
        given["--warmup-samples"] = str(Path(settings.recorder.dir) / f"{order.model}.jsonl")
    given |= {name: f"{value:.10g}" for name, value in wanted.items() if value}
    pairs = (part for pair in given.items() for part in pair)
    switches = () if model.prefix_reuse else ("--no-prefix-reuse",)
    return (sys.executable, "-P", "-m", "gateway.cli", "instance", *pairs, *switches)


def _own(
    order: Launch, settings: Settings, model: Model, device: Device, registry: str
) -> tuple[str, ...]:
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
        "device": device.name,
        "device_kind": device.kind,
        "device_index": str(device.index),
        "threads": str(model.threads),
    }
    return tuple(_filled(part, known) for part in model.command)


def _filled(part: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        part = part.replace(f"{{{name}}}", value)
    return part
