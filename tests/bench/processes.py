"""What the kernel says of processes: CPU time, memory, children; and on which core they may run.

Floor 3, I/O.
CPU time is from schedstat: nanoseconds, where /proc/PID/stat counts ticks of 10 ms.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def cpu_ns(pids: Iterable[int]) -> int:
    """CPU time of all threads that live, of all these processes."""
    total = 0
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                total += int((thread / "schedstat").read_text().split()[0])
    return total


def rss_kib(pids: Iterable[int]) -> int:
    """Memory that is there now, in KiB; what two processes share counts twice."""
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return total


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in found.split()]


def maps(pid: int, folder: Path) -> bool:
    """Whether the process has a file below the folder mapped: runs a library from there."""
    return f" {folder}/" in Path(f"/proc/{pid}/maps").read_text()


def pin(pid: int, core: int) -> None:
    """All threads of a process onto one core; those that it makes later follow their makers."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), {core})
