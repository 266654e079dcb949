"""Requests that wait for room, first come, first served, by version.

Floor 2, no I/O.
Owner: one worker. A saturated version queues for itself: those behind its queue who drew another
version are not held up, and none of them relieves it. Whoever frees room asks for `first`; whoever
waits is told by its own `woken`, which either places it or leaves it where it is.
"""

from typing import Protocol

Key = tuple[str, str]  # model, version


class Waiter(Protocol):
    def woken(self) -> bool:
        """Look again; False to go on waiting (and to keep the place)."""

    def reviewed(self) -> None:
        """A new table is in force: wait for what it offers, or be refused."""


class Waitroom:
    __slots__ = ("_queues", "size")

    def __init__(self) -> None:
        self._queues: dict[Key, dict[Waiter, None]] = {}
        self.size = 0

    def enter(self, key: Key, waiter: Waiter) -> None:
        self._queues.setdefault(key, {})[waiter] = None
        self.size += 1

    def enter_first(self, key: Key, waiter: Waiter) -> None:
        """Before all others: its turn had come. Cost: O(queue)."""
        self._queues[key] = {waiter: None, **self._queues.get(key, {})}
        self.size += 1

    def leave(self, key: Key, waiter: Waiter) -> None:
        """Placed, refused or gone: out of the queue."""
        queue = self._queues[key]
        del queue[waiter]
        self.size -= 1
        if not queue:
            del self._queues[key]

    def first(self, key: Key) -> Waiter | None:
        queue = self._queues.get(key)
        return next(iter(queue)) if queue else None

    def wake(self, key: Key) -> None:
        """Let the queue's first ones go as long as there is room for them."""
        while (waiter := self.first(key)) is not None and waiter.woken():
            pass

    def wake_all(self) -> None:
        """Something else freed room: another worker, or an instance that came back."""
        for key in list(self._queues):
            self.wake(key)

    def everyone(self) -> list[Waiter]:
        """All who wait, in order within their queues."""
        return [waiter for queue in self._queues.values() for waiter in queue]
