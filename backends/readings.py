"""What the executor has measured, and the sliding window it measures in.

Floor 2, no I/O.   Owner: the instance's event loop.
Ratios and rates are of the last WINDOW_S seconds, so an idle instance reads zero, not its last
busy moment. Totals only grow.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from backends.distribution import (
    FIRST_TOKEN_S,
    NOTHING_SEEN,
    REQUEST_S,
    TOKEN_S,
    WAIT_S,
    Distribution,
    Tally,
)

WINDOW_S: Final = 10  # long enough to smooth one long prefill, short enough to scale on
SECOND_NS: Final = 1_000_000_000
MS_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Readings:
    """One moment of an executor."""

    active: int  # generations that hold a slot
    queue_depth: int
    queue_wait_ms: float  # mean of those lately admitted, or of the oldest one still waiting
    batch_utilisation_ratio: float  # slot time spent on steps, of all slot time
    tokens_per_s: float  # completion tokens
    last_latency_ms: float  # of the generation served last, from submission to its last token
    progress_total: int  # steps: prefill chunks and decodes
    served_total: int
    prompt_tokens_total: int  # computed
    completion_tokens_total: int
    memory_bytes: int
    memory_peak_bytes: int
    reused_tokens_total: int = 0  # of prompts, found in a slot and not computed
    prompts_total: int = 0  # that became whole
    prefix_hits_total: int = 0  # of these: began with ids that a slot had kept
    prompt_tokens_per_s: float = 0.0  # computed
    kv_held_ratio: float = 0.0  # of all cache positions: of generations under way
    kv_kept_ratio: float = 0.0  # of those that ended, for prompts that begin alike
    failure: str = ""  # why no further generation is taken; empty while all is well
    waits: Distribution = NOTHING_SEEN  # seconds until a slot
    first_tokens: Distribution = NOTHING_SEEN  # seconds from submission to the first token
    token_gaps: Distribution = NOTHING_SEEN  # seconds per token after the first, by generation
    durations: Distribution = NOTHING_SEEN  # seconds, of generations served


@dataclass(slots=True)
class _Second:
    """What happened within one second of the clock."""

    second: int
    tokens: int = 0
    prompt_tokens: int = 0
    busy_slot_ns: int = 0
    waits: int = 0
    wait_ns: int = 0


class Meter:
    """Sums by second, the last WINDOW_S of them; and the totals."""

    def __init__(self, slots: int, started_ns: int) -> None:
        self._slots = slots
        self._started_ns = started_ns
        self._seconds: deque[_Second] = deque(maxlen=WINDOW_S)
        self.progress = 0
        self.served = 0
        self.prompt_tokens = 0
        self.reused_tokens = 0
        self.prompts = 0
        self.prefix_hits = 0
        self.completion_tokens = 0
        self.last_latency_ns = 0
        self.memory_bytes = 0
        self.memory_peak_bytes = 0
        self.kv_held_ratio = 0.0
        self.kv_kept_ratio = 0.0
        self._waits = Tally(WAIT_S)
        self._first_tokens = Tally(FIRST_TOKEN_S)
        self._token_gaps = Tally(TOKEN_S)
        self._durations = Tally(REQUEST_S)

    def time_from(self, now_ns: int) -> None:
        """How long things took until now was nobody's time; totals and memory go on."""
        self._started_ns = now_ns
        self._seconds.clear()
        self.last_latency_ns = 0
        self._waits = Tally(WAIT_S)
        self._first_tokens = Tally(FIRST_TOKEN_S)
        self._token_gaps = Tally(TOKEN_S)
        self._durations = Tally(REQUEST_S)

    def step_ran(
        self, now_ns: int, span_ns: int, busy: int, tokens: int, prompt_tokens: int = 0
    ) -> None:
        """A step with `busy` slots took `span_ns`, gave `tokens` and computed `prompt_tokens`."""
        second = self._at(now_ns)
        second.busy_slot_ns += span_ns * busy
        second.tokens += tokens
        second.prompt_tokens += prompt_tokens
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += tokens
        self.progress += 1

    def waited(self, now_ns: int, wait_ns: int) -> None:
        second = self._at(now_ns)
        second.waits += 1
        second.wait_ns += wait_ns
        self._waits.see(wait_ns / SECOND_NS)

    def first_token_came(self, since_ns: int) -> None:
        self._first_tokens.see(since_ns / SECOND_NS)

    def prompt_became_whole(self, reused: int) -> None:
        """So many of its ids were not computed."""
        self.prompts += 1
        self.prefix_hits += reused > 0
        self.reused_tokens += reused

    def ended_well(self, latency_ns: int, tokens: int = 0, decoding_ns: int = 0) -> None:
        """Something was served; of a generation, `tokens` after the first took `decoding_ns`."""
        self.served += 1
        self.last_latency_ns = latency_ns
        self._durations.see(latency_ns / SECOND_NS)
        if tokens > 0:
            self._token_gaps.see(decoding_ns / tokens / SECOND_NS)

    def memory_seen(self, held_bytes: int) -> None:
        self.memory_bytes = held_bytes
        self.memory_peak_bytes = max(self.memory_peak_bytes, held_bytes)

    def read(
        self, now_ns: int, active: int, waiting: int, oldest_ns: int, failure: str
    ) -> Readings:
        """All of it at `now_ns`; `oldest_ns` is how long the head of the queue has waited."""
        oldest = now_ns // SECOND_NS - WINDOW_S
        recent = [second for second in self._seconds if second.second > oldest]
        span_ns = min(max(now_ns - self._started_ns, 1), WINDOW_S * SECOND_NS)
        busy_ns = sum(second.busy_slot_ns for second in recent)
        waits = sum(second.waits for second in recent)
        mean_ns = sum(second.wait_ns for second in recent) / waits if waits else 0.0
        return Readings(
            active=active,
            queue_depth=waiting,
            queue_wait_ms=max(mean_ns, oldest_ns) / MS_NS,
            # A step is booked where it ends, so one that outlasts the window could exceed 1.
            batch_utilisation_ratio=min(1.0, busy_ns / (self._slots * span_ns)),
            tokens_per_s=sum(second.tokens for second in recent) * SECOND_NS / span_ns,
            last_latency_ms=self.last_latency_ns / MS_NS,
            progress_total=self.progress,
            served_total=self.served,
            prompt_tokens_total=self.prompt_tokens,
            completion_tokens_total=self.completion_tokens,
            memory_bytes=self.memory_bytes,
            memory_peak_bytes=self.memory_peak_bytes,
            reused_tokens_total=self.reused_tokens,
            prompts_total=self.prompts,
            prefix_hits_total=self.prefix_hits,
            prompt_tokens_per_s=sum(one.prompt_tokens for one in recent) * SECOND_NS / span_ns,
            kv_held_ratio=self.kv_held_ratio,
            kv_kept_ratio=self.kv_kept_ratio,
            failure=failure,
            waits=self._waits.read(),
            first_tokens=self._first_tokens.read(),
            token_gaps=self._token_gaps.read(),
            durations=self._durations.read(),
        )

    def _at(self, now_ns: int) -> _Second:
        second = now_ns // SECOND_NS
        if not self._seconds or self._seconds[-1].second != second:
            self._seconds.append(_Second(second))
        return self._seconds[-1]
