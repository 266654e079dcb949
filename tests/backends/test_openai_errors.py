"""Mistakes and failures as OpenAI's own client tells them: class, status, type, param and code."""

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from backends.http_api import HttpApi
from backends.http_server import HttpServer
from tests.backends.fakes import ScriptedEngine, successor
from tests.backends.rig import Rig, ready_rig

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def made() -> AsyncIterator[Rig]:
    async with ready_rig(ScriptedEngine(rule=successor)) as ready:
        yield ready


@pytest.fixture
async def client(made: Rig) -> AsyncIterator[AsyncOpenAI]:
    server = HttpServer(HttpApi(made.facts, Random(7), lambda: 1.0).app(), "127.0.0.1", 0)
    await server.start()
    url = f"http://127.0.0.1:{server.port}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as one:
        yield one
    await server.close()


async def ask(client: AsyncOpenAI, **fields: Any) -> Any:
    create: Any = client.chat.completions.create  # its types refuse what is wrong on purpose
    return await create(**{"model": "m", "messages": HELLO} | fields)


def told(error: openai.APIError) -> tuple[str | None, str | None, str | None]:
    return error.type, error.param, error.code


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 3}, "temperature", None),
        ({"messages": [{"role": "user", "content": 7}]}, "messages.0.content", None),
        ({"messages": []}, "messages", None),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages", None),
        ({"logit_bias": {"600": 1}}, "logit_bias.600", None),
        ({"n": 99}, "n", None),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", None),
        (
            {"messages": [{"role": "user", "content": "a" * 100}]},
            "messages",
            "context_length_exceeded",
        ),
    ],
)
async def test_a_mistake_is_a_bad_request_with_its_place(
    client: AsyncOpenAI, made: Rig, stream: bool, fields: dict[str, Any], param: str, code: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(client, stream=stream, **fields)
    assert told(caught.value) == ("invalid_request_error", param, code)
    assert str(caught.value.body["message"]).startswith(f"{param}: ")  # type: ignore[index]
    await made.gate.holds(0)


async def test_another_model_is_not_found(client: AsyncOpenAI) -> None:
    expected = ("invalid_request_error", "model", "model_not_found")
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="other", messages=HELLO)
    assert told(caught.value) == expected
    with pytest.raises(openai.NotFoundError) as caught:
        await client.completions.create(model="other", prompt="x")
    assert told(caught.value) == expected
    with pytest.raises(openai.NotFoundError) as caught:
        await client.models.retrieve("other")
    assert told(caught.value) == expected


async def test_what_is_not_served_at_all_is_not_found_and_no_mistake_of_a_field(
    client: AsyncOpenAI,
) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.embeddings.create(model="m", input="x")
    assert told(caught.value) == ("invalid_request_error", None, None)


async def test_a_drain_is_the_servers_matter_and_may_be_tried_again(
    client: AsyncOpenAI, made: Rig
) -> None:
    made.life.drain(60.0, "", 0.0)
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model="m", messages=HELLO)
    assert caught.value.status_code == 503
    assert told(caught.value) == ("server_error", None, "draining")
    assert caught.value.response.headers["retry-after"] == "1"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_fails_before_the_first_token_is_the_servers_error(
    client: AsyncOpenAI, made: Rig, stream: bool
) -> None:
    def fault(step: str) -> None:
        raise RuntimeError("device lost")

    made.engine.faults = fault
    with pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model="m", messages=HELLO, stream=stream)
    assert caught.value.status_code == 500
    assert told(caught.value) == ("server_error", None, "engine_failed")


async def test_an_engine_that_fails_in_a_stream_is_an_error_there_and_no_end(
    client: AsyncOpenAI, made: Rig
) -> None:
    def fault(step: str) -> None:
        if step == "decode":
            raise RuntimeError("device lost")

    made.engine.faults = fault
    stream = await ask(client, stream=True, max_tokens=5)

    async def read() -> None:
        async for chunk in stream:
            assert chunk.choices[0].finish_reason is None

    with pytest.raises(openai.APIError) as caught:
        await read()
    assert told(caught.value) == ("server_error", None, "engine_failed")
