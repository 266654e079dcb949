"""The load of an engine, as the loop hears of it."""

import asyncio

import pytest

from backends.errors import (
    DependencyMissing,
    EngineFailed,
    InstanceError,
    LoadFailed,
    NotReady,
)
from backends.executor import Executor
from sluicegate.v1.states import Phase
from tests.backends.fakes import Gate, ScriptedEngine, answer
from tests.backends.test_executor import generation, ids

Reports = list[tuple[Phase, float, str]]


async def test_reports_of_a_load_arrive_on_the_loop_and_in_order() -> None:
    seen: Reports = []
    executor = Executor(ScriptedEngine(), 1)
    loop = asyncio.get_running_loop()

    def report(phase: Phase, share: float, words: str) -> None:
        assert asyncio.get_running_loop() is loop
        seen.append((phase, share, words))

    await executor.start(report)
    assert [phase for phase, _, _ in seen] == [
        Phase.LOADING_MODEL,
        Phase.COMPILING,
        Phase.WARMING_UP,
        Phase.WARMING_UP,
    ]
    await executor.close()


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (DependencyMissing("install it"), DependencyMissing),
        (MemoryError("no room"), LoadFailed),
    ],
)
async def test_a_load_that_fails_says_why_and_closes_the_engine(
    raised: Exception, told: type[InstanceError]
) -> None:
    engine = ScriptedEngine(load_failure=raised)
    executor = Executor(engine, 1)
    with pytest.raises(told, match=str(raised)):
        await executor.start(lambda phase, share, words: None)
    await executor.close()
    assert engine.closed
    assert str(raised) in executor.readings().failure
    with pytest.raises(EngineFailed):
        executor.submit(generation(1))


async def test_nothing_is_taken_before_the_load_is_over() -> None:
    gate = Gate()
    executor = Executor(ScriptedEngine(load_gate=gate), 1)
    with pytest.raises(NotReady):
        executor.submit(generation(1))
    starting = asyncio.create_task(executor.start(lambda phase, share, words: None))
    await asyncio.to_thread(gate.await_arrivals, 1)
    with pytest.raises(NotReady):
        executor.submit(generation(1))
    gate.open()
    await starting
    assert await ids(executor.submit(generation(1, max_tokens=1))) == answer([1], 1)
    await executor.close()


async def test_closing_in_the_middle_of_a_load_ends_it_at_the_next_report() -> None:
    gate = Gate()
    engine = ScriptedEngine(load_gate=gate)
    executor = Executor(engine, 1)
    starting = asyncio.create_task(executor.start(lambda phase, share, words: None))
    await asyncio.to_thread(gate.await_arrivals, 1)
    closing = asyncio.create_task(executor.close())
    await asyncio.sleep(0)  # one turn: close has asked
    gate.open()
    with pytest.raises(LoadFailed, match="stopped while it was loading"):
        await starting
    await closing
    assert engine.closed
