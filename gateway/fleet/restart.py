"""When a dead instance is started again.

Floor 1, pure.
Back-off doubles from restart_min_s to restart_max_s with each death in a row; a life that was READY
for longer than restart_max_s ends the row. CRASHES_MAX in a row is shown as a crash loop; it goes
on being tried, at the longest wait, because the cause may be outside (a full disk, a taken port).
"""

from dataclasses import dataclass
from typing import Final

EXIT_CONFIG: Final = 78  # EX_CONFIG: a bad snapshot or config does not get better by trying
CRASHES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows a death: a wait, or None for not until somebody asks; and the row so far."""

    wait_s: float | None
    deaths: int
    reason: str


def judge(
    status: int | None,
    deaths: int,
    ready_for_s: float,
    restart_min_s: float,
    restart_max_s: float,
) -> Verdict:
    """What to do about an instance that ended by itself. `deaths`: in a row, before this one."""
    how = ended(status)
    if status == EXIT_CONFIG:
        return Verdict(None, deaths + 1, f"{how}: not started again until asked (undrain)")
    deaths = 1 if ready_for_s > restart_max_s else deaths + 1
    wait_s = min(restart_max_s, restart_min_s * 2.0 ** min(deaths - 1, 32))
    if deaths >= CRASHES_MAX:
        return Verdict(wait_s, deaths, f"crash loop: {deaths} deaths in a row, the last by {how}")
    return Verdict(wait_s, deaths, how)


def ended(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "an unknown exit"
    return f"signal {-status}" if status < 0 else f"exit {status}"
