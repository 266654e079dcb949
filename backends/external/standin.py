"""The account of an instance that stands for another server: its own counts, and the server's.

Floor 2, no I/O.   Owner: the agent's event loop.
What passes through the proxy is counted here; what only the server can know (tokens, who waits)
comes with each scrape of its metrics.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from backends.account import Account
from backends.external.counts import Counts, beside
from backends.gate import Gate, Pass
from backends.life import Life
from backends.readings import WINDOW_S, Readings
from backends.status import NOTHING_YET, Identity, Memory

BESIDE: Final = "(held by the server itself)"  # in place of a request id
_NONE: Final = Counts()


class StandIn(Account):
    def __init__(
        self,
        identity: Identity,
        gate: Gate,
        life: Life,
        measure: Callable[[], Memory],
        slots: int,
    ) -> None:
        super().__init__(identity, gate, life, measure)
        self._slots = slots
        self.counts = _NONE
        self.passed_bytes = 0  # from the server
        self.served_total = 0
        self.last_latency_s = 0.0
        self._counted_at = 0.0  # loop time at which a count moved last
        self._history: deque[tuple[float, Counts]] = deque()  # of the last WINDOW_S
        self._beside: list[Pass] = []

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def movement(self) -> tuple[int, int]:
        """Differs from itself a moment ago if anything came out of the server."""
        return self.passed_bytes, self.counts.progress

    @property
    def own_in_flight(self) -> int:
        """Requests that came through the proxy."""
        return self.gate.in_flight - len(self._beside)

    def answered(self, latency_s: float) -> None:
        self.served_total += 1
        self.last_latency_s = latency_s

    def scraped(self, counts: Counts, now: float) -> None:
        """The server's metrics, just read."""
        if counts != self.counts:
            self._counted_at = now
        self.counts = counts
        self._history.append((now, counts))
        while len(self._history) > 1 and self._history[0][0] < now - WINDOW_S:
            self._history.popleft()
        self._hold(beside(counts, self.own_in_flight, now - self._counted_at))

    def unscraped(self) -> None:
        """The metrics cannot be read: nothing is known of what did not come through us."""
        self._hold(0)

    def readings(self) -> Readings:
        counts, (first_at, first), (last_at, last) = self.counts, *self._ends()
        span_s = last_at - first_at
        tokens = (last.generation_tokens or 0) - (first.generation_tokens or 0)
        queued, waited_s = last.queued - first.queued, last.queue_s - first.queue_s
        busy = counts.running if counts.running is not None else self.own_in_flight
        return replace(
            NOTHING_YET,
            active=busy,
            queue_depth=counts.waiting or 0,
            queue_wait_ms=1000 * max(0.0, waited_s) / queued if queued > 0 else 0.0,
            batch_utilisation_ratio=min(1.0, busy / self._slots),
            tokens_per_s=max(0, tokens) / span_s if span_s > 0 else 0.0,
            last_latency_ms=1000 * self.last_latency_s,
            progress_total=counts.progress,
            served_total=self.served_total,
            prompt_tokens_total=counts.prompt_tokens or 0,
            completion_tokens_total=counts.generation_tokens or 0,
            kv_held_ratio=counts.kv_ratio or 0.0,
        )

    def _ends(self) -> tuple[tuple[float, Counts], tuple[float, Counts]]:
        if not self._history:
            return (0.0, _NONE), (0.0, _NONE)
        return self._history[0], self._history[-1]

    def _hold(self, count: int) -> None:
        """Be as busy as the server says, so that a drain waits for it."""
        while len(self._beside) > count:
            self._beside.pop().give_back()
        while len(self._beside) < count:
            self._beside.append(self.gate.hold(BESIDE))
