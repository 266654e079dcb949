"""`sluicegate serve` and `sluicegate check`: from a config file to a running supervisor.

Floor 5.
Everything that can be wrong before a process is started is found here and said in a sentence:
exit 2 for the config, 1 for what the machine refuses.
"""

import fcntl
import logging
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Final

import click

from gateway.config import ConfigInvalid, Settings, parse
from gateway.listening import AddressUnusable, open_listeners, reserve
from gateway.state.shared import Layout, create
from gateway.supervisor import Supervisor, write_whereabouts
from gateway.telemetry.log import chosen_format, configure

log = logging.getLogger(__name__)

EXIT_REFUSED: Final = 1
EXIT_CONFIG: Final = 2
SLOTS: Final = 1024  # instances, with every incarnation whose counters are still read
SECTIONS: Final = 256  # models, and one for requests that name none
LEASES: Final = 16_384  # requests in flight in one worker
DOOR_BACKLOG: Final = 128
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
def serve(config_path: Path, log_format: str | None, log_level: str) -> None:
    """Run the gateway, and the instances that the config asks for.

    SIGTERM drains and ends it, a second one cuts what is left; SIGHUP reads the config again.

    Example: sluicegate serve --config config.toml
    """
    settings = read_config(config_path)
    log_format = log_format or chosen_format(sys.stderr)
    configure(log_format, log_level)
    _raise_descriptor_limit()
    run_dir = Path(settings.gateway.run_dir).absolute()
    try:
        lock = _lock(run_dir)
        supervisor = _prepare(settings, config_path.absolute(), run_dir, log_format, log_level)
    except (AddressUnusable, OSError) as exc:
        click.echo(f"sluicegate: {exc}", err=True)
        sys.exit(EXIT_REFUSED)
    code = supervisor.serve()
    (run_dir / "gateway.json").unlink(missing_ok=True)
    (run_dir / "door.sock").unlink(missing_ok=True)
    os.close(lock)
    sys.exit(code)


def _raise_descriptor_limit() -> None:
    """Every connection is a descriptor; the usual soft limit, 1024, is for programs with few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _lock(run_dir: Path) -> int:
    """The lock on the run folder, held for the life of this process.

    Raises: AddressUnusable when another gateway holds it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    fd = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode() or "unknown"
        os.close(fd)
        raise AddressUnusable(
            f"another gateway (pid {holder}) runs in {run_dir}: stop it, or give this one a "
            "gateway.run_dir of its own in config.toml"
        ) from None
    os.ftruncate(fd, 0)
    os.write(fd, str(os.getpid()).encode())
    return fd


def _prepare(
    settings: Settings, config_path: Path, run_dir: Path, log_format: str, log_level: str
) -> Supervisor:
    """A supervisor with every socket open and nothing started yet.

    Raises: AddressUnusable.
    """
    workers = settings.gateway.workers or os.cpu_count() or 1
    descriptors: dict[str, int] = {}
    listen: list[str] = []
    for k, address in enumerate(settings.gateway.listen):
        bound = open_listeners(address, "gateway.listen", workers)
        descriptors |= {f"listen{index}.{k}": one.descriptor for index, one in enumerate(bound)}
        listen.append(bound[0].address)
    admin = open_listeners(settings.admin.listen, "admin.listen", 1)[0]
    registry = reserve(settings.registry.listen, "registry.listen")
    descriptors["admin"] = admin.descriptor
    descriptors["registry"] = registry.descriptor
    descriptors["door"] = _open_door(run_dir / "door.sock")
    descriptors["segment"] = create(Layout(2 * workers + 2, SLOTS, SECTIONS, LEASES))
    descriptors["life"], descriptors["life_write"] = os.pipe()
    descriptors["instances_life"], descriptors["instances_life_write"] = os.pipe()
    whereabouts = {
        "pid": os.getpid(),
        "listen": listen,
        "admin": admin.address,
        "registry": registry.address,
        "config": str(config_path),
    }
    write_whereabouts(run_dir / "gateway.json", whereabouts)
    log.info("listening", extra={"gateway": " ".join(listen), "admin": admin.address})
    command = (
        *(sys.executable, "-P", "-m", "gateway.mains.control"),  # -P: our code, not the folder's
        *("--config", str(config_path), "--run-dir", str(run_dir)),
        *("--segment-fd", "{segment}", "--life-fd", "{life}", "--supervisor-fd", "{supervisor}"),
        *("--door-fd", "{door}", "--admin-fd", "{admin}", "--registry", registry.address),
        *("--parent", str(os.getpid()), "--log-format", log_format, "--log-level", log_level),
    )
    return Supervisor(descriptors, command, workers)


def _open_door(path: Path) -> int:
    """The Unix socket on which workers find control, whichever control that is."""
    if len(str(path)) > 100:  # sockaddr_un holds 108 bytes
        raise AddressUnusable(f"{path} is too long for a Unix socket: shorten gateway.run_dir")
    path.unlink(missing_ok=True)  # the lock says that its owner is gone
    door = socket.socket(socket.AF_UNIX)
    door.setblocking(False)
    door.bind(str(path))
    door.listen(DOOR_BACKLOG)
    return door.detach()
