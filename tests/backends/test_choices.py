"""Several answers to one prompt, and their scores, as OpenAI's own client reads them."""

import asyncio
import json
import math
from typing import Any

import aiohttp
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.backends.fakes import Gate, ScriptedEngine, successor
from tests.backends.rig import joined, says
from tests.backends.test_generate import serving

ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
# The scripted engine gives one id the logit 10 and the other 511 the logit 0.
LIKELY = 10 - math.log(math.exp(10) + 511)
UNLIKELY = -math.log(math.exp(10) + 511)


# --- several answers ------------------------------------------------------------------------------


async def test_n_answers_are_n_choices_and_the_prompt_is_counted_once() -> None:
    async with serving(ScriptedEngine(rule=says("hey", "u:hi;"))) as served:
        done = await served.client.chat.completions.create(
            model="m", messages=ASKED, n=3, temperature=0
        )
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert [choice.message.content for choice in done.choices] == ["hey"] * 3
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (5, 12)


@pytest.mark.parametrize("slots", [1, 3], ids=["one after the other", "side by side"])
async def test_streamed_answers_are_told_apart_by_index_and_each_is_whole(slots: int) -> None:
    engine = ScriptedEngine(slots=slots, rule=says("hey é", "u:hi;"))
    async with serving(engine) as served:
        stream = await served.client.chat.completions.create(
            model="m",
            messages=ASKED,
            n=3,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert {choice.index for choice in choices} == {0, 1, 2}
    for index in range(3):
        own = [choice for choice in choices if choice.index == index]
        assert own[0].delta.role == "assistant"
        assert joined(choice.delta.content for choice in own) == "hey é"
        assert [choice.finish_reason for choice in own] == [None] * (len(own) - 1) + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3 * 7
    assert chunks[-1].usage.prompt_tokens == 5


async def test_seeded_answers_differ_and_the_first_is_the_one_that_is_asked_for_alone() -> None:
    async def texts(n: int, seed: int) -> list[str]:
        done = await served.client.completions.create(
            model="m", prompt="ab", max_tokens=8, temperature=2, seed=seed, n=n
        )
        return [choice.text for choice in done.choices]

    async with serving(ScriptedEngine(slots=3)) as served:
        three = await texts(3, 2**64 - 1)
        assert three == await texts(3, 2**64 - 1)
        assert await texts(1, 2**64 - 1) == three[:1]
        assert await texts(2, 0) == three[1:]  # one more is the first one again
        assert len(set(three)) == 3


async def test_each_answer_ends_at_its_own_stop_string() -> None:
    async with serving() as served:
        done = await served.client.completions.create(
            model="m", prompt="ab", max_tokens=20, temperature=0, stop=["fg"], n=2
        )
        await served.rig.gate.holds(0)
        assert served.rig.executor.readings().served_total == 2
    assert [(c.text, c.finish_reason) for c in done.choices] == [("cde", "stop")] * 2
    assert done.usage is not None
    assert done.usage.completion_tokens == 10


async def test_more_answers_than_ever_fit_are_the_clients_mistake() -> None:
    async with serving() as served:  # two slots, two places in the queue
        with pytest.raises(openai.BadRequestError, match="n: must be at most 4") as caught:
            await served.client.completions.create(model="m", prompt="ab", n=5)
        assert caught.value.param == "n"
        done = await served.client.completions.create(model="m", prompt="ab", n=4, max_tokens=2)
    assert len(done.choices) == 4


async def test_more_answers_than_fit_now_are_refused_whole() -> None:
    steps = Gate()
    engine = ScriptedEngine(rule=successor, gate=steps)
    async with serving(engine, steps) as served, aiohttp.ClientSession() as session:
        body = {"model": "m", "prompt": "hi", "max_tokens": 2}
        first = asyncio.create_task(_read(session, served.url, body))
        await asyncio.to_thread(steps.await_arrivals, 1)
        async with session.post(f"{served.url}/completions", json=body | {"n": 4}) as response:
            assert response.status == 503
            assert response.headers["x-sluicegate-refused"] == "full"
        readings = served.rig.executor.readings()
        assert readings.active + readings.queue_depth == 1
        assert served.rig.gate.rejected_total == 1
        steps.open()
        await first


async def test_a_client_that_goes_away_takes_all_its_answers_along() -> None:
    steps = Gate()
    engine = ScriptedEngine(slots=1, rule=successor, gate=steps)
    async with serving(engine, steps) as served, aiohttp.ClientSession() as session:
        body = {"model": "m", "prompt": "hi", "max_tokens": 20, "n": 3}
        leaving = asyncio.create_task(_read(session, served.url, body))
        await asyncio.to_thread(steps.await_arrivals, 1)
        leaving.cancel()
        await served.rig.gate.holds(0)
        steps.open()
        await served.client.completions.create(model="m", prompt="pq", max_tokens=1)
        assert len(engine.calls) == 2
        readings = served.rig.executor.readings()
        assert (readings.active, readings.queue_depth, readings.served_total) == (0, 0, 1)


async def _read(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> bytes:
    async with session.post(f"{url}/completions", json=body) as response:
        return await response.read()


async def test_one_answer_that_fails_fails_the_request() -> None:
    """A thread that got the first answer alone used to end it before it heard of the second."""
    steps = Gate()
    engine = ScriptedEngine(slots=2, rule=successor, gate=steps)
    engine.blank = {1}
    async with serving(engine, steps=steps) as served:
        create = served.client.completions.create
        asked = asyncio.ensure_future(create(model="m", prompt="hi", n=2, max_tokens=50))
        await served.rig.gate.holds(1)  # whoever is let in is submitted, with all its answers
        steps.open()
        with pytest.raises(openai.InternalServerError, match="not numbers"):
            await asked
        await served.rig.gate.holds(0)


# --- logprobs -------------------------------------------------------------------------------------


async def test_a_chat_with_logprobs_shows_every_token_of_its_text() -> None:
    async with serving(ScriptedEngine(rule=says("é!", "u:hi;"))) as served:
        done = await served.client.chat.completions.create(
            model="m", messages=ASKED, logprobs=True, top_logprobs=2, temperature=0
        )
    assert done.choices[0].logprobs is not None
    content = done.choices[0].logprobs.content
    assert content is not None
    assert [entry.bytes for entry in content] == [[0xC3], [0xA9], [0x21]]  # not the end token
    assert [entry.token for entry in content] == ["bytes:\\xc3", "bytes:\\xa9", "!"]
    for entry in content:
        assert entry.logprob == pytest.approx(LIKELY)
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx([LIKELY, UNLIKELY])
        assert entry.top_logprobs[0].token == entry.token
        assert entry.top_logprobs[1].bytes == [0]  # of equals the lowest id


async def test_streamed_logprobs_are_those_of_the_whole_answer() -> None:
    async with serving(ScriptedEngine(rule=says("hé END", "u:hi;"))) as served:
        create = served.client.chat.completions.create
        whole = await create(
            model="m", messages=ASKED, logprobs=True, top_logprobs=1, temperature=0, stop=["EN"]
        )
        stream = await create(
            model="m",
            messages=ASKED,
            logprobs=True,
            top_logprobs=1,
            temperature=0,
            stop=["EN"],
            stream=True,
        )
        streamed = []
        async for chunk in stream:
            for choice in chunk.choices:
                streamed += (choice.logprobs and choice.logprobs.content) or []
    assert whole.choices[0].logprobs is not None
    assert streamed == whole.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes or []) for entry in streamed) == "hé ".encode()


