"""What the commands of `instance` and `agent` share: how options are read, and whose end is theirs.

Floor 5.
"""

import os
import socket
import threading
from typing import Any, Final

import click

from backends.settings import WILDCARDS, Address
from backends.snapshots.manifest import NAME_RULE, is_name

EXIT_ADDRESS: Final = 2  # as for any other wrong argument
EXIT_ORPHAN: Final = 70  # EX_SOFTWARE of sysexits.h; told apart from any end of our own


def address(context: click.Context, parameter: click.Parameter, value: str) -> Address:
    try:
        return Address.parse(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from exc


def name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if value and not is_name(value):
        raise click.BadParameter(f"must be {NAME_RULE}, not {value!r}")
    return value


def advertised(given: dict[str, Any]) -> dict[str, Any]:
    """With a host that others can reach where the port is bound to any."""
    if WILDCARDS & {given["http"].host, given["grpc"].host}:
        return {**given, "advertise": given["advertise"] or socket.gethostname()}
    return given


def end_with(life_fd: int) -> None:
    """End this process at once when nobody holds the other end of that pipe any more.

    A house rule broken (one thread): it must work while the loop is stuck in a compile.
    """

    def wait() -> None:
        while os.read(life_fd, 1):
            pass
        os._exit(EXIT_ORPHAN)

    threading.Thread(target=wait, name="life", daemon=True).start()
