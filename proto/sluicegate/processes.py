"""What the kernel is asked about processes: who stands below whom, whose end is whose.

Floor 3, I/O: Linux.
A process that outlives its parent is given to the nearest ancestor that adopts orphans. With that,
whatever an instance starts, in whatever session, stays below its guard, and is found there.
"""

import ctypes
import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

EXIT_ORPHANED: Final = 70  # EX_SOFTWARE of sysexits.h; told apart from any end of our own
PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER: Final = 36
PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")

_libc: Final = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: `die_with_parent`


def adopt_orphans() -> None:
    """From now on descendants whose parent has died become children of this process."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends; it survives an exec."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_with(life_fd: int) -> None:
    """Exit at once when nobody holds the other end of that pipe any more.

    A house rule broken (one thread): it must work while the loop is stuck in a compile.
    """

    def wait() -> None:
        while os.read(life_fd, 1):
            pass
        os._exit(EXIT_ORPHANED)

    threading.Thread(target=wait, name="life", daemon=True).start()


def leave_as(status: int) -> NoReturn:
    """End as a command did (negative: by a signal), so that who waits for us sees how."""
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command's own core is enough
        with suppress(OSError):  # SIGKILL has no other way
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status if status >= 0 else 128 - status)


def children(pid: int) -> set[int]:
    """Whose parent the process is, zombies too."""
    return set(_by_parent().get(pid, ()))


def descendants(pid: int) -> list[int]:
    """Everything below the process, zombies too, as far as one look can tell."""
    by_parent = _by_parent()
    found: list[int] = []
    todo = [pid]
    while todo:
        below = by_parent.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it has ended while we looked
            # The name, in brackets, may hold blanks and brackets: proc(5).
            parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[1]
            found.setdefault(int(parent), []).append(int(entry.name))
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def end_descendants(reaped: dict[int, int]) -> None:
    """Kill everything below this process, and wait until nothing is left; exits go to `reaped`.

    Who forks while we look dies of the same signal, and its death is what we wait for: then we look
    again. The caller adopts orphans, so nobody can get out from below it.
    """
    while True:
        kill(descendants(os.getpid()))
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        reaped[pid] = os.waitstatus_to_exitcode(status)


# --- memory --------------------------------------------------------------------------------------


def oom_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """How many processes the kernel has killed for want of memory: in this process's control group
    where that counts them, else on the whole machine."""
    for path in (*_counted(proc, cgroups), proc / "vmstat"):
        with suppress(OSError, UnicodeDecodeError, ValueError):
            for line in path.read_text().splitlines():
                key, _, count = line.partition(" ")
                if key == "oom_kill":
                    return int(count)
    return 0


def _counted(proc: Path, cgroups: Path) -> list[Path]:
    """Files that count them for our control group: version 2, then version 1 (cgroups(7))."""
    found: list[Path] = []
    with suppress(OSError, UnicodeDecodeError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if not controllers:
                found.insert(0, cgroups / group.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                found.append(cgroups / "memory" / group.lstrip("/") / "memory.oom_control")
    return found
