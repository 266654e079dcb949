"""A new connection to an instance.

Floor 3, I/O.   Flow: pick -> [dial] -> relay
The one seam where the loop's exceptions about connecting become ours.
"""

import asyncio
import errno
import socket
from functools import partial
from typing import Any, Final

from gateway.dataplane.instance import InstanceConnection
from gateway.dataplane.plane import Plane
from gateway.errors import GatewayError
from gateway.routing.compiled import CompiledTarget

# Descriptors, memory or local ports that we lack: the instance has nothing to do with it.
OUR_OWN_LIMITS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL}
)


async def dial(plane: Plane, target: CompiledTarget) -> InstanceConnection:
    """An open connection. Waits without a deadline of its own: the sweep cancels it.

    Raises: GatewayError.
    """
    factory: Any = partial(InstanceConnection, plane, target.slot)
    try:
        transport, connection = await plane.loop.create_connection(
            factory, target.host, target.port
        )
    except OSError as exc:
        if exc.errno in OUR_OWN_LIMITS:
            why = f"this gateway is at a limit of its machine: {exc.strerror}"
            raise GatewayError("leases_full", why, retry_after_s=1) from None
        raise unreachable(target, exc.strerror or str(exc)) from None
    no_delay(transport)
    made: InstanceConnection = connection
    return made


def unreachable(target: CompiledTarget, why: str) -> GatewayError:
    return GatewayError(
        "connect_failed",
        f"cannot connect to {target.instance}: {why}",
        instance=target.instance,
    )


def no_delay(transport: asyncio.BaseTransport) -> None:
    """Small writes leave at once; without this a token waits up to 200 ms for an ACK."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
