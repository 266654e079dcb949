"""What load generators print -> records.

Floor 1, pure.
A load with a failed request measures something else than what it is named for, so it is refused.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

UNITS_US: Final = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 6e7}


class LoadFailed(Exception):
    """Some requests of a load were not answered as they should be."""


@dataclass(frozen=True, slots=True)
class Requests:
    """What wrk has seen."""

    count: int
    per_s: float
    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class Streams:
    """What `sse` has seen: events in its window, and the first bytes of all answers.

    `live`: streams that were open at the end. `errors`: those that were not, and wrong statuses.
    """

    seconds: float
    events: int
    live: int
    errors: int
    p50_us: float
    p99_us: float
    first_p50_us: float

    def check(self, wanted: int) -> None:
        """Raises: LoadFailed unless so many streams lived to the end, and moved."""
        if self.errors or self.live != wanted:
            raise LoadFailed(f"{self.errors} errors, {self.live} of {wanted} streams at the end")
        if not self.events:
            raise LoadFailed("not one event in the whole window")


def read_wrk(text: str) -> Requests:
    """Raises: LoadFailed."""
    failed = re.search(r"Non-2xx or 3xx responses: \d+|Socket errors: .*", text)
    if failed:
        raise LoadFailed(failed[0])
    count = re.search(r"(\d+) requests in", text)
    per_s = re.search(r"Requests/sec:\s+([\d.]+)", text)
    if not count or not per_s:
        raise LoadFailed(f"not the output of wrk: {text!r}")
    return Requests(int(count[1]), float(per_s[1]), _percentile(text, 50), _percentile(text, 99))


def _percentile(text: str, share: int) -> float:
    found = re.search(rf"^\s+{share}%\s+([\d.]+)(us|ms|s|m)\s*$", text, re.MULTILINE)
    if not found:
        raise LoadFailed(f"no {share} % line: was wrk started with --latency?")
    return float(found[1]) * UNITS_US[found[2]]


def read_sse(text: str) -> Streams:
    """Raises: LoadFailed when the text is not what `sse` prints."""
    try:
        said = json.loads(text)
    except ValueError:
        raise LoadFailed(f"not the output of sse: {text!r}") from None
    return Streams(
        said["seconds"],
        said["events"],
        said["live"],
        said["errors"],
        said["p50_us"],
        said["p99_us"],
        said["first_p50_us"],
    )


def read_gauge(text: str, name: str) -> float:
    """The sum of a metric over all its labels, in the text that /metrics serves."""
    lines = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)", text, re.MULTILINE)
    return sum(float(value) for value in lines)