async def test_completions_show_logprobs_in_columns() -> None:
    async with serving() as served:
        done = await served.client.completions.create(
            model="m", prompt="ab", max_tokens=3, temperature=0, logprobs=1
        )
        stream = await served.client.completions.create(
            model="m", prompt="ab", max_tokens=3, temperature=0, logprobs=0, stream=True
        )
        offsets = [
            offset
            async for chunk in stream
            for choice in chunk.choices
            for offset in (choice.logprobs and choice.logprobs.text_offset) or []
        ]
    shown = done.choices[0].logprobs
    assert shown is not None
    assert (shown.tokens, shown.text_offset, offsets) == (["c", "d", "e"], [0, 1, 2], [0, 1, 2])
    assert shown.token_logprobs == pytest.approx([LIKELY] * 3)
    assert [list(each) for each in shown.top_logprobs or []] == [["c"], ["d"], ["e"]]


async def test_logprobs_are_the_models_own_before_bias_and_temperature() -> None:
    async with serving() as served:
        done = await served.client.completions.create(
            model="m",
            prompt="ab",
            max_tokens=1,
            temperature=2,
            logprobs=1,
            logit_bias={str(ord("z")): 100, str(ord("c")): -100},
        )
    shown = done.choices[0].logprobs
    assert shown is not None
    assert shown.tokens == ["z"]
    assert shown.top_logprobs is not None
    assert shown.top_logprobs[0] == pytest.approx({"c": LIKELY, "z": UNLIKELY})


# --- what steers the drawing ----------------------------------------------------------------------


async def test_a_banned_token_never_comes_and_a_penalty_ends_a_repetition() -> None:
    async with serving(ScriptedEngine(rule=lambda ids: ord("a"))) as served:
        create = served.client.completions.create
        banned = await create(
            model="m", prompt="x", max_tokens=4, temperature=0, logit_bias={str(ord("a")): -100}
        )
        # The logit 10 loses 2 at each draw: at the sixth all are equal, and the lowest id wins.
        tired = await create(
            model="m", prompt="x", max_tokens=7, temperature=0, frequency_penalty=2
        )
    assert banned.choices[0].text == "\0" * 4
    assert tired.choices[0].text == "aaaaa\0\x01"


async def test_a_bias_of_a_token_that_is_not_there_is_a_mistake_with_its_path() -> None:
    async with serving() as served:
        with pytest.raises(openai.BadRequestError) as caught:
            await served.client.completions.create(model="m", prompt="hi", logit_bias={"512": 1})
    assert caught.value.param == "logit_bias.512"


# --- bodies that are no requests ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ("[" * 100_000, None),
        ('{"model": "m", "prompt": ' + "[" * 500 + "]" * 500 + "}", "prompt.0.0"),
        ('{"model": "m", "prompt": "x", "temperature": 1e999}', None),
        ('{"model": "m", "prompt": "x", "max_tokens": 1e30}', "max_tokens"),
        ('{"model": "m", "prompt": "x", "seed": 99999999999999999999999999}', "seed"),
        ('{"model": "m", "prompt": "x", "n": 1e30}', "n"),
        ('{"model": "m", "prompt": "x", "temperature": NaN}', None),
        ('{"model": "m", "prompt": "\\ud800"}', None),
        ('{"model": "m", "prompt": "x"', None),
        ('{"model": "m", "prompt": "x", "logit_bias": {"1": {}}}', "logit_bias.1"),
        ('{"model": "m", "prompt": "x", "tools": [{"type": "function"}]}', "tools"),
    ],
)
async def test_a_strange_body_is_a_400_with_the_place_of_the_mistake(
    body: str, param: str | None
) -> None:
    async with serving() as served, aiohttp.ClientSession() as session:
        async with session.post(f"{served.url}/completions", data=body.encode()) as response:
            assert response.status == 400
            error = json.loads(await response.read())["error"]
        assert served.rig.engine.calls == []
        assert served.rig.gate.in_flight == 0
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert len(error["message"]) < 300
