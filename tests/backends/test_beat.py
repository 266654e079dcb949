"""Registering and beating, against a registry of our own on a real connection."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import grpc
import pytest

from backends.beat import Beat, registry
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1.states import Phase
from tests.backends.fake_registry import LONG_S, FakeRegistry, listening
from tests.backends.rig import Rig, changed, ready_rig, rig

SHORT_S = 0.001
BEAT = wire.HeartbeatReply(interval_s=LONG_S)


@asynccontextmanager
async def beating(made: Rig, address: str) -> AsyncIterator[Beat]:
    async with registry(address) as stub:
        beat = Beat(made.facts, stub, "secret", 30.0, lambda: made.now, Random(7))
        beat.start()
        yield beat
        await beat.end("")


@pytest.fixture
async def ready() -> AsyncIterator[Rig]:
    async with ready_rig() as made:
        yield made


async def test_it_registers_with_its_addresses_and_its_token_while_still_loading() -> None:
    made, gateway = rig(), FakeRegistry()
    async with listening(gateway) as address, beating(made, address):
        request = await gateway.next()
    assert (request.status, request.launch_token) == (made.facts.status(), "secret")
    assert (request.status.http_address, request.status.state) == ("127.0.0.1:1", wire.INITIALIZING)


async def test_it_beats_at_the_interval_it_was_given(ready: Rig) -> None:
    gateway = FakeRegistry(interval_s=SHORT_S)
    async with listening(gateway) as address, beating(ready, address):
        heard = [type(await gateway.next()).__name__ for _ in range(3)]
    assert heard == ["RegisterRequest", "HeartbeatRequest", "HeartbeatRequest"]


async def test_a_change_is_said_at_once(ready: Rig) -> None:
    gateway = FakeRegistry()
    async with listening(gateway) as address, beating(ready, address):
        await gateway.next()
        ready.life.drain(30.0, "asked", 0.0)
        beat = await gateway.next()
    assert beat.status.state == wire.DRAINING


async def test_on_the_way_to_ready_each_phase_is_news_and_each_percent_is_not() -> None:
    made, gateway = rig(), FakeRegistry()
    async with listening(gateway) as address, beating(made, address):
        await gateway.next()
        made.life.progress(Phase.LOADING_MODEL, 0.0, "", 0.0)
        assert (await gateway.next()).status.phase == wire.LOADING_MODEL
        for percent in range(100):
            made.life.progress(Phase.LOADING_MODEL, percent / 100, "", 0.0)
        made.life.progress(Phase.COMPILING, 0.0, "", 0.0)
        assert (await gateway.next()).status.phase == wire.COMPILING
        assert gateway.heard.empty()


async def test_orders_are_obeyed(ready: Rig) -> None:
    gateway = FakeRegistry(interval_s=SHORT_S)
    gateway.beats = [wire.HeartbeatReply(order=wire.ORDER_DRAIN, grace_s=9), *gateway.beats]
    async with listening(gateway) as address, beating(ready, address):
        await changed(ready.life, "DRAINING")
        assert ready.life.drain(1.0, "", 4.0).remaining_s == 5.0
        gateway.beats.append(wire.HeartbeatReply(order=wire.ORDER_RESUME))
        await changed(ready.life, "READY")
        gateway.beats.append(wire.HeartbeatReply(order=wire.ORDER_STOP))
        await changed(ready.life, "DRAINING")
        assert ready.life.stop_at == 30.0


async def test_an_order_that_came_too_late_changes_nothing(ready: Rig) -> None:
    gateway = FakeRegistry(interval_s=SHORT_S)
    ready.life.stop(30.0, "asked", 0.0)
    before = ready.life.standing
    gateway.beats = [wire.HeartbeatReply(order=wire.ORDER_RESUME)]
    async with listening(gateway) as address, beating(ready, address):
        for _ in range(4):
            await gateway.next()
    assert ready.life.standing is before


async def test_a_gateway_that_forgot_it_is_told_again_at_once(ready: Rig) -> None:
    gateway = FakeRegistry()
    gateway.beats = [wire.HeartbeatReply(order=wire.ORDER_REGISTER), BEAT]
    async with listening(gateway) as address, beating(ready, address):
        await gateway.next()
        ready.life.drain(30.0, "asked", 0.0)
        heard = [type(await gateway.next()).__name__ for _ in range(2)]
    assert heard == ["HeartbeatRequest", "RegisterRequest"]


@pytest.mark.parametrize("code", [grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INTERNAL])
async def test_a_refused_registration_is_tried_again(
    code: grpc.StatusCode, ready: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = FakeRegistry()
    gateway.refusals = [code, code]
    async with listening(gateway) as address, beating(ready, address):
        await gateway.next()
        for reason in ("first", "second"):  # a change also cuts the wait for the next try short
            ready.life.drain(30.0, reason, 0.0)
            assert type(await gateway.next()).__name__ == "RegisterRequest"
            ready.life.resume(0.0)
    troubles = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [str(vars(each)["reason"]) for each in troubles] == [f"{code.name}: not now"]


async def test_a_gateway_that_comes_back_without_its_memory_is_told_again(ready: Rig) -> None:
    first, second = FakeRegistry(), FakeRegistry()
    second.beats = [wire.HeartbeatReply(order=wire.ORDER_REGISTER), BEAT]
    async with AsyncExitStack() as before:
        address = await before.enter_async_context(listening(first))
        async with beating(ready, address):
            await first.next()
            await before.aclose()
            ready.life.drain(30.0, "nobody hears this", 0.0)
            async with listening(second, int(address.rpartition(":")[2])):
                heard = [await second.next(), await second.next()]
    assert [type(each).__name__ for each in heard] == ["HeartbeatRequest", "RegisterRequest"]
    assert heard[1].status.state == wire.DRAINING


async def test_goodbye_is_said_by_id_and_incarnation(ready: Rig) -> None:
    gateway = FakeRegistry()
    async with listening(gateway) as address, beating(ready, address) as beat:
        await gateway.next()
        ready.life.drain(30.0, "", 0.0)
        await gateway.next()
        await beat.end("stopped")
        await beat.end("again")
    said = await gateway.next()
    assert (said.instance_id, said.incarnation, said.reason) == ("m-1-0", "life-1", "stopped")
    assert gateway.heard.empty()


async def test_one_secret_goes_with_every_word_and_another_life_has_another(ready: Rig) -> None:
    tokens = list[set[str]]()
    for _ in range(2):
        gateway = FakeRegistry(interval_s=SHORT_S)
        async with listening(gateway) as address, beating(ready, address) as beat:
            heard = [await gateway.next() for _ in range(2)]
            await beat.end("stopped")
            while type(heard[-1]) is not wire.DeregisterRequest:
                heard.append(await gateway.next())
        tokens.append({one.lease_token for one in heard})
    (first,), (second,) = tokens
    assert first != second
    assert min(len(first), len(second)) >= 32


async def test_nobody_is_bid_goodbye_who_was_never_greeted(ready: Rig) -> None:
    gateway = FakeRegistry()
    async with listening(gateway) as address, beating(ready, address) as beat:
        await beat.end("stopped")  # before the first call was made
    assert gateway.heard.empty()


async def test_without_a_goodbye_the_last_word_is_the_status(ready: Rig) -> None:
    gateway = FakeRegistry()
    async with listening(gateway) as address:
        async with beating(ready, address):
            await gateway.next()
            ready.life.fail("no memory", 0.0)
        heard = [await gateway.next() for _ in range(gateway.heard.qsize())]
    assert (heard[-1].status.state, heard[-1].status.reason) == (wire.ERROR, "no memory")


async def test_a_gateway_that_is_gone_does_not_hold_up_the_goodbye(ready: Rig) -> None:
    gateway = FakeRegistry()
    async with listening(gateway) as address, beating(ready, address) as beat:
        await gateway.next()
        ready.life.drain(30.0, "", 0.0)
        await gateway.next()
        gateway.refusals = [grpc.StatusCode.UNAVAILABLE]
        await beat.end("stopped")
