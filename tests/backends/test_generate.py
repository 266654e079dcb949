"""Answers as OpenAI's own client reads them, and what is left behind when a client goes away."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from backends.encoding import ENCODE_ON_LOOP_MAX
from backends.http_api import HttpApi
from backends.http_server import HttpServer
from tests.backends.fakes import Gate, ScriptedEngine, answer, successor
from tests.backends.rig import END, Rig, joined, ready_rig, says

ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
HI = {"model": "m", "prompt": "hi"}


@dataclass
class Served:
    rig: Rig
    url: str
    client: AsyncOpenAI


@asynccontextmanager
async def serving(
    engine: ScriptedEngine | None = None, steps: Gate | None = None, queue_max: int = 2
) -> AsyncIterator[Served]:
    async with ready_rig(engine, steps, queue_max) as rig:
        server = HttpServer(
            HttpApi(rig.facts, Random(7), lambda: 1_700_000_000.5).app(), "127.0.0.1", 0
        )
        await server.start()
        url = f"http://127.0.0.1:{server.port}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield Served(rig, url, client)
        await server.close()


async def test_a_chat_answer_says_what_the_engine_said_and_counts_it() -> None:
    async with serving(ScriptedEngine(rule=says("hey é", "u:hi;"))) as served:
        done = await served.client.chat.completions.create(model="m", messages=ASKED)
    assert done.choices[0].message.content == "hey é"
    assert done.choices[0].finish_reason == "stop"
    # "é" is two bytes, two tokens; the end is one more.
    assert done.usage is not None
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (5, 7)
    assert done.id.startswith("chatcmpl-")
    assert done.created == 1_700_000_000


async def test_a_streamed_chat_is_the_same_answer_in_pieces() -> None:
    async with serving(ScriptedEngine(rule=says("hey é", "u:hi;"))) as served:
        stream = await served.client.chat.completions.create(
            model="m", messages=ASKED, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert joined(deltas) == "hey é"
    assert "é" in deltas
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7
    assert len({chunk.id for chunk in chunks}) == 1


async def test_completions_stream_and_end_with_length() -> None:
    async with serving() as served:
        stream = await served.client.completions.create(
            model="m", prompt="ab", max_tokens=4, temperature=0, stream=True
        )
        chunks = [chunk async for chunk in stream]
    assert joined(chunk.choices[0].text for chunk in chunks) == "cdef"
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_ids_in_ids_out_are_the_engines_own() -> None:
    prompt = [300, 7, 511]
    async with serving(ScriptedEngine()) as served:
        done = await served.client.completions.create(
            model="m",
            prompt=prompt,
            max_tokens=6,
            temperature=0,
            extra_body={"return_token_ids": True, "ignore_eos": True},
        )
        stream = await served.client.completions.create(
            model="m",
            prompt=prompt,
            max_tokens=6,
            temperature=0,
            stream=True,
            extra_body={"return_token_ids": True, "ignore_eos": True},
        )
        chunks = [(chunk.choices[0].model_extra or {}) async for chunk in stream]
    extra = done.choices[0].model_extra or {}
    assert extra["prompt_token_ids"] == prompt
    assert extra["token_ids"] == answer(prompt, 6)
    assert [id_ for chunk in chunks for id_ in chunk["token_ids"]] == answer(prompt, 6)
    assert [chunk.get("prompt_token_ids") for chunk in chunks] == [prompt] + [None] * 5


async def test_a_chat_with_ids_shows_those_of_its_prompt() -> None:
    async with serving() as served:
        done = await served.client.chat.completions.create(
            model="m", messages=ASKED, max_tokens=2, extra_body={"return_token_ids": True}
        )
    assert (done.model_extra or {})["prompt_token_ids"] == list(b"u:hi;")
    assert len((done.choices[0].model_extra or {})["token_ids"]) == 2


async def test_a_stop_string_ends_the_answer_and_frees_the_slot() -> None:
    async with serving() as served:
        done = await served.client.completions.create(
            model="m", prompt="ab", max_tokens=20, temperature=0, stop=["fg"]
        )
        await served.rig.gate.holds(0)
        assert served.rig.executor.readings().served_total == 1
    assert (done.choices[0].text, done.choices[0].finish_reason) == ("cde", "stop")
    assert done.usage is not None
    assert done.usage.completion_tokens == 5


async def test_more_tokens_than_fit_end_with_length() -> None:
    async with serving() as served:
        done = await served.client.completions.create(
            model="m", prompt=[1] * 60, max_tokens=5000, temperature=0
        )
    assert done.choices[0].finish_reason == "length"
    assert done.usage is not None
    assert done.usage.total_tokens == 64


async def test_the_end_token_ends_an_answer_unless_it_is_to_be_ignored() -> None:
    async with serving() as served:
        create = served.client.completions.create
        done = await create(model="m", prompt=[END - 2], max_tokens=5, temperature=0)
        on = await create(
            model="m",
            prompt=[END - 2],
            max_tokens=5,
            temperature=0,
            extra_body={"ignore_eos": True},
        )
    assert (done.choices[0].finish_reason, on.choices[0].finish_reason) == ("stop", "length")
    assert done.usage is not None
    assert done.usage.completion_tokens == 2


async def test_the_same_seed_gives_the_same_answer() -> None:
    async with serving() as served:
        answers = set()
        for _ in range(3):
            done = await served.client.completions.create(
                model="m", prompt="ab", max_tokens=8, temperature=2, seed=-5
            )
            answers.add(done.choices[0].text)
    assert len(answers) == 1


async def test_a_long_prompt_is_refused_with_openais_own_error() -> None:
    async with serving() as served:
        with pytest.raises(openai.BadRequestError) as caught:
            await served.client.completions.create(model="m", prompt="x" * ENCODE_ON_LOOP_MAX * 2)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "prompt"


async def test_an_event_stream_ends_with_done_and_is_never_stored() -> None:
    async with serving() as served, aiohttp.ClientSession() as session:
        body = HI | {"stream": True, "max_tokens": 2}
        async with session.post(f"{served.url}/completions", json=body) as response:
            events = (await response.read()).split(b"\n\n")
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert response.headers["Cache-Control"] == "no-cache"
    assert events[-2:] == [b"data: [DONE]", b""]
    assert all(json.loads(event.removeprefix(b"data: ")) for event in events[:-2])


async def test_every_event_leaves_before_the_next_token_is_made() -> None:
    steps = Gate()
    async with (
        serving(ScriptedEngine(rule=successor, gate=steps), steps) as served,
        aiohttp.ClientSession() as session,
    ):
        steps.let(1)
        body = HI | {"stream": True, "max_tokens": 3, "temperature": 0}
        async with session.post(f"{served.url}/completions", json=body) as response:
            texts = []
            for _ in range(3):
                line = await response.content.readline()
                texts.append(json.loads(line.removeprefix(b"data: "))["choices"][0]["text"])
                await response.content.readline()
                steps.let(1)
    assert texts == ["j", "k", "l"]


async def test_a_failure_in_mid_stream_is_an_event_and_no_clean_end() -> None:
    steps = Gate()
    engine = ScriptedEngine(rule=successor, gate=steps)
    async with serving(engine, steps) as served, aiohttp.ClientSession() as session:
        steps.let(1)
        body = HI | {"stream": True, "max_tokens": 9}
        response = await session.post(f"{served.url}/completions", json=body)
        await response.content.readline()
        engine.faults = _fault
        steps.open()
        received = await _until_cut(response)
    assert b'"code":"engine_failed"' in received
    assert b"[DONE]" not in received


async def test_a_failure_before_the_first_token_is_a_500() -> None:
    engine = ScriptedEngine(rule=successor)
    engine.faults = _fault
    async with serving(engine) as served:
        with pytest.raises(openai.InternalServerError, match="device"):
            await served.client.completions.create(model="m", prompt="hi", stream=True)


def _fault(step: str) -> None:
    raise RuntimeError("device lost")


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("tokens", [0, 2], ids=["before the first token", "in the middle"])
async def test_a_client_that_goes_away_takes_its_request_along(stream: bool, tokens: int) -> None:
    steps = Gate()
    engine = ScriptedEngine(slots=1, rule=successor, gate=steps)
    async with serving(engine, steps) as served:
        steps.let(tokens)
        body = HI | {"stream": stream, "max_tokens": 50, "temperature": 0}
        leaving = await _send(served, body)
        await asyncio.to_thread(steps.await_arrivals, tokens + 1)
        assert served.rig.gate.in_flight == 1
        leaving[1].transport.abort()
        await served.rig.gate.holds(0)
        # One step was under way; the slot is then free for the next, and nothing more is computed.
        steps.open()
        done = await served.client.completions.create(model="m", prompt="pq", max_tokens=1)
        assert done.choices[0].finish_reason == "length"
        assert len(engine.calls) == tokens + 2
        readings = served.rig.executor.readings()
        assert (readings.active, readings.queue_depth, readings.served_total) == (0, 0, 1)


async def test_a_client_that_leaves_the_queue_is_never_run() -> None:
    steps = Gate()
    engine = ScriptedEngine(slots=1, rule=successor, gate=steps)
    async with serving(engine, steps) as served:
        body = HI | {"stream": True, "max_tokens": 2}
        first = asyncio.create_task(_read(served, body))
        await asyncio.to_thread(steps.await_arrivals, 1)
        leaving = await _send(served, body | {"prompt": "never"})
        await served.rig.gate.holds(2)
        leaving[1].transport.abort()
        await served.rig.gate.holds(1)
        steps.open()
        await first
        assert [call[2] for call in engine.calls if call[0] == "prefill"] == [tuple(b"hi")]


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _send(served: Served, body: dict[str, Any]) -> Connection:
    """Send a request by hand, on a connection that stays as long as the caller holds it."""
    text = json.dumps(body).encode()
    host, port = served.url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/completions HTTP/1.1\r\nHost: i\r\nContent-Length: {len(text)}\r\n\r\n"
    writer.write(head.encode() + text)
    await writer.drain()
    return reader, writer


async def _read(served: Served, body: dict[str, Any]) -> bytes:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.url}/completions", json=body) as response,
    ):
        return await response.read()


async def _until_cut(response: aiohttp.ClientResponse) -> bytes:
    """What was received before the body broke off. Raises nothing else than that break."""
    received = b""
    try:
        while chunk := await response.content.readany():
            received += chunk
    except aiohttp.ClientPayloadError:
        return received
    raise AssertionError(f"a clean end: {received!r}")


# --- the log --------------------------------------------------------------------------------------


async def test_each_request_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "backends.generate")
    async with serving(ScriptedEngine(rule=successor)) as served:
        for _ in range(2):
            await served.client.completions.create(
                model="m",
                prompt="hello",
                max_tokens=3,
                extra_headers={"x-request-id": "asked-7"},
            )
    first, second = (vars(one) for one in caplog.records if one.message == "request ended")
    assert (first["request_id"], first["finish"]) == ("asked-7", ["length"])
    assert (first["prompt_tokens"], first["completion_tokens"]) == (5, 3)
    assert (first["cached_tokens"], second["cached_tokens"]) == (0, 4)
    assert 0 <= first["queue_wait_ms"] <= first["first_token_ms"] <= first["duration_ms"]


async def test_a_request_whose_client_left_is_told_without_an_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "backends.generate")
    steps = Gate()
    engine = ScriptedEngine(slots=1, rule=successor, gate=steps)
    async with serving(engine, steps) as served, aiohttp.ClientSession() as session:
        asking = session.post(f"{served.url}/completions", json={"model": "m", "prompt": "hi"})
        leaving = asyncio.ensure_future(asking)
        await asyncio.to_thread(steps.await_arrivals, 1)
        leaving.cancel()
        await served.rig.gate.holds(0)
        steps.open()
    (line,) = (vars(one) for one in caplog.records if one.message == "request ended")
    assert (line["finish"], line["first_token_ms"]) == ([None], None)
