"""What happened, for people: a ring of events with growing ids, and those who follow it.

Floor 2, no I/O but the log.   Owner: the control process's event loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from gateway.control import Event

log = logging.getLogger("gateway")

REMEMBERED: Final = 2000  # events; hours of a quiet fleet, minutes of a wild one


class Journal:
    """first_id: above every id of an earlier process, so that `Last-Event-ID` means one thing."""

    def __init__(self, wall: Callable[[], float], first_id: int) -> None:
        self._wall = wall
        self._next = first_id
        self._ring: deque[Event] = deque(maxlen=REMEMBERED)
        self._woken = asyncio.Event()

    def record(
        self, kind: str, subject: str, text: str, fields: Mapping[str, Any], warn: bool
    ) -> None:
        event = Event(self._next, self._wall(), kind, subject, text, dict(fields))
        self._next += 1
        self._ring.append(event)
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()
        told = fields if warn else {}  # the log outlives the ring: a warning says all that it knows
        extra = {**told, "kind": kind, "subject": subject}
        log.log(logging.WARNING if warn else logging.INFO, "%s", text, extra=extra)

    async def events(self, after: int | None) -> AsyncIterator[Event]:
        """Those behind `after` that are remembered, and then each as it happens."""
        last = self._next - 1 if after is None else after
        while True:
            fresh = min(self._next - 1 - last, len(self._ring))
            for event in [self._ring[place] for place in range(-fresh, 0)]:  # not all that there is
                last = event.id
                yield event
            if self._next - 1 <= last:
                await self._woken.wait()
