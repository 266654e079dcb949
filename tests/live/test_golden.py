"""The real model through the real gateway: golden ids, streams, and the official client."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.live.gateways import ROOT, Gateway, config, running

pytestmark = [pytest.mark.live, pytest.mark.mindspore]

MODEL = "smollm2-135m-instruct"
GOLDEN = json.loads((ROOT / "tests" / "golden" / "smollm2_greedy.json").read_text())
TWO = f"""
[[model]]
name = "{MODEL}"
weights = {{ "1" = 100 }}
replicas = {{ "1" = 2 }}
warmup_rounds = 1
"""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """Two instances of the demonstration model, on the snapshot and cache of this checkout."""
    assert (ROOT / "var" / "models" / MODEL / "1" / "manifest.toml").exists(), "run make models"
    folder = tmp_path_factory.mktemp("golden")
    text = config(folder, TWO)
    text = text.replace(f'root = "{folder}/models"', f'root = "{ROOT}/var/models"')
    text = text.replace(f'cache = "{folder}/cache"', f'cache = "{ROOT}/var/cache"')
    async with running(folder, text) as started:
        await started.ready(f"{MODEL}-1-0", f"{MODEL}-1-1")
        await started.routes(MODEL, {"1": 100})
        yield started


async def completion(gateway: Gateway, case: dict[str, Any]) -> tuple[str, list[int]]:
    """The instance that answered and the ids it generated, greedily."""
    body = {
        "model": MODEL,
        "prompt": case["prompt_ids"],
        "max_tokens": 64,
        "temperature": 0,
        "return_token_ids": True,
    }
    async with gateway.http.post(f"{gateway.url}/v1/completions", json=body) as response:
        assert response.status == 200, await response.text()
        (choice,) = (await response.json())["choices"]
        return response.headers["x-instance-id"], choice["token_ids"]


@pytest.mark.asyncio(loop_scope="module")
async def test_golden_ids_come_out_of_the_gateway_from_both_instances(gateway: Gateway) -> None:
    cases = [case for case in GOLDEN["cases"] for _ in range(2)]
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(completion(gateway, case)) for case in cases]
    for case, task in zip(cases, asked, strict=True):
        assert task.result()[1] == case["greedy_ids"], case["prompt"]
    assert {task.result()[0] for task in asked} == {f"{MODEL}-1-0", f"{MODEL}-1-1"}


@pytest.mark.asyncio(loop_scope="module")
async def test_the_official_client_streams_the_golden_answer(gateway: Gateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            # The model's template puts its own system message before it, as in the golden prompt.
            messages=[{"role": "user", "content": "What is the capital of France?"}],
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == GOLDEN["cases"][0]["text"]
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.prompt_tokens == len(GOLDEN["cases"][0]["prompt_ids"])
        assert {model.id async for model in client.models.list()} == {MODEL}


@pytest.mark.asyncio(loop_scope="module")
async def test_the_official_client_reads_logprobs_and_several_answers(gateway: Gateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as client:
        done = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "What is the capital of France?"}],
            temperature=0,
            n=2,
            logprobs=True,
            top_logprobs=3,
            stop=["Paris", "London"],
        )
    text = GOLDEN["cases"][0]["text"]
    for choice in done.choices:
        assert choice.message.content == text[: text.index("Paris")]
        assert choice.finish_reason == "stop"
        assert choice.logprobs is not None
        entries = choice.logprobs.content or []
        spelt = b"".join(bytes(entry.bytes or []) for entry in entries).decode()
        assert spelt.startswith(text[: text.index("Paris")])
        for entry in entries:  # greedy: the drawn one is the likeliest
            assert entry.top_logprobs[0].logprob == entry.logprob
            assert len(entry.top_logprobs) == 3
    assert [choice.index for choice in done.choices] == [0, 1]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_official_client_is_told_of_its_mistakes(gateway: Gateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as client:
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="nobody", prompt="x")
        with pytest.raises(openai.BadRequestError, match="temperature"):
            await client.completions.create(model=MODEL, prompt="x", temperature=-1)
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model=MODEL, prompt="x", logit_bias={"99999": 1})
        assert caught.value.param == "logit_bias.99999"


@pytest.mark.asyncio(loop_scope="module")
async def test_it_ends_with_0_and_takes_its_instances_along(gateway: Gateway) -> None:
    assert await gateway.end() == 0
