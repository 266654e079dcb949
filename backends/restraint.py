"""Holds this process back while it loads, so that a neighbour that serves does not starve.

Floor 3, I/O (scheduling of this process).
Two means, both taken away again when the load is over. Fewer CPUs: anybody may narrow and widen the
CPUs of its own threads. A higher nice value: lowering it again needs a privilege (CAP_SYS_NICE, or
RLIMIT_NICE of 20 and more), so it is tried on a thread of no use first; where it could not be taken
back it is not begun, SCHED_BATCH stands in (no thread then preempts a neighbour's by waking up),
and the log says so. New threads begin as the one that starts them: all of them are looked at.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

TASKS: Final = Path("/proc/self/task")
NICE_MAX: Final = 19
SCANS_MAX: Final = 100  # a thread that was just started may start another; this ends


class Restraint:
    """threads: CPUs that may be used, 0: all. nice: how far behind others, 0 to 19."""

    def __init__(self, threads: int, nice: int) -> None:
        self._threads = threads
        self._nice = nice
        self._lifts: list[Callable[[int], bool]] = []  # each: thread id -> whether it changed it

    def begin(self) -> None:
        """Held back from now on, threads that are still to come included."""
        if not TASKS.is_dir():  # not Linux
            if self._threads or self._nice:
                log.warning("load is not held back", extra={"reason": "only Linux can do that"})
            return
        if self._threads:
            self._narrow()
        if self._nice:
            self._step_back()

    def lift(self) -> None:
        """As before `begin`. Idempotent."""
        lifts, self._lifts = self._lifts, []
        for lift in lifts:
            everywhere(lift)
        if lifts:
            log.info("load no longer held back")

    def _narrow(self) -> None:
        allowed = os.sched_getaffinity(0)
        if self._threads >= len(allowed):
            return
        # The last ones: whoever pins by hand begins with the first.
        few = set(sorted(allowed)[-self._threads :])
        self._begin(lambda tid: _pin(tid, few), lambda tid: _pin(tid, allowed))
        log.info("load held back", extra={"cpus": sorted(few)})

    def _step_back(self) -> None:
        present = os.getpriority(os.PRIO_PROCESS, 0)
        nice = min(NICE_MAX, present + self._nice)  # behind neighbours that are niced as we are
        if can_lift(present, nice):
            self._begin(lambda tid: _renice(tid, nice), lambda tid: _renice(tid, present))
            log.info("load held back", extra={"nice": nice})
            return
        self._begin(
            lambda tid: _schedule(tid, os.SCHED_BATCH), lambda tid: _schedule(tid, os.SCHED_OTHER)
        )
        why = (
            f"nice {nice} could not be taken back to {present} when the load is over: give "
            "this process CAP_SYS_NICE or RLIMIT_NICE 20 (LimitNICE=0 of systemd); SCHED_BATCH "
            "stands in"
        )
        log.warning("load is not niced", extra={"reason": why})

    def _begin(self, begin: Callable[[int], bool], lift: Callable[[int], bool]) -> None:
        self._lifts.append(lift)
        everywhere(begin)


def can_lift(present: int, nice: int) -> bool:
    """Whether a thread of this process may go to `nice` and come back to `present`."""
    with suppress(OSError, ValueError):
        _raise_limit()
    found: list[bool] = []

    def attempt() -> None:
        tid = threading.get_native_id()
        try:
            os.setpriority(os.PRIO_PROCESS, tid, nice)
            os.setpriority(os.PRIO_PROCESS, tid, present)
        except PermissionError:
            found.append(False)
        else:
            found.append(True)

    # A house rule broken (one thread): what a thread did to itself ends with it.
    thread = threading.Thread(target=attempt, name="nice", daemon=True)
    thread.start()
    thread.join()
    return found == [True]


def _raise_limit() -> None:
    """Up to what is allowed, which is allowed to everybody."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NICE)
    resource.setrlimit(resource.RLIMIT_NICE, (hard, hard))


def everywhere(change: Callable[[int], bool]) -> None:
    """Have all threads changed, those that begin meanwhile too."""
    for _ in range(SCANS_MAX):
        changed = False
        for name in os.listdir(TASKS):
            with suppress(ProcessLookupError):  # it has ended
                changed |= change(int(name))
        if not changed:
            return


def _pin(tid: int, cpus: set[int]) -> bool:
    if os.sched_getaffinity(tid) == cpus:
        return False
    os.sched_setaffinity(tid, cpus)
    return True


def _renice(tid: int, nice: int) -> bool:
    if os.getpriority(os.PRIO_PROCESS, tid) == nice:
        return False
    os.setpriority(os.PRIO_PROCESS, tid, nice)
    return True


def _schedule(tid: int, policy: int) -> bool:
    if os.sched_getscheduler(tid) == policy:
        return False
    os.sched_setscheduler(tid, policy, os.sched_param(0))
    return True
