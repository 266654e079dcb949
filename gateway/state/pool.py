"""Idle instance connections, the last used on top.

Floor 2, no I/O: whoever gets a connection back from `expired` or `retain` closes it.
Owner: one worker. Last in, first out: the rest grows old and is closed before the instance does it
(uvicorn: after 5 s), which is the race that nobody wins. A connection leaves the pool the moment
it says anything: nobody asked it.
"""

from collections.abc import Container
from typing import Any, Final

IDLE_MAX: Final = 512  # per slot; an instance's limit keeps it lower, this bounds a mistake


class Pooled:
    """What the pool knows of a connection. `idle_since_ns`: when it came back."""

    __slots__ = ("idle_since_ns",)

    def __init__(self) -> None:
        self.idle_since_ns = 0


class Pool:
    """Shape: idle[slot] are that instance's idle connections, the longest idle first. They come
    back as `Any`, because floor 2 knows nothing of them but what stands in Pooled."""

    __slots__ = ("_idle", "idle_ns", "size")

    def __init__(self) -> None:
        self._idle: dict[int, list[Pooled]] = {}
        self.idle_ns = 0
        self.size = 0

    def checkout(self, slot: int, now_ns: int) -> Any:
        """The connection used last; None where even that one has been idle for too long."""
        idle = self._idle.get(slot)
        if not idle:
            return None
        connection = idle[-1]
        if self.idle_ns and now_ns - connection.idle_since_ns >= self.idle_ns:
            return None  # the sweep closes it, and all below it
        idle.pop()
        self.size -= 1
        return connection

    def checkin(self, slot: int, connection: Pooled, now_ns: int) -> bool:
        """False when there are enough already: the caller closes it."""
        idle = self._idle.get(slot)
        if idle is None:
            idle = self._idle[slot] = []
        if len(idle) >= IDLE_MAX:
            return False
        connection.idle_since_ns = now_ns
        idle.append(connection)
        self.size += 1
        return True

    def drop(self, slot: int, connection: Pooled) -> None:
        """Forget a connection that is ending; late calls are welcome. Cost: O(idle)."""
        idle = self._idle.get(slot)
        if idle is not None and connection in idle:
            idle.remove(connection)
            self.size -= 1

    def expired(self, now_ns: int) -> list[Any]:
        """Connections that have been idle for too long, taken out. Stops at the first young one."""
        due: list[Any] = []
        if self.idle_ns:
            for idle in self._idle.values():
                old = 0
                while old < len(idle) and now_ns - idle[old].idle_since_ns >= self.idle_ns:
                    old += 1
                due += idle[:old]
                del idle[:old]
        self.size -= len(due)
        return due

    def retain(self, slots: Container[int]) -> list[Any]:
        """Connections to slots that are not among these, taken out."""
        gone: list[Any] = []
        for slot in [slot for slot in self._idle if slot not in slots]:
            gone += self._idle.pop(slot)
        self.size -= len(gone)
        return gone
