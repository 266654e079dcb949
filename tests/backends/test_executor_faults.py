"""Steps that break and logits that are not numbers: who fails, who goes on, when it is over."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from backends.errors import EngineFailed
from backends.executor import FAULTS_MAX
from sluicegate.v1.states import State
from tests.backends.fakes import Gate, ScriptedEngine, answer, successor
from tests.backends.lived import living
from tests.backends.test_executor import generation, held, ids, started


def failing(*steps: str) -> "FailOnce":
    return FailOnce(list(steps))


class FailOnce:
    """Raises at each step that it names, in that order, once each."""

    def __init__(self, steps: list[str]) -> None:
        self.steps = steps

    def __call__(self, step: str) -> None:
        if self.steps and self.steps[0] == step:
            self.steps.pop(0)
            raise RuntimeError("kernel fault")


async def test_a_prefill_that_raises_fails_its_own_generation_only() -> None:
    gate = Gate()
    engine = ScriptedEngine(slots=2, gate=gate)
    executor = await started(engine)
    neighbour = executor.submit(generation(1, max_tokens=8))
    gate.let(1)
    await asyncio.to_thread(gate.await_arrivals, 2)
    engine.faults = failing("prefill")
    failed = executor.submit(generation(2))
    gate.open()
    with pytest.raises(EngineFailed, match="kernel fault"):
        await ids(failed)
    assert await ids(neighbour) == answer([1], 8)
    assert executor.readings().failure == ""
    assert executor.readings().served_total == 1
    await executor.close()


async def test_a_decode_that_raises_fails_those_in_it_and_the_queue_goes_on() -> None:
    engine = ScriptedEngine(slots=1)
    engine.faults = failing("decode")
    executor = await started(engine)
    failed, queued = executor.submit(generation(1)), executor.submit(generation(2))
    assert (await anext(failed)).id == answer([1], 1)[0]
    with pytest.raises(EngineFailed):
        await anext(failed)
    assert await ids(queued) == answer([2], 4)
    await executor.close()


async def test_logits_that_are_not_numbers_fail_the_generation_of_that_slot() -> None:
    engine = ScriptedEngine(slots=2)
    engine.blank = {0}
    executor = await started(engine)
    blank, sound = executor.submit(generation(1)), executor.submit(generation(2))
    with pytest.raises(EngineFailed, match="not numbers"):
        await ids(blank)
    assert await ids(sound) == answer([2], 4)
    await executor.close()


async def test_a_fault_that_repeats_ends_the_executor_and_all_it_holds() -> None:
    gate = Gate()
    engine = ScriptedEngine(slots=1, gate=gate)
    engine.faults = failing(*["prefill"] * FAULTS_MAX)
    executor = await started(engine)
    streams = [executor.submit(generation(n)) for n in range(1, FAULTS_MAX + 3)]
    gate.let(FAULTS_MAX - 1)
    await asyncio.to_thread(gate.await_arrivals, FAULTS_MAX)
    streams.append(executor.submit(generation(8)))  # the thread reads of it when it has given up
    gate.open()
    for stream in streams:
        with pytest.raises(EngineFailed, match="kernel fault"):
            await ids(stream)
    assert "kernel fault" in executor.readings().failure
    assert held(executor.readings()) == (0, 0)
    with pytest.raises(EngineFailed, match="kernel fault"):
        executor.submit(generation(9))
    assert len(engine.calls) == FAULTS_MAX
    await executor.close()


async def test_a_generation_served_in_between_forgives_earlier_faults() -> None:
    engine = ScriptedEngine(slots=1)
    executor = await started(engine)
    for _ in range(FAULTS_MAX):
        engine.faults = failing(*["prefill"] * (FAULTS_MAX - 1))
        for n in range(FAULTS_MAX - 1):
            with pytest.raises(EngineFailed):
                await ids(executor.submit(generation(n)))
        assert await ids(executor.submit(generation(7))) == answer([7], 4)
    assert executor.readings().failure == ""
    await executor.close()


async def test_an_engine_beyond_repair_is_an_error_though_all_its_clients_have_left(
    tmp_path: Path,
) -> None:
    def fault(step: str) -> None:
        raise RuntimeError("device lost")

    steps = Gate()
    steps.open()
    engine = ScriptedEngine(slots=1, rule=successor, gate=steps)
    async with living(tmp_path, engine, steps, queue_max=8) as lived:
        await lived.until("READY")
        async with aiohttp.ClientSession() as session:
            engine.faults = fault
            for _ in range(FAULTS_MAX - 1):
                assert (await lived.post(session)).status == 500
            steps.close()
            last = asyncio.create_task(lived.post(session))
            await asyncio.to_thread(steps.await_held)
            last.cancel()
        gate = lived.instance.facts.gate
        emptied = asyncio.Event()
        gate.when_empty(emptied.set)
        async with asyncio.timeout(300):
            await emptied.wait()
        assert lived.instance.life.standing.state is State.READY
        steps.open()
        await lived.until("ERROR")
        assert "device lost" in lived.instance.life.standing.reason


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_model_thread_that_dies_says_so() -> None:
    engine = ScriptedEngine(slots=1)
    executor = await started(engine)
    told = asyncio.Event()
    executor.on_given_up = told.set
    del engine.chunks  # what is planned with is gone: no step can be
    stream = executor.submit(generation(1))
    async with asyncio.timeout(300):
        await told.wait()
    with pytest.raises(EngineFailed, match="the model thread died"):
        await ids(stream)
    await executor.close()


async def test_an_ordered_end_is_no_reason_for_blame() -> None:
    executor = await started(ScriptedEngine(slots=1))
    told = asyncio.Event()
    executor.on_given_up = told.set
    await executor.close()
    assert executor.readings().failure
    assert not told.is_set()


async def test_values_that_are_not_numbers_do_not_outlive_the_generation_they_came_with() -> None:
    engine = ScriptedEngine(slots=1)
    engine.poison = 13
    executor = await started(engine)
    for n in range(2 * FAULTS_MAX):
        with pytest.raises(EngineFailed, match="not numbers"):
            await ids(executor.submit(generation(5, 13)))
        assert await ids(executor.submit(generation(n))) == answer([n], 4)
    assert executor.readings().failure == ""
    await executor.close()
