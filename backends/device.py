"""How much memory the device has, how much of it is free, and the most that this process held.

Floor 3, I/O.
For a CPU device that is the machine's memory, or a control group's if that allows less: in a
container the machine's free memory is nobody's. Accelerators are read by their engine; until one
does, 0 says that nobody knows.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from backends.status import Memory

PROC: Final = Path("/proc")
GROUPS: Final = Path("/sys/fs/cgroup")
_LINE: Final = re.compile(r"^(MemTotal|MemAvailable|VmHWM):\s+(\d+) kB$", re.MULTILINE)
_PAGES: Final = re.compile(r"^(?:in)?active_file (\d+)$", re.MULTILINE)


def measure(kind: str, name: str, proc: Path = PROC, groups: Path = GROUPS) -> Memory:
    """The device's memory now. Cost: a few small reads, some 100 microseconds."""
    if kind != "cpu":
        return Memory(kind, name)
    found = _numbers(proc / "meminfo")
    # MemAvailable, not MemFree: what caches hold is given to whoever asks.
    total, free = found.get("MemTotal", 0), found.get("MemAvailable", 0)
    for limit, left in _limits(proc, groups) if total else ():
        total, free = min(total, limit), min(free, left)
    peak = _numbers(proc / "self" / "status").get("VmHWM", 0)
    return Memory(kind, name, total, free, peak)


def _numbers(file: Path) -> dict[str, int]:
    """Bytes by name; nothing where there is no such file (not Linux)."""
    return {line[1]: int(line[2]) * 1024 for line in _LINE.finditer(_read(file))}


def _limits(proc: Path, groups: Path) -> Iterator[tuple[int, int]]:
    """What each control group (version 2) around this process allows, and how much is left."""
    lines = _read(proc / "self" / "cgroup").split("\n")
    group = Path(next((line[3:] for line in lines if line.startswith("0::/")), "/"))
    for inner in (group, *group.parents):
        folder = groups / inner.relative_to("/")
        limit = _read(folder / "memory.max").strip()
        held = _read(folder / "memory.current").strip()
        if limit.isdigit() and held.isdigit():  # else "max", or the root of all
            pages = sum(int(count) for count in _PAGES.findall(_read(folder / "memory.stat")))
            yield int(limit), max(0, int(limit) - max(0, int(held) - pages))


def _read(file: Path) -> str:
    try:
        return file.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
