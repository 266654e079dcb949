"""The model thread and the loop, with a scripted engine whose steps the tests let go."""

import asyncio
from random import Random

import pytest

from backends.engines.base import Finish, Generation, Sampling, Token
from backends.errors import (
    EngineFailed,
    RequestInvalid,
)
from backends.executor import Executor
from backends.readings import Readings
from backends.stream import Stream
from sluicegate.v1.states import Phase
from tests.backends.fakes import SLOT_BYTES, VOCAB, Gate, ScriptedEngine, answer, script

GREEDY = Sampling()
Reports = list[tuple[Phase, float, str]]


def generation(*prompt: int, max_tokens: int = 4, stop: frozenset[int] = frozenset()) -> Generation:
    return Generation(f"r{prompt[0] if prompt else 0}", prompt, max_tokens, GREEDY, stop)


async def started(engine: ScriptedEngine, queue_max: int = 64) -> Executor:
    executor = Executor(engine, queue_max, rng=Random(1))
    await executor.start(lambda phase, share, words: None)
    return executor


async def ids(stream: Stream) -> list[int]:
    return [token.id async for token in stream]


def held(readings: Readings) -> tuple[int, int]:
    return readings.active, readings.queue_depth


# --- generating -------------------------------------------------------------------------------


async def test_a_generation_streams_the_engines_greedy_answer() -> None:
    executor = await started(ScriptedEngine())
    stream = executor.submit(generation(5, 6, 7, max_tokens=5))
    tokens = [token async for token in stream]
    assert [token.id for token in tokens] == answer([5, 6, 7], 5)
    assert [token.finish for token in tokens] == [None] * 4 + [Finish.LENGTH]
    await executor.close()


async def test_many_more_generations_than_slots_all_get_their_own_answers() -> None:
    engine = ScriptedEngine(slots=3, max_seq_len=64, chunks=(4,))
    executor = await started(engine)
    rng = Random(7)
    wanted = [
        ((n, *(rng.randrange(512) for _ in range(rng.randint(0, 39)))), rng.randint(1, 20))
        for n in range(40)  # none begins as another does
    ]
    streams = [executor.submit(generation(*prompt, max_tokens=n)) for prompt, n in wanted]
    answers = await asyncio.gather(*(ids(stream) for stream in streams))
    assert answers == [answer(prompt, n) for prompt, n in wanted]
    readings = executor.readings()
    assert held(readings) == (0, 0)
    assert readings.served_total == 40
    assert readings.prompt_tokens_total == sum(len(prompt) for prompt, _ in wanted)
    assert readings.completion_tokens_total == sum(n for _, n in wanted)
    assert readings.progress_total == len(engine.calls)
    await executor.close()


async def test_only_one_thread_ever_calls_the_engine() -> None:
    engine = ScriptedEngine()
    executor = await started(engine)
    await asyncio.gather(*(ids(executor.submit(generation(n + 1))) for n in range(5)))
    await executor.close()
    assert len(engine.threads) == 1


async def test_a_generation_joins_while_another_is_under_way() -> None:
    gate = Gate()
    engine = ScriptedEngine(slots=2, gate=gate)
    executor = await started(engine)
    first = executor.submit(generation(1, max_tokens=6))
    gate.let(3)
    await asyncio.to_thread(gate.await_arrivals, 4)  # the fourth step is held
    second = executor.submit(generation(2, max_tokens=2))
    gate.open()
    assert await ids(first) == answer([1], 6)
    assert await ids(second) == answer([2], 2)
    assert engine.calls[4] == ("prefill", 1, (2,), 0)  # right after the step that was held
    await executor.close()


async def test_a_generation_that_comes_to_a_sleeping_thread_wakes_it() -> None:
    executor = await started(ScriptedEngine())
    for n in range(200):
        assert await ids(executor.submit(generation(n, max_tokens=1))) == answer([n], 1)
    await executor.close()


async def test_a_stop_id_ends_a_generation_and_is_its_last_token() -> None:
    engine = ScriptedEngine(rule=script([10, 11], prompt_length=1, end_id=2))
    executor = await started(engine)
    stream = executor.submit(generation(1, max_tokens=9, stop=frozenset({2})))
    tokens = [token async for token in stream]
    assert tokens == [Token(10, None), Token(11, None), Token(2, Finish.STOP)]
    await executor.close()


async def test_prompt_and_completion_never_exceed_the_sequence_length() -> None:
    engine = ScriptedEngine(max_seq_len=16)
    executor = await started(engine)
    prompt = tuple(range(1, 13))
    assert await ids(executor.submit(generation(*prompt, max_tokens=99))) == answer(prompt, 4)
    full = tuple(range(1, 16))
    assert await ids(executor.submit(generation(*full, max_tokens=99))) == answer(full, 1)
    await executor.close()


@pytest.mark.parametrize(
    ("refused", "path"),
    [
        (generation(), "prompt"),
        (generation(*range(64)), "prompt"),
        (generation(1, VOCAB), "prompt"),
        (generation(1, -1), "prompt"),
        (generation(1, max_tokens=0), "max_tokens"),
    ],
)
async def test_what_the_engine_cannot_run_is_refused_with_its_path(
    refused: Generation, path: str
) -> None:
    executor = await started(ScriptedEngine(max_seq_len=64))
    with pytest.raises(RequestInvalid) as caught:
        executor.submit(refused)
    assert caught.value.path == path
    await executor.close()


# --- the end, and readings --------------------------------------------------------------------


async def test_closing_fails_what_is_held_and_closes_the_engine_on_its_thread() -> None:
    gate = Gate()
    engine = ScriptedEngine(slots=1, gate=gate)
    executor = await started(engine)
    streams = [executor.submit(generation(n)) for n in (1, 2)]
    await asyncio.to_thread(gate.await_arrivals, 1)
    closing = asyncio.create_task(executor.close())
    await asyncio.sleep(0)  # one turn: close has asked
    gate.open()
    await closing
    for stream in streams:
        with pytest.raises(EngineFailed, match="stopped"):
            _ = [token async for token in stream]
    assert engine.closed
    assert len(engine.threads) == 1
    assert held(executor.readings()) == (0, 0)
    await executor.close()
    with pytest.raises(EngineFailed, match="stopped"):
        executor.submit(generation(1))


async def test_an_executor_never_started_closes_too() -> None:
    executor = Executor(ScriptedEngine(), 1)
    await executor.close()
    with pytest.raises(EngineFailed):
        executor.submit(generation(1))


async def test_the_readings_show_who_holds_slots_and_who_waits() -> None:
    clock = FakeClock()
    gate = Gate()
    engine = ScriptedEngine(slots=1, gate=gate)
    executor = Executor(engine, 8, monotonic_ns=clock)
    await executor.start(lambda phase, share, words: None)
    first = executor.submit(generation(1, max_tokens=2))
    await asyncio.to_thread(gate.await_arrivals, 1)
    clock.now_ms = 100
    second = executor.submit(generation(2, max_tokens=1))
    clock.now_ms = 400
    gate.let(1)
    await anext(first)
    readings = executor.readings()
    assert held(readings) == (1, 1)
    assert readings.queue_wait_ms == 300  # the second has waited so long
    assert first.queue_wait_ms == 0
    assert readings.batch_utilisation_ratio == 1.0
    assert readings.tokens_per_s == 2.5
    assert readings.memory_bytes == readings.memory_peak_bytes == SLOT_BYTES
    gate.open()
    await ids(second)
    assert second.queue_wait_ms == 300
    assert executor.readings().last_latency_ms == 300
    await executor.close()


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms * 1_000_000
