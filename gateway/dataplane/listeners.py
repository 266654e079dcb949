"""Taking connections from sockets that the supervisor owns.

Floor 3, I/O.
Every server here listens on a duplicate of its descriptor: closing it ends our accepting, and what
waits in the queue stays for whoever else holds the socket. A worker holds the sockets of all
workers, to take over for one that is dead or stuck.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any, Final

# create_server calls listen() again on the shared socket: a smaller number would shrink its queue.
BACKLOG: Final = 4096


class Listeners:
    """Shape: sockets[index] are the descriptors of that worker, one per listen address."""

    def __init__(self, sockets: dict[int, list[int]], connection: Callable[[], Any]) -> None:
        self._sockets = sockets
        self._connection = connection
        self._servers: dict[int, list[asyncio.Server]] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}

    def accept(self, index: int) -> None:
        """Take connections from this worker's sockets too; asking twice changes nothing."""
        if index in self._sockets and index not in self._opening:
            loop = asyncio.get_running_loop()
            self._opening[index] = loop.create_task(self._open(loop, index))

    async def _open(self, loop: asyncio.AbstractEventLoop, index: int) -> None:
        servers = self._servers[index] = []
        for fd in self._sockets[index]:
            listener = socket.socket(fileno=os.dup(fd))
            start = (
                loop.create_unix_server if listener.family == socket.AF_UNIX else loop.create_server
            )
            servers.append(await start(self._connection, sock=listener, backlog=BACKLOG))

    def leave(self, index: int) -> None:
        """Stop that; accepted connections stay."""
        task = self._opening.pop(index, None)
        if task is not None:
            task.cancel()
        for server in self._servers.pop(index, []):
            server.close()

    def close(self) -> None:
        """Leave all and let go of the sockets, or their queues would outlive the gateway."""
        for index, descriptors in self._sockets.items():
            self.leave(index)
            for fd in descriptors:
                os.close(fd)
        self._sockets = {}
