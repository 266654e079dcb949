"""A new connection to an instance.

Floor 3, I/O.   Flow: pick -> [dial] -> relay
An address is connected to at once, without a task: within one machine the handshake is over when
`connect` returns, and elsewhere the loop tells when it is. A name has to be resolved first, by a
task. The one seam where the loop's and the kernel's errors about connecting become ours.
"""

import asyncio
import errno
import os
import socket
from functools import lru_cache, partial
from typing import Any, Final

from gateway.dataplane.instance import InstanceConnection, Listener
from gateway.dataplane.plane import Plane
from gateway.errors import GatewayError
from gateway.routing.compiled import CompiledTarget

# Descriptors, memory or local ports that we lack: the instance has nothing to do with it.
OUR_OWN_LIMITS: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL}
)
HANDSHAKE: Final = frozenset({errno.EINPROGRESS, errno.EALREADY})
CONNECTED: Final = frozenset({0, errno.EISCONN})  # the second: what BSD says of it
AT_ONCE: Final = "it closed the connection at once"
NO_FAMILY: Final = -1
HOSTS_MAX: Final = 4096  # more than a table's; whether a host is an address never changes


class Dial(Listener):
    """One attempt to connect, for a listener that is told of its end: `dialled` or `unreachable`.

    Neither comes from within `begin`, nor after `cancel`. Waits without a deadline of its own: the
    sweep cancels it. `_sock`: the socket as long as it is ours.
    """

    __slots__ = ("_plane", "_sock", "_steps", "_target", "_task", "_who")

    def __init__(self, plane: Plane, target: CompiledTarget, who: Listener) -> None:
        self.scanner = None
        self._plane = plane
        self._target = target
        self._who: Listener | None = who
        self._sock: Any = None
        self._steps: Any = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        family = family_of(self._target.host)
        if family == NO_FAMILY:
            self._task = self._plane.start(self._by_name())
            return
        try:
            self._connect(family)
        except OSError as exc:
            self._close()
            self._plane.loop.call_soon(self._failed, exc)

    def cancel(self) -> None:
        """Whoever asked wants it no more. What is connected already goes to the pool."""
        self._who = None
        task = self._task
        if task is not None:
            self._task = None
            task.cancel()
        elif self._sock is not None and self._steps is None:
            self._plane.loop.remove_writer(self._sock)
            self._close()

    # -- an address

    def _connect(self, family: int) -> None:
        target = self._target
        # asyncio sets TCP_NODELAY on what says that it is TCP; uvloop does on all.
        sock = self._plane.new_socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._sock = sock
        sock.setblocking(False)
        address = (target.host, target.port)
        code = sock.connect_ex(address)
        if code in HANDSHAKE:
            code = sock.connect_ex(address)  # asked again, it says what came of it
        if code in CONNECTED:
            self._hand_over()
        elif code in HANDSHAKE:
            self._plane.loop.add_writer(sock, self._writable)
        else:
            raise OSError(code, os.strerror(code))

    def _writable(self) -> None:
        """The handshake is over, well or not."""
        sock = self._sock
        self._plane.loop.remove_writer(sock)
        try:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self._hand_over()
        except OSError as exc:
            self._close()
            self._failed(exc)

    def _hand_over(self) -> None:
        """Make the loop's transport of it. The loop offers that as a coroutine only, whose end
        brings nothing new: `opened` has been called by then. So it is stepped by its futures, as
        a task would do, and without one."""
        connection = InstanceConnection(self._plane, self._target.slot)
        connection.listener = self
        loop: Any = self._plane.loop
        self._steps = loop.create_connection(lambda: connection, sock=self._sock)
        self._step(None)

    def _step(self, waited: Any) -> None:
        try:
            future = self._steps.send(None)
        except StopIteration:
            return
        future._asyncio_future_blocking = False  # said to whoever steps a coroutine: I have seen it
        future.add_done_callback(self._step)

    def opened(self, connection: InstanceConnection) -> None:
        """Called as the connection is made, before anything is read from it or written."""
        plane, sock, who = self._plane, self._sock, self._who
        self._sock = None
        self._who = None
        sound = is_silent(sock)
        if not isinstance(plane.loop, asyncio.BaseEventLoop):
            sock.detach()  # libuv closes the descriptor by itself; asyncio, the socket
        if not sound:
            connection.abandon()
            if who is not None:
                who.unreachable(unreachable(self._target, AT_ONCE))
        elif who is None:
            connection.release(True)  # the request has ended meanwhile; the next may have it
        else:
            who.dialled(connection)

    def _close(self) -> None:
        sock = self._sock
        self._sock = None
        if sock is not None:
            sock.close()

    # -- a name

    async def _by_name(self) -> None:
        plane, target = self._plane, self._target
        factory: Any = partial(InstanceConnection, plane, target.slot)
        made: Any
        try:
            made = await plane.loop.create_connection(factory, target.host, target.port)
        except OSError as exc:
            self._failed(exc)
            return
        connection: InstanceConnection = made[1]
        who = self._who
        self._who = None
        if who is None:
            connection.release(True)
        elif connection.transport.is_closing():
            who.unreachable(unreachable(target, AT_ONCE))
        else:
            who.dialled(connection)

    def _failed(self, exc: OSError) -> None:
        who = self._who
        self._who = None
        if who is not None:
            who.unreachable(explained(self._target, exc))


@lru_cache(HOSTS_MAX)
def family_of(host: str) -> int:
    """The family of an address, NO_FAMILY of a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return int(family)
    return NO_FAMILY


def is_silent(sock: Any) -> bool:
    """Whether the other end of a new connection has neither ended it nor said anything.

    What it has not been sent can be sent to another instance; and nothing was asked yet.
    """
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def explained(target: CompiledTarget, exc: OSError) -> GatewayError:
    """Why there is no connection, as the client is told."""
    if exc.errno in OUR_OWN_LIMITS:
        why = f"this gateway is at a limit of its machine: {exc.strerror}"
        return GatewayError("leases_full", why, retry_after_s=1)
    return unreachable(target, exc.strerror or str(exc))


def unreachable(target: CompiledTarget, why: str) -> GatewayError:
    return GatewayError(
        "connect_failed",
        f"cannot connect to {target.instance}: {why}",
        instance=target.instance,
    )
