"""A new connection to an instance.

Floor 3, I/O.   Flow: pick -> [dial] -> relay
An address is connected to at once, without a task: within one machine the handshake is over when
`connect` returns, and elsewhere the loop tells when it is. The request goes out on the bare socket,
and the loop is given that afterwards. A name has to be resolved first, by a task. The one seam
where the loop's and the kernel's errors about connecting become ours.
"""

import asyncio
import errno
import os
import socket
from contextlib import suppress
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
NOBODY: Final = "nobody listens there"
NO_FAMILY: Final = -1
HOSTS_MAX: Final = 4096  # more than a table's; whether a host is an address never changes


class Dial:
    """One attempt to connect, for a listener that is told of its end unless `at_once` returned the
    connection: `dialled` or `unreachable`, neither of them from within that call, nor after
    `cancel`. Waits without a deadline of its own: the sweep cancels it.

    `_sock`: the socket while its handshake is under way.
    """

    __slots__ = ("_plane", "_sock", "_target", "_task", "_who")

    def __init__(self, plane: Plane, target: CompiledTarget, who: Listener) -> None:
        self._plane = plane
        self._target = target
        self._who: Listener | None = who
        self._sock: Any = None
        self._task: asyncio.Task[None] | None = None

    def at_once(self) -> InstanceConnection | None:
        """The connection, if nothing has to be waited for."""
        family = family_of(self._target.host)
        if family == NO_FAMILY:
            self._task = self._plane.start(self._by_name())
            return None
        connection: InstanceConnection | None = None
        try:
            if self._connect(family):
                connection = self._connected()
        except OSError as exc:
            self._close()
            self._plane.loop.call_soon(self._failed, explained(self._target, exc))
        return connection

    def cancel(self) -> None:
        """Whoever asked wants it no more."""
        self._who = None
        task = self._task
        if task is not None:
            self._task = None
            task.cancel()
        elif self._sock is not None:
            self._plane.loop.remove_writer(self._sock)
            self._close()

    # -- an address

    def _connect(self, family: int) -> bool:
        """Whether it is connected; the loop tells when, if not."""
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
            return True
        if code not in HANDSHAKE:
            raise OSError(code, os.strerror(code))
        self._plane.loop.add_writer(sock, self._writable)
        return False

    def _writable(self) -> None:
        """The handshake is over, well or not."""
        sock, who = self._sock, self._who
        self._plane.loop.remove_writer(sock)
        try:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            connection = self._connected()
        except OSError as exc:
            self._close()
            self._failed(explained(self._target, exc))
            return
        self._who = None
        if who is not None:
            who.dialled(connection)

    def _connected(self) -> InstanceConnection:
        """Raises: OSError when it has been ended by now, or has nobody but us at its other end.

        Where nobody listens, the kernel may give a socket the very port that it dials, and joins it
        to itself (RFC 9293 3.5).
        """
        sock = self._sock
        port = sock.getsockname()[1]
        if port == self._target.port and sock.getsockname() == sock.getpeername():
            raise OSError(NOBODY)
        if not is_silent(sock):
            raise OSError(AT_ONCE)
        connection = InstanceConnection(self._plane, self._target.slot)
        connection.port = port
        connection.early = connection.transport = Early(self._plane, sock)
        self._sock = None
        return connection

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
            self._failed(explained(target, exc))
            return
        connection: InstanceConnection = made[1]
        who = self._who
        self._who = None
        if who is None:
            connection.release(True)  # the request has ended meanwhile; the next may have it
        elif connection.transport.is_closing():
            who.unreachable(unreachable(target, AT_ONCE))
        else:
            who.dialled(connection)

    def _failed(self, error: GatewayError) -> None:
        who = self._who
        self._who = None
        if who is not None:
            who.unreachable(error)


class Early:
    """In place of its transport, of a connection that the loop has not been given yet: a request
    is on its way before the loop begins to make one.

    `_left`: what the socket did not take. Nothing is read before `gives_way`.
    """

    __slots__ = ("_closing", "_left", "_plane", "_sock", "_steps")

    def __init__(self, plane: Plane, sock: Any) -> None:
        self._plane = plane
        self._sock = sock
        self._steps: Any = None
        self._left: list[bytes] = []
        self._closing = False

    def write(self, data: bytes) -> None:
        sent = 0
        if not self._left and self._sock is not None:
            with suppress(OSError):  # full; or broken, which the transport finds out in its turn
                sent = self._sock.send(data)
        if sent < len(data):
            self._left.append(data[sent:])

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self._closing = True

    def pause_reading(self) -> None:
        """The connection says it again, when there is something to pause."""

    def resume_reading(self) -> None:
        pass

    def hand_over(self, connection: InstanceConnection) -> None:
        """Have the loop make a transport of the socket. It offers that as a coroutine only, whose
        end brings nothing new: `connection_made` has been called by then. So it is stepped by its
        futures, as a task would do, and without one."""
        loop: Any = self._plane.loop
        sock = self._sock
        self._sock = None
        self._steps = loop.create_connection(lambda: connection, sock=sock)
        try:
            self._step(None)
        except OSError as exc:
            sock.close()
            loop.call_soon(connection.connection_lost, exc)
            return
        if not isinstance(loop, asyncio.BaseEventLoop):
            sock.detach()  # libuv closes the descriptor by itself; asyncio, the socket

    def _step(self, waited: Any) -> None:
        try:
            future = self._steps.send(None)
        except StopIteration:
            return
        future._asyncio_future_blocking = False  # said to whoever steps a coroutine: I have seen it
        future.add_done_callback(self._step)

    def gives_way(self, transport: Any) -> None:
        """To what the loop has made."""
        if self._closing:
            transport.abort()
        elif self._left:
            transport.write(b"".join(self._left))


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
