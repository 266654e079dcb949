"""The kernel's accounts of a process, read where the benchmark reads them."""

import os
import subprocess
import sys

from tests.bench.processes import children, cpu_ns, pin, rss_kib


def test_work_is_seen_as_cpu_time() -> None:
    before = cpu_ns(os.getpid())
    sum(range(100_000))
    assert cpu_ns(os.getpid()) > before


def test_touched_memory_is_seen() -> None:
    before = rss_kib(os.getpid())
    block = b"x" * (64 << 20)
    assert rss_kib(os.getpid()) - before > 32 << 10
    del block


def test_a_child_is_found_and_pinned_to_one_core() -> None:
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        core = min(os.sched_getaffinity(0))
        pin(child.pid, core)
        assert os.sched_getaffinity(child.pid) == {core}
        child.communicate(b"\n")
