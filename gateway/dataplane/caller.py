"""What an exchange needs of the client's side.

Floor 3, no I/O of its own.
"""

from typing import Any

from gateway.errors import GatewayError


class Caller:
    """The client's side, as an exchange needs it. `blocked`: it does not read what we write."""

    __slots__ = ("blocked", "peer", "transport")

    def __init__(self) -> None:
        self.transport: Any = None
        self.peer = b""  # its address
        self.blocked = False

    def go_on(self) -> None:
        """The request has found its instance: ask for the body, if the client waits to be asked."""
        raise NotImplementedError

    def hold_upload(self, held: bool) -> None:
        """Stop (or go on) reading the request body."""
        raise NotImplementedError

    def answer(self, error: GatewayError) -> None:
        """Nothing has been sent: tell the client why."""
        raise NotImplementedError

    def finished(self, keep: bool) -> None:
        """The response is out."""
        raise NotImplementedError

    def cut(self, hidden: bool) -> None:
        """End the connection visibly; `hidden`: a mere close would look like a whole answer."""
        raise NotImplementedError
