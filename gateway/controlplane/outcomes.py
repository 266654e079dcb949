"""Instances that fail every request, found by looking at totals now and then.

Floor 3, I/O: reads memory.   Flow: segment -> [outcomes] -> RequestsFailed -> decide
Traffic posts no events: a busy fleet ends thousands of requests a second, and only the rare
instance that has served none of its last ones is worth one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.fleet.events import Event, RequestsFailed
from gateway.fleet.health import Streak, since
from gateway.fleet.slots import NO_SLOT
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import BLAMES_INSTANCE, Health, Outcome
from gateway.state.shared import APART, ATTEMPTS, Segment

LOOK_S: Final = 1.0  # as often as instances are polled
# Also of what no weight has drawn: an instance that fails it is as broken.
FAILED: Final = tuple(
    part + ATTEMPTS + int(outcome) for part in (0, APART) for outcome in sorted(BLAMES_INSTANCE)
)
SERVED: Final = tuple(part + ATTEMPTS + int(Outcome.SERVED) for part in (0, APART))


class Outcomes:
    """Owner of what was seen last, by slot."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._streaks: dict[int, tuple[str, Streak]] = {}  # slot: incarnation, its streak

    def look(self, fleet: FleetSnapshot, now: float) -> list[Event]:
        """An event for each instance that has failed too often since it served a request."""
        limit, found, streaks = fleet.settings.poll.failed_requests, list[Event](), {}
        for seen in fleet.instances.values() if limit else ():
            if seen.slot == NO_SLOT or seen.opinion.health is not Health.GOOD:
                continue
            old = self._streaks.get(seen.slot)
            served, failed = self._totals(seen.slot)
            known = old[1] if old is not None and old[0] == seen.incarnation else None
            streak, count = since(known, served, failed)
            if count >= limit:
                found.append(RequestsFailed(seen.slot, count, now))
                streak = Streak(served, failed)  # when it is tried again, it is from the start
            streaks[seen.slot] = (seen.incarnation, streak)
        self._streaks = streaks
        return found

    def _totals(self, slot: int) -> tuple[int, int]:
        cells, served, failed = self._segment.cells, 0, 0
        for row in range(self._segment.layout.rows):
            at = self._segment.slot_base(row, slot)
            served += sum(cells[at + cell] for cell in SERVED)
            failed += sum(cells[at + cell] for cell in FAILED)
        return served, failed


async def watch_outcomes(
    segment: Segment, fleet: Callable[[], FleetSnapshot], post: Callable[[Event], None]
) -> None:
    loop, outcomes = asyncio.get_running_loop(), Outcomes(segment)
    while True:
        await asyncio.sleep(LOOK_S)
        for event in outcomes.look(fleet(), loop.time()):
            post(event)
