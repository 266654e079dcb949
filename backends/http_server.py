"""The listening socket of an instance's HTTP, and how it is closed.

Floor 3, I/O.
"""

import socket
from typing import Final

from aiohttp import web

# Far above the gateway's 4 s: of two ends that may close an idle connection, the one that sends
# requests must be the first, or a request meets a closed door.
KEEPALIVE_S: Final = 75.0
CUT_S: Final = 0.2  # for handlers to leave once they are cancelled; whatever is held was cut before
HEAD_MAX_BYTES: Final = 65536  # of one line; the gateway's own limit for a whole head


class HttpServer:
    """The listening socket and what is behind it. Bound when made, so the address is known."""

    def __init__(self, app: web.Application, host: str, port: int) -> None:
        """Raises: OSError if the address cannot be bound."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family)
        except OSError as exc:
            raise OSError(f"cannot listen on {host}:{port}: {exc.strerror or exc}") from exc
        self.port: int = self._socket.getsockname()[1]
        self._runner = web.AppRunner(
            app,
            access_log=None,  # the gateway writes one
            handler_cancellation=True,  # a client that leaves takes its request along
            keepalive_timeout=KEEPALIVE_S,
            shutdown_timeout=CUT_S,
            max_line_size=HEAD_MAX_BYTES,
            max_field_size=HEAD_MAX_BYTES,
        )

    async def start(self) -> None:
        await self._runner.setup()
        await web.SockSite(self._runner, self._socket).start()

    async def close(self) -> None:
        """Close the port and every connection; answers that are still going on are cut."""
        await self._runner.cleanup()
