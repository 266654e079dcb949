"""`sluicegate instance`: one process that serves one snapshot. `models` comes from the snapshots.

Floor 5: wiring and signals.
Exit codes: 0 stopped as ordered, 1 failed (worth a restart), 2 wrong arguments or an address that
is taken, 70 whoever started us is gone, 78 a restart would change nothing (snapshot, dependency).
Standard output stays empty: it belongs to whoever started us.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import click
import uvloop

from backends.engines.llm.cache import let_go
from backends.errors import EXIT_UNUSABLE, CannotListen, DependencyMissing
from backends.log import configure
from backends.options import EXIT_ADDRESS, address, advertised, name
from backends.settings import Settings
from backends.snapshots.roots import Root, read_root
from sluicegate.processes import end_with

if TYPE_CHECKING:
    from backends.living import Ending

log = logging.getLogger(__name__)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _root(context: click.Context, parameter: click.Parameter, value: str) -> Root:
    return read_root(value)


def _options(command: _Command) -> _Command:
    seconds, count = click.FloatRange(min=0), click.IntRange(min=1)
    folder = click.Path(file_okay=False, path_type=Path)
    file = click.Path(path_type=Path)  # whatever it is: it may come, or not, later
    listed = [
        click.option("--model", required=True, callback=name, help="Name of the model."),
        click.option("--version", required=True, callback=name, help="Its version."),
        click.option("--root", default="var/models", callback=_root, help="Model repository."),
        click.option("--instance-id", default="", callback=name, help="Default: MODEL-VERSION."),
        click.option("--http", default="127.0.0.1:0", callback=address, help="HOST:PORT, 0: any."),
        click.option("--grpc", default="127.0.0.1:0", callback=address, help="HOST:PORT, 0: any."),
        click.option("--advertise", default="", help="Host that others reach this one at."),
        click.option("--registry", default="", help="HOST:PORT of the gateway's registry."),
        click.option("--launch-token", default="", envvar="SLUICEGATE_LAUNCH_TOKEN", hidden=True),
        click.option("--device", default="", help="Name of the device in the gateway's config."),
        click.option("--device-kind", type=click.Choice(("cpu", "gpu", "ascend")), default="cpu"),
        click.option("--cache-root", type=folder, default=Path("var/cache"), help="Of compiles."),
        click.option("--threads", type=click.IntRange(min=0), default=0, help="0: all."),
        click.option("--slots", type=count, default=None, help="Default: the snapshot's."),
        click.option("--max-seq-len", type=count, default=None, help="Default: the snapshot's."),
        click.option(
            "--prefix-reuse/--no-prefix-reuse", default=True, help="Of prompts' beginnings."
        ),
        click.option("--memory-gb", type=seconds, default=0.0, help="0: measured, or manifest's."),
        click.option("--load-threads", type=click.IntRange(min=0), default=0, help="CPUs; 0: all."),
        click.option("--load-nice", type=click.IntRange(0, 19), default=0, help="While it loads."),
        click.option("--warmup-rounds", type=click.IntRange(0, 1000), default=3, help="0: none."),
        click.option("--warmup-samples", type=file, default=None, help="Recorded requests, JSONL."),
        click.option("--warmup-baseline-ms", type=seconds, default=0.0, help="Pace needed."),
        click.option("--queue-max", type=click.IntRange(min=0), default=16, help="Waiting here."),
        click.option("--grace-s", type=seconds, default=30.0, help="Of a drain and of SIGTERM."),
        click.option("--error-linger-s", type=seconds, default=30.0, help="Before exit in ERROR."),
        click.option("--life-fd", type=click.IntRange(min=0), default=None, hidden=True),
    ]
    for option in reversed(listed):
        command = option(command)
    return command


@click.command(context_settings={"show_default": True})
@_options
def instance(life_fd: int | None, instance_id: str, **given: Any) -> None:
    """Serve one version of a model: OpenAI API over HTTP, lifecycle over gRPC."""
    if life_fd is not None:
        end_with(life_fd)
    given = advertised(given)
    settings = Settings(instance_id=instance_id or f"{given['model']}-{given['version']}", **given)
    configure(settings.instance_id, settings.model, settings.version)
    try:
        ending = uvloop.run(_run(settings))
    except CannotListen as exc:
        log.error("cannot listen", extra={"reason": str(exc)})
        sys.exit(EXIT_ADDRESS)
    except DependencyMissing as exc:
        log.error("cannot start", extra={"reason": str(exc)})
        sys.exit(EXIT_UNUSABLE)
    logging.shutdown()
    if ending.abrupt:
        # The model thread is in a compile or a step; Python would wait for it to the end.
        let_go()
        os._exit(ending.code)
    sys.exit(ending.code)


async def _run(settings: Settings) -> "Ending":
    """Raises: CannotListen, DependencyMissing."""
    try:
        from backends.engines.families import FAMILIES
        from backends.instance import Instance
    except ModuleNotFoundError as exc:  # without numpy there is not even a port to say it on
        raise DependencyMissing(f"{exc}: pip install 'sluicegate[mindspore]'") from exc
    life = Instance(settings, FAMILIES, Random(), time.time)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, life.terminate)
    return await life.run()


def __getattr__(name: str) -> object:
    """`models` is loaded when it is asked for: an instance does not need the importers."""
    if name == "models":
        from backends.snapshots.commands import models

        return models
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
