"""What the kernel says of processes: CPU time, memory, children; and on which core they may run.

Floor 3, I/O.
CPU time is from schedstat: nanoseconds, where /proc/PID/stat counts ticks of 10 ms.
"""

import os
from contextlib import suppress
from pathlib import Path


def cpu_ns(pid: int) -> int:
    """CPU time of all threads that live."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            total += int((thread / "schedstat").read_text().split()[0])
    return total


def rss_kib(pid: int) -> int:
    """Memory that is there now, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in found.split()]


def pin(pid: int, core: int) -> None:
    """All threads of a process onto one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), {core})
