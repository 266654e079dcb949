"""Whole lives with a scripted engine, over real connections, in this process."""

import asyncio
import errno
import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import grpc
import pytest

from backends.errors import CannotListen, LoadFailed, SnapshotInvalid
from backends.instance import Instance
from backends.living import Ending
from backends.metrics import exposition
from backends.settings import Address, Settings
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from sluicegate.v1.states import State
from tests.backends.fake_registry import LONG_S, FakeRegistry, listening
from tests.backends.fakes import Gate as Steps
from tests.backends.fakes import ScriptedEngine, successor
from tests.backends.rig import ScriptedFamily, changed, write_snapshot

HI = {"model": "m", "prompt": "ab", "max_tokens": 3}
VERIFICATION_STEPS = 4


def refuse() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


class Lived:
    """One life, from outside."""

    def __init__(self, instance: Instance, family: ScriptedFamily) -> None:
        self.instance = instance
        self.family = family
        self.ended = asyncio.create_task(instance.run())

    async def until(self, *states: str) -> None:
        await changed(self.instance.life, *states)

    async def ending(self) -> Ending:
        async with asyncio.timeout(60):
            return await self.ended

    @property
    def url(self) -> str:
        return f"http://{self.instance.facts.identity.http_address}/v1/completions"

    async def post(self, session: aiohttp.ClientSession, **fields: Any) -> aiohttp.ClientResponse:
        return await session.post(self.url, json=HI | fields)


@asynccontextmanager
async def living(
    root: Path,
    engine: ScriptedEngine | None = None,
    steps: Steps | None = None,
    missing: str = "",
    **settings: Any,
) -> AsyncIterator[Lived]:
    write_snapshot(root)
    family = ScriptedFamily(engine or ScriptedEngine(rule=successor), missing)
    given: dict[str, Any] = {"error_linger_s": 0.0, "cache_root": root / ".cache"} | settings
    made = Settings(model="m", version="1", root=root, instance_id="m-1-0", **given)
    lived = Lived(Instance(made, {"llm": family}, Random(7), lambda: 1_700_000_000.0), family)
    try:
        yield lived
    finally:
        if steps is not None:
            steps.open()
        lived.instance.life.stop(0.0, "the test is over", 0.0)
        await asyncio.wait([lived.ended], timeout=60)


@asynccontextmanager
async def lifecycle(lived: Lived) -> AsyncIterator["stubs.LifecycleAsyncStub"]:
    address = lived.instance.facts.identity.grpc_address
    async with grpc.aio.insecure_channel(address) as channel:
        yield stubs.LifecycleStub(channel)


async def test_a_life_from_nothing_to_an_answer_to_an_orderly_end(tmp_path: Path) -> None:
    engine = ScriptedEngine(rule=successor)
    async with living(tmp_path, engine) as lived, aiohttp.ClientSession() as session:
        await lived.until("READY")
        answered = await (await lived.post(session)).json()
        lived.instance.terminate()
        assert await lived.ending() == Ending(0, abrupt=False)
        with pytest.raises(aiohttp.ClientConnectorError):
            await lived.post(session)
    assert answered["choices"][0]["text"] == "cde"
    assert engine.closed
    assert lived.instance.life.standing.reason == "stopped; nothing was lost"


async def test_the_state_is_told_from_the_first_moment_to_the_last(tmp_path: Path) -> None:
    loads = Steps()
    engine = ScriptedEngine(rule=successor, load_gate=loads)
    async with living(tmp_path, engine, loads) as lived:
        await asyncio.to_thread(loads.await_arrivals, 1)
        states, phases = [], []
        async with lifecycle(lived) as stub:
            async for status in stub.WatchStatus(wire.WatchStatusRequest()):
                loads.open()
                states += [status.state] if status.state not in states else []
                phases += [status.phase] if status.phase not in phases else []
                if status.state == wire.READY:
                    lived.instance.terminate()
        assert (await lived.ending()).code == 0
    assert states[0] == wire.INITIALIZING
    assert states[-1] == wire.STOPPED
    assert phases[-1] == wire.RELEASING


async def test_bound_ports_are_the_reported_ones(tmp_path: Path) -> None:
    async with living(tmp_path) as lived:
        await lived.until("READY")
        identity = lived.instance.facts.identity
        ports = [int(a.rpartition(":")[2]) for a in (identity.http_address, identity.grpc_address)]
        assert 0 not in ports
        async with lifecycle(lived) as stub:
            status = await stub.GetStatus(wire.GetStatusRequest())
        assert status.http_address == identity.http_address
        assert status.incarnation == identity.incarnation


async def test_two_lives_of_one_id_are_two_incarnations(tmp_path: Path) -> None:
    settings = Settings(model="m", version="1", root=tmp_path, instance_id="m-1-0")
    rng = Random(7)
    lives = [Instance(settings, {}, rng, lambda: 0.0) for _ in range(2)]
    assert len({life.facts.identity.incarnation for life in lives}) == 2


async def test_an_address_that_is_taken_ends_a_life_before_it_begins(tmp_path: Path) -> None:
    async with living(tmp_path) as lived:
        await lived.until("READY")
        host, _, port = lived.instance.facts.identity.http_address.rpartition(":")
        settings = Settings(
            model="m", version="1", root=tmp_path, instance_id="b", http=Address(host, int(port))
        )
        with pytest.raises(CannotListen, match=port):
            await Instance(settings, {}, Random(7), lambda: 0.0).run()


# --- lives that never become READY ----------------------------------------------------------------


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


# --- drains and stops -----------------------------------------------------------------------------


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
        asyncio.timeout(60),
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
        async with asyncio.timeout(60):
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


# --- with a gateway -------------------------------------------------------------------------------


async def test_it_registers_before_it_loads_and_says_goodbye_at_the_end(tmp_path: Path) -> None:
    gateway = FakeRegistry()
    async with listening(gateway) as address:
        async with living(tmp_path, registry=address, launch_token="secret") as lived:
            first = await gateway.next()
            await lived.until("READY")
            lived.instance.terminate()
            assert (await lived.ending()).code == 0
        heard = [first] + [await gateway.next() for _ in range(gateway.heard.qsize())]
    assert (first.launch_token, first.status.state) == ("secret", wire.INITIALIZING)
    assert isinstance(heard[-1], wire.DeregisterRequest)
    assert heard[-1].reason == "stopped; nothing was lost"


async def test_an_error_is_told_and_not_taken_back_by_a_goodbye(tmp_path: Path) -> None:
    gateway = FakeRegistry(interval_s=0.001)
    loads = Steps()
    engine = ScriptedEngine(load_gate=loads, load_failure=LoadFailed("the device was lost"))
    async with listening(gateway) as address:
        async with living(tmp_path, engine, loads, registry=address) as lived:
            await gateway.next()
            loads.open()
            assert (await lived.ending()).code == 1
        heard = [await gateway.next() for _ in range(gateway.heard.qsize())]
    assert not [each for each in heard if isinstance(each, wire.DeregisterRequest)]
    assert (heard[-1].status.state, heard[-1].status.reason) == (wire.ERROR, "the device was lost")


async def test_the_gateway_can_stop_it_with_the_answer_to_a_beat(tmp_path: Path) -> None:
    gateway = FakeRegistry(interval_s=0.001)
    async with listening(gateway) as address, living(tmp_path, registry=address) as lived:
        await lived.until("READY")
        gateway.beats = [wire.HeartbeatReply(order=wire.ORDER_STOP, grace_s=5)]
        assert (await lived.ending()).code == 0
