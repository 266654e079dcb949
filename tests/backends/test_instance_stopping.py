"""Drains and stops of whole lives: what finishes, what is cut, and what an engine does."""

import asyncio
import logging
from pathlib import Path

import aiohttp
import pytest

from backends.living import Ending
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1.states import State
from tests.backends.fake_registry import LONG_S
from tests.backends.fakes import Gate as Steps
from tests.backends.fakes import ScriptedEngine, successor
from tests.backends.lived import HI, VERIFICATION_STEPS, lifecycle, living


async def test_a_stop_lets_what_is_running_finish(tmp_path: Path) -> None:
    steps = Steps()
    engine = ScriptedEngine(rule=successor, gate=steps)
    async with living(tmp_path, engine, steps) as lived, aiohttp.ClientSession() as session:
        steps.let(VERIFICATION_STEPS + 1)
        await lived.until("READY")
        streamed = await lived.post(session, stream=True)
        lived.instance.terminate()
        refused = await lived.post(session)
        assert (refused.status, refused.headers["x-sluicegate-refused"]) == (503, "draining")
        steps.open()
        assert (await streamed.read()).endswith(b"data: [DONE]\n\n")
        assert (await lived.ending()).code == 0


async def test_a_second_sigterm_cuts_visibly_and_names_what_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    steps = Steps()
    engine = ScriptedEngine(rule=successor, gate=steps)
    async with (
        living(tmp_path, engine, steps, grace_s=LONG_S) as lived,
        aiohttp.ClientSession() as session,
        asyncio.timeout(300),
    ):
        steps.let(VERIFICATION_STEPS + 1)
        await lived.until("READY")
        streamed = await session.post(
            lived.url, json=HI | {"stream": True}, headers={"x-request-id": "precious"}
        )
        lived.instance.terminate()
        lived.instance.terminate()
        with pytest.raises(aiohttp.ClientPayloadError):
            await streamed.read()
        steps.open()
        assert (await lived.ending()).code == 0
    assert lived.instance.life.standing.reason == "stopped; requests cut: 1"
    (cut,) = [record for record in caplog.records if record.message == "request cut"]
    assert vars(cut)["request"] == "precious"


async def test_at_the_end_of_the_grace_the_rest_is_cut(tmp_path: Path) -> None:
    steps = Steps()
    engine = ScriptedEngine(rule=successor, gate=steps)
    async with living(tmp_path, engine, steps) as lived, aiohttp.ClientSession() as session:
        steps.let(VERIFICATION_STEPS + 1)
        await lived.until("READY")
        streamed = await lived.post(session, stream=True)
        async with lifecycle(lived) as stub:
            await stub.Stop(wire.StopRequest(grace_s=0.001))
        with pytest.raises(aiohttp.ClientPayloadError):
            await streamed.read()
        steps.open()
        assert (await lived.ending()).code == 0


async def test_a_later_stop_hastens_the_end_of_the_grace(tmp_path: Path) -> None:
    """Not to zero: what is held has a little time left, and then it is cut."""
    steps = Steps()
    engine = ScriptedEngine(rule=successor, gate=steps)
    async with living(tmp_path, engine, steps) as lived, aiohttp.ClientSession() as session:
        steps.let(VERIFICATION_STEPS + 1)
        await lived.until("READY")
        streamed = await lived.post(session, stream=True)
        async with lifecycle(lived) as stub:
            await stub.Stop(wire.StopRequest(grace_s=LONG_S))
            await stub.Stop(wire.StopRequest(grace_s=0.1))
        async with asyncio.timeout(300):
            with pytest.raises(aiohttp.ClientPayloadError):
                await streamed.read()
        steps.open()
        assert (await lived.ending()).code == 0


async def test_an_engine_that_does_not_close_makes_the_exit_abrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its step hangs: Python's own end would wait for what nobody can stop."""
    monkeypatch.setattr("backends.instance.ENGINE_CLOSE_S", 0.05)
    steps = Steps()
    engine = ScriptedEngine(rule=successor, gate=steps)
    async with living(tmp_path, engine, steps) as lived, aiohttp.ClientSession() as session:
        steps.let(VERIFICATION_STEPS + 1)
        await lived.until("READY")
        streamed = await lived.post(session, stream=True)
        async with lifecycle(lived) as stub:
            await stub.Stop(wire.StopRequest(force=True))
        with pytest.raises(aiohttp.ClientPayloadError):
            await streamed.read()
        assert await lived.ending() == Ending(0, abrupt=True)
        assert not engine.closed


async def test_a_drain_holds_the_instance_out_and_resume_gives_it_back(tmp_path: Path) -> None:
    async with living(tmp_path) as lived, aiohttp.ClientSession() as session:
        await lived.until("READY")
        async with lifecycle(lived) as stub:
            await stub.Drain(wire.DrainRequest(grace_s=0.001))
            assert (await lived.post(session)).status == 503
            assert not lived.ended.done()
            await stub.Resume(wire.ResumeRequest())
            assert (await lived.post(session)).status == 200


async def test_a_held_out_instance_can_be_stopped(tmp_path: Path) -> None:
    async with living(tmp_path) as lived:
        await lived.until("READY")
        async with lifecycle(lived) as stub:
            await stub.Drain(wire.DrainRequest())
            await stub.Stop(wire.StopRequest(force=True))
        assert (await lived.ending()).code == 0


async def test_an_engine_beyond_repair_ends_in_error_and_is_worth_a_restart(tmp_path: Path) -> None:
    def fault(step: str) -> None:
        raise RuntimeError("device lost")

    engine = ScriptedEngine(rule=successor)
    async with living(tmp_path, engine) as lived, aiohttp.ClientSession() as session:
        await lived.until("READY")
        engine.faults = fault
        failed = 0
        while lived.instance.life.standing.state is State.READY:
            failed += (await lived.post(session)).status == 500
        assert failed
        assert (await lived.ending()).code == 1
        assert lived.instance.life.standing.state is State.ERROR
