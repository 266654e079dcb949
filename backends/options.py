"""What the commands of `instance` and `agent` share: how their options are read.

Floor 5.
"""

import socket
from typing import Any, Final

import click

from backends.settings import WILDCARDS, Address
from backends.snapshots.manifest import NAME_RULE, is_name

EXIT_ADDRESS: Final = 2  # as for any other wrong argument


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
