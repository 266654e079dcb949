"""What a server counts of itself, out of Prometheus' text.

Floor 1, pure.
vLLM's names, with and without its prefix: MindIE has taken them over without. Series of one name
are added up over their labels. What is not understood is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Final

PREFIX: Final = "vllm:"
# Name -> field. Where a server has both of two names, they mean the same.
NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "num_requests_running": "running",
        "num_requests_waiting": "waiting",
        "num_requests_swapped": "swapped",
        "prompt_tokens_total": "prompt_tokens",
        "generation_tokens_total": "generation_tokens",
        "iteration_tokens_total_count": "steps",  # of a histogram with one entry a step
        "request_queue_time_seconds_sum": "queue_s",
        "request_queue_time_seconds_count": "queued",
        "kv_cache_usage_perc": "kv_ratio",  # 1 is full, whatever the name says
        "gpu_cache_usage_perc": "kv_ratio",
        "npu_cache_usage_perc": "kv_ratio",  # MindIE's; some write percent all the same
        # Of an instance of ours.
        "sluicegate_instance_in_flight": "running",
        "sluicegate_instance_steps_total": "steps",
    }
)
STALE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Counts:
    """None: the server does not say."""

    running: int | None = None
    waiting: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    steps: int | None = None
    queue_s: float = 0.0
    queued: float = 0.0
    kv_ratio: float | None = None

    @property
    def holds(self) -> int | None:
        if self.running is None:
            return None
        return self.running + (self.waiting or 0)

    @property
    def progress(self) -> int:
        """Moves while anything is computed; 0 for ever if the server counts nothing like it."""
        return (self.prompt_tokens or 0) + (self.generation_tokens or 0) + (self.steps or 0)


def parse(text: str) -> Counts | None:
    """None if no name is known."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = _sample(line)
        if found is None:
            continue
        field, value = found
        if field == "kv_ratio":
            ratio = value if value <= 1 else min(1.0, value / 100)
            sums[field] = max(sums.get(field, 0.0), ratio)
        else:
            sums[field] = sums.get(field, 0.0) + value
    if not sums:
        return None

    def count(field: str) -> int | None:
        return int(sums[field]) if field in sums else None

    waiting = count("waiting")
    if "swapped" in sums:
        waiting = (waiting or 0) + int(sums["swapped"])
    return Counts(
        running=count("running"),
        waiting=waiting,
        prompt_tokens=count("prompt_tokens"),
        generation_tokens=count("generation_tokens"),
        steps=count("steps"),
        queue_s=sums.get("queue_s", 0.0),
        queued=sums.get("queued", 0.0),
        kv_ratio=sums.get("kv_ratio"),
    )


def _sample(line: str) -> tuple[str, float] | None:
    """`name{labels} value [timestamp]`; labels may hold blanks and escaped quotes."""
    name, brace, rest = line.partition("{")
    if brace:
        rest = rest.rpartition("}")[2]
    else:
        name, _, rest = line.partition(" ")
    field = NAMES.get(name.strip().removeprefix(PREFIX))
    values = rest.split()
    if field is None or not values:
        return None
    try:
        value = float(values[0])
    except ValueError:
        return None
    return (field, value) if isfinite(value) and value >= 0 else None


def beside(counts: Counts, own: int, still_s: float) -> int:
    """Requests that the server holds and that did not come through us.

    `still_s`: how long none of its counts has moved. vLLM leaves its gauges as they are when the
    last requests are aborted (its issues 22545 and 29928): what stands still is not believed.
    """
    held = counts.holds
    if held is None or still_s >= STALE_S:
        return 0
    return max(0, held - own)
