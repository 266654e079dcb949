"""A load is held back by what can be taken back, in every thread, and is free again afterwards."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from backends import restraint
from backends.restraint import TASKS, Restraint

ROOT = Path(__file__).parents[2]
NOBODY = 65534


@contextmanager
def thread() -> Iterator[int]:
    """A thread that waits; its id."""
    begun, over = threading.Event(), threading.Event()
    ids: list[int] = []

    def run() -> None:
        ids.append(threading.get_native_id())
        begun.set()
        over.wait()

    running = threading.Thread(target=run)
    running.start()
    begun.wait()
    try:
        yield ids[0]
    finally:
        over.set()
        running.join()


def everywhere(read: Callable[[int], object]) -> set[object]:
    """What it says of each thread of this process, others than ours among them."""
    found = set()
    for name in os.listdir(TASKS):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            found.add(read(int(name)))
    return found


def cpus(tid: int) -> frozenset[int]:
    return frozenset(os.sched_getaffinity(tid))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be narrowed")
def test_all_threads_are_narrowed_and_widened_again_those_that_begin_meanwhile_too() -> None:
    allowed = frozenset(os.sched_getaffinity(0))
    few = frozenset({max(allowed)})
    held = Restraint(threads=1, nice=0)
    with thread():
        held.begin()
        try:
            assert everywhere(cpus) == {few}
            with thread() as late:
                assert cpus(late) == few  # inherited
                held.lift()
                assert everywhere(cpus) == {allowed}
        finally:
            held.lift()


def test_as_many_cpus_as_there_are_hold_nothing_back() -> None:
    allowed = frozenset(os.sched_getaffinity(0))
    held = Restraint(threads=len(allowed), nice=0)
    held.begin()
    assert everywhere(cpus) == {allowed}


def test_a_thread_that_begins_while_others_are_looked_at_is_looked_at_too() -> None:
    """`/proc/self/task` is a list of its moment."""
    over = threading.Event()
    late: list[threading.Thread] = []
    seen: set[int] = set()

    def change(tid: int) -> bool:
        if not late:
            late.append(threading.Thread(target=over.wait))
            late[0].start()
        news = tid not in seen
        seen.add(tid)
        return news

    try:
        restraint.everywhere(change)
        assert late[0].native_id in seen
    finally:
        over.set()
        late[0].join()


# What can be taken back depends on who asks: each question is put to a process of its own, once as
# whoever runs the tests, and once as somebody without any privilege.
NICED = """
import logging, os, sys, threading
from backends import restraint
from backends.restraint import TASKS, Restraint
user = int(sys.argv[1])
if user:
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
see = lambda: {
    (os.getpriority(os.PRIO_PROCESS, int(t)), os.sched_getscheduler(int(t)))
    for t in os.listdir(TASKS)
}
over = threading.Event()
threading.Thread(target=over.wait, daemon=True).start()
nice = os.getpriority(os.PRIO_PROCESS, 0)
before, liftable = see(), restraint.can_lift(nice, nice + 5)
held = Restraint(0, 5)
held.begin()
began = see()
late = threading.Thread(target=over.wait, daemon=True)
late.start()
held.lift()
niced, batch = {(nice + 5, os.SCHED_OTHER)}, {(nice, os.SCHED_BATCH)}
print(liftable, began == niced, began == batch, see() == before)
"""


def niced(user: int) -> list[str]:
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT}/proto", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", NICED, str(user)]
    asked = subprocess.run(
        command, env=environment, check=True, timeout=300, capture_output=True, text=True
    )
    return asked.stdout.splitlines()


def test_a_load_is_niced_only_where_that_can_be_taken_back_and_it_is() -> None:
    *_, last = niced(0)
    assert last in ("True True False True", "False False True True")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_without_privilege_batch_scheduling_stands_in_and_the_log_says_why() -> None:
    lines = niced(NOBODY)
    assert lines[-1] == "False False True True"
    assert "load is not niced" in lines


def test_where_scheduling_cannot_be_seen_nothing_is_done_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restraint, "TASKS", tmp_path / "none")
    with caplog.at_level(logging.WARNING):
        Restraint(1, 10).begin()
        Restraint(0, 0).begin()
    assert [record.message for record in caplog.records] == ["load is not held back"]
