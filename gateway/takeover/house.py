"""What a take-over needs of the supervisor it happens to.

Floor 3, the seam.
"""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from gateway.children import Child
from gateway.messages import Message
from gateway.takeover.offer import Ward


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


def received(ward: Ward, descriptors: Iterator[int]) -> Child:
    """An instance that has come along with a take-over; its own descriptors come next."""
    child = Child(ward.pid, next(descriptors), True, time.monotonic(), adopted=True)
    child.said_fd = next(descriptors) if ward.speaks else -1
    child.instance_pid = ward.instance_pid
    child.label = ward.label
    return child
