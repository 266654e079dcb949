"""The model thread and the loop, with a scripted engine whose steps the tests let go."""

import asyncio
from random import Random

import pytest

from backends.engines.base import Finish, Generation, Sampling, Token
from backends.errors import (
    DependencyMissing,
    EngineFailed,
    InstanceError,
    LoadFailed,
    NotReady,
    QueueFull,
    RequestInvalid,
)
from backends.executor import FAULTS_MAX, Executor
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


# --- loading ----------------------------------------------------------------------------------


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


# --- generating -------------------------------------------------------------------------------


async def test_a_generation_streams_the_engines_greedy_answer() -> None:
    executor = await started(ScriptedEngine())
    stream = executor.submit(generation(5, 6, 7, max_tokens=5))
    tokens = [token async for token in stream]
    assert [token.id for token in tokens] == answer([5, 6, 7], 5)
    assert [token.finish for token in tokens] == [None] * 4 + [Finish.LENGTH]
    await executor.close()


async def test_many_more_generations_than_slots_all_get_their_own_answers() -> None:
    engine = ScriptedEngine(slots=3, max_seq_len=64, chunk_max=4)
    executor = await started(engine)
    rng = Random(7)
    wanted = [
        (tuple(rng.randrange(512) for _ in range(rng.randint(1, 40))), rng.randint(1, 20))
        for _ in range(40)
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


# --- leaving, and the limit -------------------------------------------------------------------


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


# --- faults -----------------------------------------------------------------------------------


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
