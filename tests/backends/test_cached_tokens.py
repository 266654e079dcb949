"""What a client, the metrics and the readings say of a prompt that was found in a slot."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam

from backends.executor import Executor
from tests.backends.fakes import ScriptedEngine, answer
from tests.backends.rig import says
from tests.backends.test_executor import generation, ids, started
from tests.backends.test_generate import Served, serving

Ask = Callable[[Served], Awaitable[CompletionUsage | None]]

ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


def cached(usage: CompletionUsage | None) -> int | None:
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens


async def chat(served: Served) -> CompletionUsage | None:
    done = await served.client.chat.completions.create(model="m", messages=ASKED)
    assert done.choices[0].message.content == "hey"
    return done.usage


async def streamed_chat(served: Served) -> CompletionUsage | None:
    stream = await served.client.chat.completions.create(
        model="m", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    return [chunk async for chunk in stream][-1].usage


async def completion(served: Served) -> CompletionUsage | None:
    done = await served.client.completions.create(model="m", prompt="u:hi;")
    return done.usage


@pytest.mark.parametrize("ask", [chat, streamed_chat, completion])
async def test_usage_says_how_much_of_the_prompt_was_there(ask: Ask) -> None:
    async with serving(ScriptedEngine(rule=says("hey", "u:hi;"))) as served:
        assert cached(await ask(served)) == 0
        assert cached(await ask(served)) == 4  # all but the last of five
        readings = served.rig.facts.readings()
    assert (readings.prompts_total, readings.prefix_hits_total) == (2, 1)
    assert (readings.prompt_tokens_total, readings.reused_tokens_total) == (6, 4)


async def test_of_several_answers_the_first_counts() -> None:
    async with serving(ScriptedEngine(slots=1, rule=says("hey", "u:hi;"))) as served:
        for found in (0, 4):
            done = await served.client.chat.completions.create(model="m", messages=ASKED, n=3)
            assert cached(done.usage) == found


async def test_what_a_consumer_left_halfway_is_reused_as_far_as_it_was_computed() -> None:
    executor = await started(ScriptedEngine(slots=1, chunks=(2,)))
    prompt = tuple(range(1, 40))
    leaver = executor.submit(generation(*prompt))
    await asyncio.sleep(0)  # one turn: how far it comes is the thread's business
    leaver.cancel()
    assert await ids(executor.submit(generation(*prompt))) == answer(prompt, 4)
    again = executor.submit(generation(*prompt, 7, max_tokens=1))
    assert await ids(again) == answer((*prompt, 7), 1)
    assert again.reused == len(prompt)
    await executor.close()


async def test_what_was_forgotten_is_computed_again() -> None:
    executor = await started(ScriptedEngine())
    for _ in range(2):
        stream = executor.submit(generation(1, 2, 3))
        assert await ids(stream) == answer([1, 2, 3], 4)
        assert stream.reused == 0
        executor.forget()
    await executor.close()


async def test_switched_off_every_prompt_is_computed() -> None:
    executor = Executor(ScriptedEngine(), 1, prefix_reuse=False)
    await executor.start(lambda phase, share, words: None)
    for _ in range(2):
        assert await ids(executor.submit(generation(1, 2, 3))) == answer([1, 2, 3], 4)
    readings = executor.readings()
    assert (readings.prompt_tokens_total, readings.prefix_hits_total) == (6, 0)
    await executor.close()
