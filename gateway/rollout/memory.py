"""Whether a new version takes the memory that it was said to need.

Floor 1, pure.
Judged when samples have been answered: the peak that its instances then report is that of work, not
of an empty cache. A group that grew far past its figure would leave no way back on the next device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.rollouts import CheckView

GB: Final = 1 << 30  # as in `memory_gb` of config.toml, and wherever memory is told


@dataclass(frozen=True, slots=True)
class Held:
    """What one instance says of its device."""

    instance: str
    used_bytes: int
    peak_bytes: int  # 0: it does not say


def check(held: Sequence[Held], needs_bytes: int, ratio_max: float) -> CheckView | None:
    """The line of the report; None when there is nothing to compare.

    needs_bytes: of one instance, as its manifest or the config says; 0: nobody says.
    """
    most = max(held, key=_peak, default=None)
    if most is None or not _peak(most) or not needs_bytes or not ratio_max:
        return None
    peak = _peak(most)
    text = f"{most.instance} has held {peak / GB:.2f} GB, {needs_bytes / GB:.2f} GB were expected"
    if peak <= needs_bytes * ratio_max:
        return CheckView("memory", True, text)
    return CheckView("memory", False, f"{text} (allowed are {ratio_max:g} times as much)")


def _peak(one: Held) -> int:
    return max(one.used_bytes, one.peak_bytes)
