"""What happens when: a queue of calls on a clock that jumps from one to the next.

No event loop, so that thousands of schedules run in a test: an entry costs a heap operation. The
one kind of coroutine in here, the shell of the store, is driven by hand.
"""

from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

Then = Callable[[], None]

BUSY_MAX = 5_000  # calls at one moment: far above a crash of everything at once


class Entry:
    """Something that will be called, unless it is taken back."""

    __slots__ = ("then",)

    def __init__(self, then: Then) -> None:
        self.then: Then | None = then

    def cancel(self) -> None:
        self.then = None


class Agenda:
    """Owner of `now`. What is due at one time happens in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Entry]] = []
        self._numbers = count()

    def at(self, when: float, then: Then) -> Entry:
        entry = Entry(then)
        heappush(self._heap, (max(when, self.now), next(self._numbers), entry))
        return entry

    def later(self, delay_s: float, then: Then) -> Entry:
        return self.at(self.now + delay_s, then)

    def run(self, until: float) -> None:
        """Everything that is due by then; `now` is `until` afterwards."""
        heap = self._heap
        moment, busy = self.now, 0
        while heap and heap[0][0] <= until:
            self.now, _, entry = heappop(heap)
            if self.now != moment:
                moment, busy = self.now, 0
            busy += 1
            if busy > BUSY_MAX:
                raise AssertionError(f"time stands still: at {moment} in {entry.then}")
            if entry.then is not None:
                entry.then()
        self.now = until


class Wire:
    """One direction of a connection: what is sent arrives later, in order."""

    __slots__ = ("_agenda", "_arrived", "_rng")

    def __init__(self, agenda: Agenda, rng: Random) -> None:
        self._agenda = agenda
        self._rng = rng
        self._arrived = 0.0

    def send(self, then: Then) -> None:
        self._arrived = max(self._arrived, self._agenda.now + hop_s(self._rng))
        self._agenda.at(self._arrived, then)


def hop_s(rng: Random) -> float:
    """How long a message takes: mostly a fraction of a millisecond, now and then far longer."""
    share = rng.random()
    return 0.0002 + (0.05 * share if share > 0.9 else 0.002 * share)


class Pause:
    """Awaited by a coroutine that `drive` runs."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s

    def __await__(self) -> Generator["Pause", None, None]:
        yield self


def drive(
    agenda: Agenda,
    work: Coroutine[Any, Any, Any],
    goes_on: Callable[[], bool],
    then: Callable[[Any], None],
) -> None:
    """Run a coroutine that awaits nothing but Pause; it ends where it is once `goes_on` is not."""

    def step() -> None:
        if not goes_on():
            work.close()
            return
        try:
            pause = work.send(None)
        except StopIteration as ended:
            then(ended.value)
        else:
            agenda.later(pause.delay_s, step)

    step()
