"""The kernel's accounts of a process, read where the benchmark reads them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import orjson

from tests.bench.processes import children, cpu_ns, maps, pin, rss_kib


def test_work_is_seen_as_cpu_time() -> None:
    before = cpu_ns([os.getpid()])
    end = time.process_time() + 0.05  # the kernel adds it up tick by tick: ten of them
    while time.process_time() < end:
        sum(range(10_000))
    assert cpu_ns([os.getpid()]) > before


def test_touched_memory_is_seen() -> None:
    before = rss_kib([os.getpid()])
    block = b"x" * (64 << 20)
    assert rss_kib([os.getpid()]) - before > 32 << 10
    del block


def test_a_child_is_found_and_pinned_to_one_core() -> None:
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        core = min(os.sched_getaffinity(0))
        pin(child.pid, core)
        assert os.sched_getaffinity(child.pid) == {core}
        child.communicate(b"\n")


def test_several_processes_are_counted_together() -> None:
    """Two that wait for input: neither moves while both are looked at."""
    command = [sys.executable, "-c", "print(flush=True); input()"]
    piped = subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=piped, stdout=piped) as one,
        subprocess.Popen(command, stdin=piped, stdout=piped) as two,
    ):
        for child in (one, two):
            assert child.stdout is not None
            child.stdout.readline()
        both = [one.pid, two.pid]
        assert rss_kib(both) == rss_kib([one.pid]) + rss_kib([two.pid]) > rss_kib([one.pid])
        assert cpu_ns(both) > cpu_ns([one.pid])
        for child in (one, two):
            child.communicate(b"\n")


def test_a_library_that_is_loaded_is_found_below_its_folder_only(tmp_path: Path) -> None:
    assert orjson.__file__ is not None
    assert maps(os.getpid(), Path(orjson.__file__).resolve().parent)
    assert not maps(os.getpid(), tmp_path)
