"""Consumers that leave, and the limit on how many there are."""

import asyncio

import pytest

from backends.errors import QueueFull
from tests.backends.fakes import Gate, ScriptedEngine, answer
from tests.backends.test_executor import generation, held, ids, started


async def test_a_full_executor_refuses_and_takes_again_once_something_ended() -> None:
    gate = Gate()
    executor = await started(ScriptedEngine(slots=1, gate=gate), queue_max=2)
    streams = [executor.submit(generation(n, max_tokens=1)) for n in (1, 2, 3)]
    with pytest.raises(QueueFull, match="3 of 3"):
        executor.submit(generation(4))
    await asyncio.to_thread(gate.await_arrivals, 1)
    gate.let(1)
    assert await ids(streams[0]) == answer([1], 1)
    last = executor.submit(generation(4, max_tokens=1))
    gate.open()
    assert await ids(last) == answer([4], 1)
    await executor.close()


async def test_a_client_that_leaves_frees_its_slot_for_the_next_step() -> None:
    gate = Gate()
    engine = ScriptedEngine(slots=1, gate=gate)
    executor = await started(engine)
    leaver = executor.submit(generation(1, max_tokens=50))
    waiter = executor.submit(generation(2, max_tokens=1))
    gate.let(1)
    await asyncio.to_thread(gate.await_arrivals, 2)
    leaver.cancel()
    leaver.cancel()
    gate.open()
    assert await ids(waiter) == answer([2], 1)
    assert await ids(leaver) == []
    assert [call[0] for call in engine.calls] == ["prefill", "decode", "prefill"]
    assert executor.readings().served_total == 1
    assert held(executor.readings()) == (0, 0)
    leaver.cancel()
    await executor.close()


async def test_a_client_that_leaves_the_queue_costs_no_step() -> None:
    gate = Gate()
    engine = ScriptedEngine(slots=1, gate=gate)
    executor = await started(engine)
    first = executor.submit(generation(1, max_tokens=1))
    leaver = executor.submit(generation(2, max_tokens=1))
    last = executor.submit(generation(3, max_tokens=1))
    await asyncio.to_thread(gate.await_arrivals, 1)
    assert held(executor.readings()) == (0, 3)  # the loop has not heard of the admission yet
    leaver.cancel()
    gate.open()
    assert await ids(first) == answer([1], 1)
    assert await ids(last) == answer([3], 1)
    assert [call[2] for call in engine.calls] == [(1,), (3,)]
    await executor.close()


async def test_a_generation_stopped_by_its_consumer_counts_as_served_once() -> None:
    gate = Gate()
    executor = await started(ScriptedEngine(slots=1, gate=gate))
    stream = executor.submit(generation(1, max_tokens=2))
    await asyncio.to_thread(gate.await_arrivals, 1)
    gate.let(1)
    assert (await anext(stream)).finish is None
    stream.stop()
    gate.open()
    await ids(executor.submit(generation(2, max_tokens=1)))
    assert executor.readings().served_total == 2
    await executor.close()


async def test_a_consumer_cancelled_while_it_waits_can_leave() -> None:
    gate = Gate()
    executor = await started(ScriptedEngine(slots=1, gate=gate))
    stream = executor.submit(generation(1))
    waiting = asyncio.create_task(ids(stream))
    await asyncio.to_thread(gate.await_arrivals, 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    stream.cancel()
    gate.open()
    assert await ids(executor.submit(generation(2, max_tokens=1))) == answer([2], 1)
    await executor.close()
