"""What a supervisor begins with: sockets and a lock of its own, or those of a running gateway.

Floor 5.
Both end in the same names. A take-over changes nothing that the config says of addresses and of
the store: two gateways that disagree there could not hand anything over, and the offer is refused.
"""

import fcntl
import json
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

from gateway.children import Child
from gateway.config import Settings
from gateway.listening import AddressUnusable, open_listeners, reserve
from gateway.takeover.house import received
from gateway.takeover.offer import DOOR, Facts, Offer, TakeOverRefused, ask

log = logging.getLogger(__name__)

DOOR_BACKLOG: Final = 128
PATH_MAX: Final = 100  # sockaddr_un holds 108 bytes


@dataclass(slots=True)
class Belongings:
    descriptors: dict[str, int]
    facts: Facts
    workers: int
    children: dict[str, Child] = field(default_factory=dict)
    offered: tuple[socket.socket, Offer] | None = None  # by whom; the commit is still to come


def lock(run_dir: Path) -> int | None:
    """The lock on the run folder, which its holders keep for life; None when another holds it."""
    run_dir.mkdir(parents=True, exist_ok=True)
    fd = os.open(run_dir / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    sign(fd)
    return fd


def sign(lock: int) -> None:
    """Say in it whose it is. In this order a full disk has room for it, where one stood before."""
    os.ftruncate(lock, os.pwrite(lock, str(os.getpid()).encode(), 0))


def holder(run_dir: Path) -> str:
    """Pid of the gateway that runs there, as it says itself."""
    return (run_dir / "lock").read_text() or "unknown"


def own(settings: Settings, run_dir: Path, lock: int) -> Belongings:
    """Everything opened here.

    Raises: AddressUnusable.
    """
    for pattern in ("door.*.sock", "take-over.*.sock", DOOR):  # the lock says they are nobody's
        for left in run_dir.glob(pattern):
            left.unlink(missing_ok=True)
    workers = settings.gateway.workers or os.cpu_count() or 1
    descriptors: dict[str, int] = {"lock": lock}
    listen: list[str] = []
    for k, address in enumerate(settings.gateway.listen):
        bound = open_listeners(address, "gateway.listen", workers)
        descriptors |= {f"listen{index}.{k}": one.descriptor for index, one in enumerate(bound)}
        listen.append(bound[0].address)
    admin = open_listeners(settings.admin.listen, "admin.listen", 1)[0]
    registry = reserve(settings.registry.listen, "registry.listen")
    descriptors["admin"] = admin.descriptor
    descriptors["registry"] = registry.descriptor
    descriptors["instances_life"], descriptors["instances_life_write"] = os.pipe()
    facts = Facts(
        pid=os.getpid(),
        version=version("sluicegate"),
        listen=tuple(listen),
        admin=admin.address,
        registry=registry.address,
        store=store_of(settings),
    )
    return Belongings(descriptors, facts, workers)


def taken(settings: Settings, run_dir: Path) -> Belongings:
    """Everything offered by the gateway that runs there; nothing of it is ours yet.

    Raises: TakeOverRefused; the running gateway goes on.
    """
    sock, offer, fds = ask(run_dir)
    problems = differences(offer.facts, settings)
    if problems:
        sock.close()
        raise TakeOverRefused(
            f"{'; '.join(problems)}: a take-over cannot change that, a restart can. The running "
            f"gateway (pid {offer.facts.pid}) goes on"
        )
    descriptors = dict(zip(offer.names, fds, strict=False))
    rest = iter(fds[len(offer.names) :])
    children = {ward.name: received(ward, rest) for ward in offer.wards}
    wanted = settings.gateway.workers or os.cpu_count() or 1
    if wanted != offer.workers:
        text = "as many workers as sockets are taken over: gateway.workers needs a restart"
        log.warning(text, extra={"workers": offer.workers, "config": wanted})
    facts = Facts(
        pid=os.getpid(),
        version=version("sluicegate"),
        listen=offer.facts.listen,
        admin=offer.facts.admin,
        registry=offer.facts.registry,
        store=offer.facts.store,
    )
    return Belongings(descriptors, facts, offer.workers, children, (sock, offer))


def store_of(settings: Settings) -> str:
    return str(Path(settings.store.url.removeprefix("sqlite:")).absolute())


def differences(facts: Facts, settings: Settings) -> list[str]:
    """What the config wants otherwise than the running gateway has it, a sentence each."""
    found = []
    if not _all_bound(settings.gateway.listen, facts.listen):
        listens = ", ".join(facts.listen)
        found.append(f"gateway.listen is {', '.join(settings.gateway.listen)}, not {listens}")
    if not _all_bound((settings.admin.listen,), (facts.admin,)):
        found.append(f"admin.listen is {settings.admin.listen}, not {facts.admin}")
    if not _all_bound((settings.registry.listen,), (facts.registry,)):
        found.append(f"registry.listen is {settings.registry.listen}, not {facts.registry}")
    if store_of(settings) != facts.store:
        found.append(f"store.url is {store_of(settings)}, not {facts.store}")
    return found


def _all_bound(wanted: Sequence[str], bound: Sequence[str]) -> bool:
    """Whether these addresses are those; port 0 has become some number."""
    if len(wanted) != len(bound):
        return False
    return all(
        one == other or (one.endswith(":0") and one[:-1] == other[: len(one) - 1])
        for one, other in zip(wanted, bound, strict=True)
    )


def open_door(path: Path) -> socket.socket:
    """A Unix socket in the run folder: on which workers find control, or a successor finds us.

    Raises: AddressUnusable.
    """
    if len(str(path)) > PATH_MAX:
        raise AddressUnusable(f"{path} is too long for a Unix socket: shorten gateway.run_dir")
    path.unlink(missing_ok=True)  # of another process that had our pid
    door = socket.socket(socket.AF_UNIX)
    door.setblocking(False)
    door.bind(str(path))
    door.listen(DOOR_BACKLOG)
    return door


def write_whereabouts(path: Path, document: dict[str, object]) -> None:
    """Say where this gateway listens, for the command line and for tests; whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=2) + "\n")
    fresh.replace(path)
