"""What a take-over needs of the supervisor it happens to.

Floor 3, the seam.
"""

import socket
from collections.abc import Callable
from typing import Protocol

from gateway.children import Child
from gateway.messages import Message


class House(Protocol):
    """What a take-over needs of a supervisor, on either side."""

    descriptors: dict[str, int]
    children: dict[str, Child]

    def watch(self, what: int | socket.socket, then: Callable[[int], None]) -> None: ...

    def unwatch(self, what: int | socket.socket) -> None: ...

    def tell(self, message: Message) -> None:
        """Say it to control."""

    def hindrance(self) -> str:
        """Why this gateway cannot be taken over now; "" when it can."""

    def release(self) -> None:
        """Let go of everything that was offered."""

    def adopt(self) -> None:
        """What came with the offer is ours."""

    def fail(self, why: str) -> None:
        """End; what was offered stays with whoever offered it."""
