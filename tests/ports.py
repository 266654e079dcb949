"""Ports for servers that cannot be handed a socket."""

import random
import socket
from contextlib import suppress
from typing import Final

# Below those that Linux gives to whoever asks for any (from 32768 on). One of those may be gone
# again by the time its server is there: each connection that another test makes takes one.
FIRST: Final = 20_000
COUNT: Final = 12_000


def free_port() -> int:
    """One where nobody listens now."""
    while True:
        port = FIRST + random.SystemRandom().randrange(COUNT)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
