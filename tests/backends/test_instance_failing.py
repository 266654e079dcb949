"""Lives that never become READY: what they say, and how they exit."""

import asyncio
import errno
import os
import re
from pathlib import Path

import pytest

from backends.errors import LoadFailed, SnapshotInvalid
from backends.living import Ending
from backends.metrics import exposition
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1.states import State
from tests.backends.fake_registry import LONG_S
from tests.backends.fakes import Gate as Steps
from tests.backends.fakes import ScriptedEngine, successor
from tests.backends.lived import VERIFICATION_STEPS, lifecycle, living


def refuse() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_a_changed_file_is_an_error_that_every_poll_hears_the_name_of(tmp_path: Path) -> None:
    async with living(tmp_path, error_linger_s=LONG_S) as lived:
        changed_file = tmp_path / "m" / "1" / "model.safetensors"
        changed_file.chmod(0o644)
        changed_file.write_bytes(b"Weights" * 1000)
        await lived.until("ERROR")
        async with lifecycle(lived) as stub:
            status = await stub.GetStatus(wire.GetStatusRequest())
        assert status.state == wire.ERROR
        assert "model.safetensors: has sha256" in status.reason


@pytest.mark.parametrize(
    ("missing", "failure", "code"),
    [
        ("", SnapshotInvalid("model.safetensors: has sha256"), 78),
        ("MindSpore is not installed: pip install 'sluicegate[mindspore]'", None, 78),
        ("", LoadFailed("the device was lost"), 1),
    ],
)
async def test_an_error_lingers_and_exits_with_the_code_that_says_if_a_restart_helps(
    tmp_path: Path, missing: str, failure: Exception | None, code: int
) -> None:
    engine = ScriptedEngine(load_failure=failure)
    async with living(tmp_path, engine, missing=missing) as lived:
        assert await lived.ending() == Ending(code, abrupt=False)
    standing = lived.instance.life.standing
    assert standing.state is State.ERROR
    assert standing.reason == (missing or str(failure))


async def test_a_disk_that_refuses_is_an_error_with_the_systems_words(tmp_path: Path) -> None:
    engine = ScriptedEngine(rule=successor)
    async with living(tmp_path, engine) as lived:
        lived.family.on_build = refuse
        assert (await lived.ending()).code == 1
    assert lived.instance.life.standing.state is State.ERROR
    assert lived.instance.life.standing.reason == "OSError: [Errno 5] Input/output error"


async def test_ready_says_what_the_warm_up_has_brought(tmp_path: Path) -> None:
    async with living(tmp_path, warmup_rounds=2) as lived:
        await lived.until("READY")
        reason = lived.instance.life.standing.reason
        metrics = exposition(lived.instance.facts).decode()
    assert re.match(r"warmed up with 1 samples x 2: first quarter \d+ ms, last ", reason)
    labels = '{instance="m-1-0",model="m",quarter="last",version="1"}'
    assert f"sluicegate_instance_warmup_latency_seconds{labels} " in metrics


async def test_a_stop_in_the_middle_of_the_warm_up_is_prompt_and_never_ready(
    tmp_path: Path,
) -> None:
    steps = Steps()
    engine = ScriptedEngine(rule=successor, gate=steps)
    async with living(tmp_path, engine, steps, warmup_rounds=3) as lived:
        await asyncio.to_thread(steps.await_arrivals, 1)
        lived.instance.terminate()
        assert await lived.ending() == Ending(0, abrupt=True)
    assert lived.instance.life.standing.state is State.STOPPED


async def test_a_failed_one_knows_by_when_it_should_have_ended(tmp_path: Path) -> None:
    async with living(tmp_path, missing="nothing works", error_linger_s=LONG_S) as lived:
        await lived.until("ERROR")
        async with lifecycle(lived) as stub:
            await stub.GetStatus(wire.GetStatusRequest())
        due = lived.instance.life.overdue_at
        assert due is not None
        assert due > asyncio.get_running_loop().time() + LONG_S / 2


async def test_a_stop_ends_the_lingering(tmp_path: Path) -> None:
    async with living(tmp_path, missing="nothing works", error_linger_s=LONG_S) as lived:
        await lived.until("ERROR")
        async with lifecycle(lived) as stub:
            await stub.Stop(wire.StopRequest())
        assert (await lived.ending()).code == 0


async def test_sigterm_while_loading_does_not_wait_for_the_compile(tmp_path: Path) -> None:
    loads = Steps()
    engine = ScriptedEngine(load_gate=loads)
    async with living(tmp_path, engine, loads) as lived:
        await asyncio.to_thread(loads.await_arrivals, 1)
        lived.instance.terminate()
        assert await lived.ending() == Ending(0, abrupt=True)
        assert lived.instance.life.standing.state is State.STOPPED


async def test_a_stop_in_the_moment_of_the_last_check_is_never_ready(tmp_path: Path) -> None:
    async with living(tmp_path) as lived:
        seen = []
        lived.instance.life.watch(lambda: seen.append(lived.instance.life.standing.state))

        def on_token(count: int) -> None:
            if count == VERIFICATION_STEPS:
                lived.instance.terminate()

        lived.family.on_token = on_token
        assert (await lived.ending()).code == 0
    assert set(seen) == {State.INITIALIZING, State.STOPPED}
