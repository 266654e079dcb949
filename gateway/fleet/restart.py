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
SIGNAL_MAX: Final = 64
# Signals that end processes in practice, by their numbers on Linux; floor 1 imports no signal
# module.
SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    13: "SIGPIPE",
    15: "SIGTERM",
    24: "SIGXCPU",
    31: "SIGSYS",
}
MEANINGS: Final = {
    EXIT_CONFIG: "its snapshot or config is unusable",
    126: "its program cannot be run",
    127: "its program was not found",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows a death: a wait, or None for not until somebody asks; and the row so far."""

    wait_s: float | None
    deaths: int
    reason: str

    @property
    def loops(self) -> bool:
        return self.wait_s is not None and self.deaths >= CRASHES_MAX


def judge(
    status: int | None,
    deaths: int,
    ready_for_s: float,
    restart_min_s: float,
    restart_max_s: float,
    oom: bool = False,
) -> Verdict:
    """What to do about an instance that ended by itself. `deaths`: in a row, before this one."""
    how = ended(status, oom)
    if status == EXIT_CONFIG:
        return Verdict(None, deaths + 1, f"{how}: not started again until asked (sluicegate start)")
    deaths = 1 if ready_for_s > restart_max_s else deaths + 1
    wait_s = min(restart_max_s, restart_min_s * 2.0 ** min(deaths - 1, 32))
    if deaths >= CRASHES_MAX:
        return Verdict(wait_s, deaths, f"crash loop: {deaths} deaths in a row, the last by {how}")
    return Verdict(wait_s, deaths, how)


def ended(status: int | None, oom: bool = False) -> str:
    """How a process ended, in words. `oom`: the kernel killed for want of memory in its time."""
    if status is None:
        return "an unknown exit"
    if status >= 0:
        told = MEANINGS.get(status, "")
        if not told and 128 < status <= 128 + SIGNAL_MAX:  # a shell's word for its program's end
            told = f"its program ended by {_signal(status - 128)}"
        return f"exit {status} ({told})" if told else f"exit {status}"
    if oom:
        return f"{_signal(-status)}, when the kernel was short of memory"
    return _signal(-status)


def _signal(number: int) -> str:
    name = SIGNALS.get(number)
    return f"signal {number} ({name})" if name else f"signal {number}"
