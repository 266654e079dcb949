"""An instance ends with everything that it has started, and its end is told when that is gone."""

import os
import signal
from pathlib import Path

import pytest

from gateway.messages import (
    Children,
    Exit,
    Exited,
    Kill,
    Spawned,
    SpawnFailed,
)
from tests.gateway.supervising import (
    child,
    gone,
    instance,
    parent,
    running_among,
    supervisor,
    with_family,
)

pytestmark = pytest.mark.live


async def test_the_exit_of_an_instance_is_told_when_nothing_of_it_is_left(tmp_path: Path) -> None:
    async with with_family(tmp_path) as (_, life, pids):
        os.kill(pids[0], signal.SIGKILL)
        assert await life.told(Exited) == Exited("instance.i", pids[0], -signal.SIGKILL)
        assert running_among(pids) == []


async def test_a_stopped_instance_is_deaf_to_sigterm_and_ended_by_sigkill(tmp_path: Path) -> None:
    async with with_family(tmp_path) as (_, life, pids):
        for pid in (parent(pids[0]), *running_among(pids)):  # the guard as well
            os.kill(pid, signal.SIGSTOP)
        life.order(Kill("instance.i", signal.SIGTERM))
        life.order(Kill("instance.i", signal.SIGKILL))
        assert await life.told(Exited) == Exited("instance.i", pids[0], -signal.SIGKILL)
        assert running_among(pids) == []


async def test_the_exit_of_an_instance_whose_guard_was_killed_waits_for_all_of_it(
    tmp_path: Path,
) -> None:
    async with with_family(tmp_path) as (_, life, pids):
        os.kill(parent(pids[0]), signal.SIGKILL)
        assert await life.told(Exited) == Exited("instance.i", pids[0], -signal.SIGKILL)
        assert running_among(pids) == []


async def test_no_descendant_of_an_instance_outlives_a_supervisor_that_is_killed(
    tmp_path: Path,
) -> None:
    async with with_family(tmp_path) as (running, _, pids):
        guard = parent(pids[0])
        running.process.kill()
        await running.process.wait()
        assert await gone(guard)
        assert running_among(pids) == []


async def test_a_control_that_was_started_again_is_told_the_pid_of_the_instance(
    tmp_path: Path,
) -> None:
    async with with_family(tmp_path) as (running, life, pids):
        os.kill(life.pid, signal.SIGKILL)
        life = await running.lives.get()
        assert (await life.told(Children)).pids == {"instance.i": pids[0]}
        life.order(Exit(0))
        assert await running.process.wait() == 0
        assert running_among(pids) == []


async def test_an_instance_that_could_not_be_started_is_told_once(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        life.order(instance(tmp_path, "/no/such/program"))
        failed = await life.told(SpawnFailed)
        assert "/no/such/program" in failed.reason
        life.order(Kill("instance.i", signal.SIGKILL))
        life.order(child("a", grandchild=False))
        await life.told(Spawned)  # and no Exited before it
