"""Idle instance connections, the last used on top.

Floor 2, no I/O: whoever gets a connection back from `expired` or `retain` closes it.
Owner: one worker. Last in, first out: the rest grows old and is closed before the instance does it
(uvicorn: after 5 s), which is the race that nobody wins. A connection leaves the pool the moment
it says anything: nobody asked it.
"""

from typing import Any, Final

IDLE_MAX: Final = 512  # per slot; an instance's limit keeps it lower, this bounds a mistake


class Pool:
    """Connections by slot; `Any` because floor 2 does not know what a connection is."""

    __slots__ = ("_idle", "idle_ns", "size")

    def __init__(self) -> None:
        # slot: connection: since when it has been idle, oldest first
        self._idle: dict[int, dict[Any, int]] = {}
        self.idle_ns = 0
        self.size = 0

    def checkout(self, slot: int, now_ns: int) -> Any | None:
        """The connection that was used last, unless even that one has been idle for too long."""
        idle = self._idle.get(slot)
        if not idle:
            return None
        connection, since = idle.popitem()
        if self.idle_ns and now_ns - since >= self.idle_ns:
            idle[connection] = since  # the sweep closes it, and all below it
            return None
        self.size -= 1
        return connection

    def checkin(self, slot: int, connection: Any, now_ns: int) -> bool:
        """False when there are enough already: the caller closes it."""
        idle = self._idle.get(slot)
        if idle is None:
            idle = self._idle[slot] = {}
        if len(idle) >= IDLE_MAX:
            return False
        idle[connection] = now_ns
        self.size += 1
        return True

    def drop(self, slot: int, connection: Any) -> None:
        """Forget a connection that is ending; late calls are welcome."""
        idle = self._idle.get(slot)
        if idle is not None and idle.pop(connection, None) is not None:
            self.size -= 1

    def expired(self, now_ns: int) -> list[Any]:
        """Connections that have been idle for too long, taken out. Stops at the first young one."""
        due: list[Any] = []
        if self.idle_ns:
            for idle in self._idle.values():
                while idle:
                    oldest = next(iter(idle))
                    if now_ns - idle[oldest] < self.idle_ns:
                        break
                    del idle[oldest]
                    due.append(oldest)
        self.size -= len(due)
        return due

    def retain(self, slots: Any) -> list[Any]:
        """Connections to slots that are not among these, taken out."""
        gone: list[Any] = []
        for slot in [slot for slot in self._idle if slot not in slots]:
            gone += self._idle.pop(slot)
        self.size -= len(gone)
        return gone
