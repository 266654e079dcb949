"""What a generation asks of the executor beside its tokens: scores, bias, and company."""

import asyncio
from dataclasses import replace

import pytest

from backends.engines.base import Sampling
from backends.errors import QueueFull, RequestInvalid
from backends.stream import merged
from tests.backends.fakes import VOCAB, Gate, ScriptedEngine, answer
from tests.backends.test_executor import generation, held, ids, started


async def test_a_bias_beyond_the_vocabulary_is_refused_with_its_path() -> None:
    executor = await started(ScriptedEngine())
    biased = replace(generation(1), sampling=Sampling(logit_bias=((0, 1.0), (VOCAB, 1.0))))
    with pytest.raises(RequestInvalid) as caught:
        executor.submit(biased)
    assert caught.value.path == f"logit_bias.{VOCAB}"
    await executor.close()


async def test_several_generations_are_all_taken_or_none_is() -> None:
    gate = Gate()
    executor = await started(ScriptedEngine(slots=1, gate=gate), queue_max=2)
    first = executor.submit(generation(1, max_tokens=1))
    three = [generation(n, max_tokens=2) for n in (2, 3, 4)]
    with pytest.raises(QueueFull, match="1 of 3"):
        executor.submit_all(three)
    with pytest.raises(RequestInvalid):
        executor.submit_all([generation(2), generation(VOCAB)])
    assert executor.readings().queue_depth + executor.readings().active == 1
    gate.open()
    assert await ids(first) == answer([1], 1)
    got: list[list[int]] = [[], [], []]
    async for index, token in merged(executor.submit_all(three)):
        got[index].append(token.id)
    assert got == [answer([n], 2) for n in (2, 3, 4)]
    await executor.close()


async def test_what_its_consumer_left_makes_room_at_once_and_costs_no_step() -> None:
    """While a step is under way the thread lets go of nothing."""
    gate = Gate()
    engine = ScriptedEngine(slots=1, gate=gate)
    executor = await started(engine, queue_max=1)
    for first in (1, 2):
        leavers = [executor.submit(generation(first)), executor.submit(generation(first + 2))]
        with pytest.raises(QueueFull, match="2 of 2"):
            executor.submit(generation(9))
        await asyncio.to_thread(gate.await_arrivals, 1)
        for leaver in leavers:
            leaver.cancel()
    last = executor.submit_all([generation(7, max_tokens=1), generation(8, max_tokens=1)])
    gate.open()
    assert [await ids(stream) for stream in last] == [answer([7], 1), answer([8], 1)]
    assert [call[2] for call in engine.calls] == [(1,), (7,), (8,)]
    assert held(executor.readings()) == (0, 0)
    await executor.close()


async def test_scores_come_with_the_tokens_if_they_are_asked_for() -> None:
    executor = await started(ScriptedEngine())
    plain = [token async for token in executor.submit(generation(1, max_tokens=2))]
    assert [token.scores for token in plain] == [None, None]
    asked = replace(generation(1, max_tokens=2), logprobs=1)
    for token in [token async for token in executor.submit(asked)]:
        assert token.scores is not None
        assert token.scores.likeliest == ((token.id, token.scores.drawn),)
    await executor.close()
