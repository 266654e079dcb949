"""The part of a request's body that is in memory.

Floor 3, I/O: `send`.
Before the request has its instance this is what came so far; afterwards it is what a replay would
need, until it grows too large or the instance answers. `Plane.held_bytes` is the sum over all.
"""

from typing import Any, Final

from gateway.dataplane.plane import Plane

JOINED_BYTES: Final = 16_384  # a body up to this is copied behind its head, to be one write


class HeldBody:
    """`whole`: the parts are everything that came so far, so the request could be sent again."""

    __slots__ = ("_plane", "parts", "size", "whole")

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.parts: list[bytes] = []
        self.size = 0
        self.whole = True

    def keep(self, part: bytes) -> None:
        self.parts.append(part)
        self.size += len(part)
        self._plane.held_bytes += len(part)

    def let_go(self) -> None:
        self.whole = False
        if self.size:
            self._plane.held_bytes -= self.size
            self.size = 0
        if self.parts:
            self.parts = []

    def restart(self) -> None:
        """For the next request."""
        self.let_go()
        self.whole = True

    def is_much(self) -> bool:
        """More than a replay is worth, or than all bodies together may take."""
        plane = self._plane
        return self.size > plane.replay_max_bytes or plane.held_bytes > plane.bodies_max_bytes

    def joined(self) -> bytes:
        """All of it in one piece, which takes the place of the parts."""
        if len(self.parts) != 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]

    def send(self, head: list[bytes], transport: Any) -> None:
        """Write a head and what is here behind it. Shape: head's last line is the body's place."""
        parts = self.parts
        if len(parts) == 1 and len(parts[0]) <= JOINED_BYTES:
            head[-1] = parts[0]
            transport.write(b"\r\n".join(head))
            return
        transport.write(b"\r\n".join(head))
        for part in parts:
            transport.write(part)
