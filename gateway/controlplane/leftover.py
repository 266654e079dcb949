"""What a gateway that was taken over still holds, told to its successor.

Floor 3, I/O.   Flow: segment -> [leftover] -> supervisor -> the successor's supervisor -> events
Looked at ten times a second for the seconds that are left: the successor's drains wait for it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import Held, Message
from gateway.state.shared import Segment

LOOK_S: Final = 0.1  # as often as workers beat


def held(segment: Segment, fleet: FleetSnapshot) -> dict[str, int]:
    """Requests in flight by instance, of every incarnation."""
    found: dict[str, int] = {}
    for slot, holder in fleet.book.holders.items():
        count = segment.in_flight(slot)
        if count > 0:
            found[holder.instance] = found.get(holder.instance, 0) + count
    return found


async def report(
    segment: Segment, fleet: Callable[[], FleetSnapshot], order: Callable[[Message], None]
) -> None:
    """Say it now, and each time that it has changed. Runs until cancelled."""
    said: dict[str, int] | None = None
    while True:
        now = held(segment, fleet())
        if now != said:
            order(Held(now))
            said = now
        await asyncio.sleep(LOOK_S)
