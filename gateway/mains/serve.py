"""`sluicegate serve` and `sluicegate check`: from a config file to a running supervisor.

Floor 5.
Everything that can be wrong before a process is started is found here and said in a sentence:
exit 2 for the config, 1 for what the machine refuses.
"""

import logging
import os
import resource
import sys
from pathlib import Path
from typing import Final

import click

from gateway.config import ConfigInvalid, Settings, parse
from gateway.listening import AddressUnusable
from gateway.mains.belongings import (
    Belongings,
    holder,
    lock,
    open_door,
    own,
    sign,
    taken,
    write_whereabouts,
)
from gateway.state.shared import Layout, create
from gateway.supervisor import Supervisor
from gateway.takeover.giving import Giving
from gateway.takeover.offer import DOOR, TakeOverRefused
from gateway.takeover.taking import Taking
from gateway.telemetry.log import chosen_format, configure

log = logging.getLogger(__name__)

EXIT_REFUSED: Final = 1
EXIT_CONFIG: Final = 2
SLOTS: Final = 1024  # instances, with every incarnation whose counters are still read
SECTIONS: Final = 256  # models, and one for requests that name none
LEASES: Final = 16_384  # requests in flight in one worker
DESCRIPTORS: Final = 1 << 20  # more than leases of every worker; some hard limits are absurd

CONFIG = click.Path(dir_okay=False, path_type=Path)
config_option = click.option(
    "--config",
    "config_path",
    type=CONFIG,
    default="config.toml",
    show_default=True,
    help="The file to read.",
)


def read_config(path: Path) -> Settings:
    """The settings in the file; ends the program with every problem on a line of its own."""
    try:
        return parse(path.read_text())
    except OSError as exc:
        click.echo(f"{path}: {exc.strerror}: name another file with --config", err=True)
    except UnicodeDecodeError as exc:
        click.echo(f"{path}: not UTF-8 text: {exc}", err=True)
    except ConfigInvalid as exc:
        count = len(exc.problems)
        click.echo(f"{path}: {count} problem{'s' if count > 1 else ''}, nothing started", err=True)
        for problem in exc.problems:
            click.echo(f"  {problem}", err=True)
    sys.exit(EXIT_CONFIG)


@click.command()
@config_option
def check(config_path: Path) -> None:
    """Check a config file without starting anything.

    Lists every problem with its path and exits 2, or exits 0.

    Example: sluicegate check --config new.toml
    """
    settings = read_config(config_path)
    instances = len(settings.instance) + sum(sum(m.replicas.values()) for m in settings.model)
    click.echo(f"{config_path}: fine: {len(settings.model)} models, {instances} instances")


@click.command()
@config_option
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Default: text on a terminal, else json.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Take sockets and instances over from the gateway that runs here, which finishes what it "
    "holds: no connection is refused, no instance restarts. Starts as usual if none runs.",
)
def serve(config_path: Path, log_format: str | None, log_level: str, take_over: bool) -> None:
    """Run the gateway, and the instances that the config asks for.

    SIGTERM drains and ends it, a second one cuts what is left; SIGHUP reads the config again. A
    new version takes over from the old one with --take-over.

    Example: sluicegate serve --config config.toml
    """
    settings = read_config(config_path)
    log_format = log_format or chosen_format(sys.stderr)
    configure(log_format, log_level)
    _raise_descriptor_limit()
    run_dir = Path(settings.gateway.run_dir).absolute()
    try:
        begun = _begin(settings, run_dir, take_over)
        spoken = ("--log-format", log_format, "--log-level", log_level)
        supervisor = _prepare(begun, config_path.absolute(), run_dir, spoken)
    except (AddressUnusable, TakeOverRefused) as exc:
        click.echo(f"sluicegate: {exc}", err=True)
        sys.exit(EXIT_REFUSED)
    except OSError as exc:
        text = f"cannot start in {run_dir} (config.toml: gateway.run_dir): {exc}"
        click.echo(f"sluicegate: {text}", err=True)
        sys.exit(EXIT_REFUSED)
    code = supervisor.serve()
    if not supervisor.given_away and not supervisor.stands_by:  # else they are another gateway's
        (run_dir / "gateway.json").unlink(missing_ok=True)
        (run_dir / DOOR).unlink(missing_ok=True)
    for name in ("door", "take-over"):
        (run_dir / f"{name}.{os.getpid()}.sock").unlink(missing_ok=True)
    sys.exit(code)


def _raise_descriptor_limit() -> None:
    """Every connection is a descriptor; the usual soft limit, 1024, is for programs with few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _begin(settings: Settings, run_dir: Path, take_over: bool) -> Belongings:
    """What there is to begin with: of a running gateway, or our own.

    Raises: AddressUnusable, TakeOverRefused, OSError.
    """
    held = lock(run_dir)
    if held is None and take_over:
        return taken(settings, run_dir)
    if held is None:
        raise AddressUnusable(
            f"another gateway (pid {holder(run_dir)}) runs in {run_dir}: stop it, take over from "
            "it with --take-over, or give this one a gateway.run_dir of its own in config.toml"
        )
    if take_over:
        log.info("no gateway runs here to take over from: starting as usual")
    return own(settings, run_dir, held)


def _prepare(
    begun: Belongings, config_path: Path, run_dir: Path, spoken: tuple[str, ...]
) -> Supervisor:
    """A supervisor with every socket open and nothing started yet.

    Raises: AddressUnusable.
    """
    pid, facts, descriptors = os.getpid(), begun.facts, begun.descriptors
    descriptors["door"] = open_door(run_dir / f"door.{pid}.sock").detach()
    rows = 2 * begun.workers + 2
    descriptors["segment"] = create(Layout(rows, SLOTS, SECTIONS, LEASES))
    for row in range(rows):  # workers wake each other, see gateway/dataplane/bells.py
        descriptors[f"bell{row}"] = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    descriptors["life"], descriptors["life_write"] = os.pipe()
    entrance = run_dir / f"take-over.{pid}.sock"
    door = open_door(entrance)

    def ours() -> None:
        """From now on this is the gateway that runs here."""
        entrance.replace(run_dir / DOOR)  # first: the one that the next take-over cannot do without
        sign(descriptors["lock"])
        whereabouts = {
            "pid": pid,
            "listen": facts.listen,
            "admin": facts.admin,
            "registry": facts.registry,
            "config": str(config_path),
        }
        write_whereabouts(run_dir / "gateway.json", whereabouts)
        log.info("listening", extra={"gateway": " ".join(facts.listen), "admin": facts.admin})

    command = (
        *(sys.executable, "-P", "-m", "gateway.mains.control"),  # -P: our code, not the folder's
        *("--config", str(config_path), "--run-dir", str(run_dir)),
        *("--segment-fd", "{segment}", "--life-fd", "{life}", "--supervisor-fd", "{supervisor}"),
        *("--door-fd", "{door}", "--admin-fd", "{admin}", "--registry", facts.registry),
        *("--parent", str(pid), *spoken),
    )
    supervisor = Supervisor(descriptors, command, begun.workers)
    supervisor.children |= begun.children
    supervisor.giving = Giving(supervisor, door, facts)
    if begun.offered is not None:
        supervisor.taking = Taking(supervisor, *begun.offered, ours)
    else:
        ours()
    return supervisor
