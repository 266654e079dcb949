"""The gateway's listening sockets: opened once by the supervisor, inherited by everyone else.

Floor 3, I/O.
One socket per worker and address on one port (SO_REUSEPORT), so that the kernel spreads the
connections; every worker holds all of them. A second SO_REUSEPORT bind succeeds silently, so each
address is probed without it first: otherwise two gateways would share a port by accident.
"""

import errno
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BACKLOG: Final = (
    4096  # connections that wait while a worker is busy; the kernel caps it at somaxconn
)


class AddressUnusable(Exception):
    """The message is a sentence that names the address, the config key and the way out."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A listening socket and the address it really has: port 0 has become a number."""

    descriptor: int
    address: str


def _split(address: str) -> tuple[socket.AddressFamily, str, int]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return family, host, int(port)


def _unusable(address: str, key: str, exc: OSError) -> AddressUnusable:
    if exc.errno == errno.EADDRINUSE:
        return AddressUnusable(
            f"{address} is in use (config.toml: {key}): stop what listens there, choose another,"
            " or start with --take-over if that is the gateway to be replaced"
        )
    why = exc.strerror or exc  # what Python finds by itself has a text only: a path too long
    return AddressUnusable(f"cannot listen on {address} (config.toml: {key}): {why}")


def open_listeners(address: str, key: str, count: int) -> list[Bound]:
    """`count` listening sockets on one address; a Unix socket is one, held `count` times.

    Raises: AddressUnusable; nothing stays open.
    """
    try:
        if address.startswith("unix:"):
            return _open_unix(address.removeprefix("unix:"), count)
        return _open_tcp(address, count, listening=True)
    except OSError as exc:
        raise _unusable(address, key, exc) from exc


def reserve(address: str, key: str) -> Bound:
    """A socket that holds the address without listening: gRPC can open its own only by number.

    Raises: AddressUnusable.
    """
    try:
        return _open_tcp(address, 1, listening=False)[0]
    except OSError as exc:
        raise _unusable(address, key, exc) from exc


def _open_tcp(address: str, count: int, listening: bool) -> list[Bound]:
    family, host, port = _split(address)
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        if port:
            probe.listen(1)  # a bind beside a listener can succeed; this cannot
    bound: list[Bound] = []
    for _ in range(count):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setblocking(False)  # belongs to the shared description: for all who inherit it
        listener.bind((host, port))
        port = listener.getsockname()[1]
        if listening:
            listener.listen(BACKLOG)
        shown = f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
        bound.append(Bound(listener.detach(), shown))
    return bound


def _open_unix(path: str, count: int) -> list[Bound]:
    _clear_dead_socket(Path(path))
    listener = socket.socket(socket.AF_UNIX)
    listener.setblocking(False)
    listener.bind(path)
    listener.listen(BACKLOG)
    first = listener.detach()
    descriptors = [first, *(os.dup(first) for _ in range(count - 1))]
    return [Bound(descriptor, f"unix:{path}") for descriptor in descriptors]


def _clear_dead_socket(path: Path) -> None:
    """Remove a socket file that nobody listens on any more; anything else stays and is in use."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise OSError(errno.EADDRINUSE, "a file that is not a socket is there")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, "in use")
