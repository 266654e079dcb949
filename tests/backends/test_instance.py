"""Whole lives: from nothing to an answer to an orderly end, and with a gateway."""

import asyncio
from pathlib import Path
from random import Random

import aiohttp
import pytest

from backends.errors import CannotListen, LoadFailed
from backends.instance import Instance
from backends.living import Ending
from backends.settings import Address, Settings
from sluicegate.v1 import lifecycle_pb2 as wire
from tests.backends.fake_registry import FakeRegistry, listening
from tests.backends.fakes import Gate as Steps
from tests.backends.fakes import ScriptedEngine, successor
from tests.backends.lived import lifecycle, living


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
