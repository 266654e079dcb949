import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.children import Child, start
from gateway.messages import Spawn
from tests.descriptors import descriptors

pytestmark = pytest.mark.live  # starts processes


@contextmanager
def told(*lines: bytes) -> Iterator[Child]:
    """An instance whose guard says this, and then ends."""
    said, theirs = os.pipe()
    os.set_blocking(said, False)
    child = Child(pid=7, pidfd=-1, handed_over=True, started=0.0, said_fd=said)
    try:
        for line in lines:
            os.write(theirs, line)
            child.hear()
    finally:
        os.close(theirs)
    yield child
    child.hear()
    assert child.said_fd < 0  # closed with the pipe's end


def test_the_guard_s_own_pid_is_shown_until_it_has_said_the_instance_s() -> None:
    with told(b"pi") as child:
        assert (child.instance_pid, child.shown_pid) == (0, 7)
    with told(b"pid 4", b"2\n") as child:
        assert (child.instance_pid, child.shown_pid) == (42, 42)


@pytest.mark.parametrize(
    ("line", "ended", "oom"),
    [(b"ended -9 oom\n", True, True), (b"ended -9\n", True, False), (b"pid 42\n", False, False)],
)
def test_an_end_is_told_and_whether_memory_was_short(line: bytes, ended: bool, oom: bool) -> None:
    with told(b"pid 42\n", line) as child:
        assert (child.ended, child.oom, child.failed) == (ended, oom, "")


@pytest.mark.parametrize(
    ("line", "status"), [(b"ended -9 oom\n", -9), (b"ended 78\n", 78), (b"ended 0\n", 0)]
)
def test_how_an_adopted_one_ended_its_guard_knows_whatever_the_kernel(
    line: bytes, status: int
) -> None:
    with told(line) as child:
        child.adopted = True
        child.pidfd = os.open("/dev/null", os.O_RDONLY)  # tells nothing, as on an older kernel
        assert child.reap() == status


def test_why_nothing_was_started_is_told() -> None:
    with told(b"failed serve: no such file\n") as child:
        assert child.failed == "serve: no such file"


def test_a_child_gets_its_descriptors_and_what_could_not_start_leaves_none_open() -> None:
    before = descriptors()
    held = {"life": os.open("/dev/null", os.O_RDONLY)}
    program = "import os, sys; os.fstat(int(sys.argv[1])); os.fstat(int(sys.argv[2]))"
    order = Spawn("i", (sys.executable, "-c", program, "{x}", "{said}"), {"x": "life"}, {}, True)
    child = start(order, held)
    assert os.waitpid(child.pid, 0)[1] == 0
    child.hear()
    os.close(child.pidfd)
    with pytest.raises(FileNotFoundError):
        start(Spawn("i", ("/no/such/program",), {}, {}, True), held)
    with pytest.raises(KeyError):
        start(Spawn("i", ("true",), {"x": "not held"}, {}, True), held)
    os.close(held["life"])
    assert descriptors() - before == set()


def test_a_signal_to_what_is_gone_is_no_error() -> None:
    child = start(Spawn("a", ("true",), {}, {}, False), {})
    os.waitpid(child.pid, 0)
    child.signal(signal.SIGTERM)
    os.close(child.pidfd)
