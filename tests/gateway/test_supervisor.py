"""The supervisor does what control says, outlives control, and takes everything down with it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.children import Child
from gateway.messages import (
    Children,
    Exit,
    Exited,
    Kill,
    Serving,
    Signalled,
    Spawn,
    Spawned,
    SpawnFailed,
)
from gateway.supervisor import EXIT_CUT, Supervisor
from tests.gateway.supervising import SUPERVISOR, child, gone, group_gone, second_life, supervisor

pytestmark = pytest.mark.live


async def test_a_child_gets_its_descriptor_and_its_exit_is_told(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        assert await life.told(Children) == Children({}, 2, {})
        command = (sys.executable, "-c", "import os,sys; os.fstat(int(sys.argv[1])); sys.exit(7)")
        life.order(Spawn("a", (*command, "{x}"), {"x": "life"}, {}, False))
        spawned = await life.told(Spawned)
        assert await life.told(Exited) == Exited("a", spawned.pid, 7)


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        life.order(Spawn("a", ("/no/such/program",), {}, {}, False))
        failed = await life.told(SpawnFailed)
        assert failed.name == "a"
        assert "/no/such/program" in failed.reason


async def test_a_name_that_still_runs_is_not_given_again(tmp_path: Path) -> None:
    """The second child took the place of the first, whose end then took the gateway down."""
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        life.order(child("a", False))
        pid = (await life.told(Spawned)).pid
        life.order(child("a", False))
        assert await life.told(SpawnFailed) == SpawnFailed("a", "a child called a still runs")
        life.order(Kill("a", signal.SIGKILL))
        assert await life.told(Exited) == Exited("a", pid, -signal.SIGKILL)
        life.order(child("a", False))
        assert (await life.told(Spawned)).pid != pid


async def test_control_that_dies_is_started_again_and_told_what_runs(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running)
        life.order(Kill("a", signal.SIGKILL))
        exited = await life.told(Exited)
        assert (exited.pid, exited.status) == (pid, -signal.SIGKILL)
        assert await group_gone(exited.pid)


async def test_the_label_of_a_child_comes_back_to_the_next_control(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        first = await running.lives.get()
        await first.told(Children)
        sleep = (sys.executable, "-c", "import time; time.sleep(600)")
        first.order(Spawn("a", sleep, {}, {}, False, label="hash cpu0"))
        first.order(Spawn("b", sleep, {}, {}, False))
        await first.told(Spawned)
        await first.told(Spawned)
        os.kill(first.pid, signal.SIGKILL)
        second = await running.lives.get()
        assert (await second.told(Children)).labels == {"a": "hash cpu0"}


async def test_signals_are_control_s_to_decide(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        running.process.send_signal(signal.SIGHUP)
        assert await life.told(Signalled) == Signalled(0, reload=True)
        running.process.terminate()
        assert await life.told(Signalled) == Signalled(1, reload=False)
        running.process.send_signal(signal.SIGINT)
        assert await life.told(Signalled) == Signalled(2, reload=False)
        life.order(Exit(5))
        assert await running.process.wait() == 5


async def test_a_successor_of_control_is_told_that_the_gateway_is_ending(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        running.process.terminate()
        await life.told(Signalled)
        os.kill(life.pid, signal.SIGKILL)
        life = await running.lives.get()
        await life.told(Children)
        assert await life.told(Signalled) == Signalled(1, reload=False)


async def test_a_third_signal_ends_without_a_control_that_does_not_answer(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running)
        for count in (1, 2):
            running.process.terminate()
            assert await life.told(Signalled) == Signalled(count, reload=False)
        running.process.terminate()
        assert await running.process.wait() == EXIT_CUT
        assert await group_gone(pid)


async def test_a_control_that_cannot_go_on_ends_nothing_that_serves(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running)
        life.order(Serving())
        life.writer.close()  # this control now exits with 78
        life = await running.lives.get()
        assert (await life.told(Children)).pids == {"a": pid}


async def test_nothing_outlives_the_supervisor_not_even_when_it_is_killed(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        _, pid = await second_life(running, grandchild=False)
        running.process.kill()
        await running.process.wait()
        assert await gone(pid)


async def test_children_that_are_left_at_the_end_go_with_their_whole_group(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running)
        life.order(Exit(0))
        assert await running.process.wait() == 0
        assert await group_gone(pid)


async def test_a_control_that_calls_itself_unusable_ends_the_gateway(tmp_path: Path) -> None:
    program = SUPERVISOR.replace("sys.argv[2]", "'raise SystemExit(78)'")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, "x", "x")
    assert await asyncio.wait_for(process.wait(), 300) == 78


def test_a_gateway_without_control_is_not_taken_over_now() -> None:
    """Once the question was lost, and whoever had put it waited for a minute."""
    supervisor = Supervisor({}, (), 1)
    supervisor._carry_out(Serving())
    assert "control of the running gateway has died" in supervisor.hindrance()


async def test_a_signal_that_was_blocked_when_the_gateway_was_started_is_heard(
    tmp_path: Path,
) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        async with supervisor(tmp_path) as running:
            life = await running.lives.get()
            await life.told(Children)
            running.process.terminate()
            said = await asyncio.wait_for(life.told(Signalled), 300)
            assert said == Signalled(1, reload=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_what_is_ready_twice_of_one_child_is_served_once() -> None:
    """Once the end of an instance, ready together with the last words of its guard, ended the
    supervisor, and with it everything below."""
    supervisor = Supervisor({}, (), 1)
    guard = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    said, theirs = os.pipe()
    os.set_blocking(said, False)
    pidfd = os.pidfd_open(guard.pid)
    child = Child(guard.pid, pidfd, handed_over=True, started=0.0, said_fd=said, adopted=True)
    supervisor.children["instance.a"] = child
    supervisor.adopt()
    assert guard.stdin is not None
    guard.stdin.close()
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)  # so its end is what is ready first
    os.write(theirs, b"ended 0\n")
    os.close(theirs)
    supervisor.serve_ready(0.0)
    assert supervisor.children == {}
    assert (child.ended, child.said_fd) == (True, -1)
    assert guard.wait() == 0
