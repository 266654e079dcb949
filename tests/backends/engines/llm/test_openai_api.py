"""A real engine behind the OpenAI API, asked by OpenAI's own client; the model is tiny and random.

What it should say comes from the transformer's definition in numpy, over the ids that it said.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import aiohttp
import numpy as np
import openai
import pytest
import pytest_asyncio
from numpy.typing import NDArray
from openai import AsyncOpenAI

from backends.engines.base import Sampling
from backends.engines.llm.engine import LlmEngine
from backends.engines.llm.text import StopScanner, Tokenizer
from backends.executor import Executor
from backends.facts import Facts, Loaded
from backends.gate import Gate
from backends.http_api import HttpApi
from backends.http_server import HttpServer
from backends.life import Life
from backends.status import Identity
from sluicegate.v1.states import Phase
from tests.backends.conftest import tiny_snapshot
from tests.backends.engines.llm import reference
from tests.backends.rig import MEMORY, joined
from tests.tiny import CHAT_TEMPLATE, VOCAB, tiny_config, tiny_tokenizer, tiny_weights

pytestmark = [pytest.mark.mindspore, pytest.mark.asyncio(loop_scope="module")]

SLOTS, LENGTH, QUEUE = 3, 128, 8
CLOSE = 1e-4  # float32 against float64 over two layers gives 1e-6
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
CREATIVE: dict[str, Any] = {"temperature": 1.3, "top_p": 0.95, "presence_penalty": 0.5}


@dataclass
class Served:
    url: str
    client: AsyncOpenAI
    tokenizer: Tokenizer

    async def text(self, **fields: Any) -> str:
        done = await self.client.completions.create(model="tiny", **fields)
        return str(done.choices[0].text)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    snapshot = tiny_snapshot(folder / "model", "llama", LENGTH, SLOTS)
    (snapshot.folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    tokenizer = Tokenizer.read(snapshot.folder)
    engine = LlmEngine(snapshot, folder / "cache")
    executor = Executor(engine, QUEUE, rng=Random(1))
    gate = Gate()
    life = Life("tiny-1-0", gate)
    facts = Facts(Identity("tiny-1-0", "life-1", "tiny", "1", "", ""), gate, life, lambda: MEMORY)
    await executor.start(lambda phase, share, words: None)
    defaults = Sampling(temperature=1.0)
    facts.load(Loaded(executor, tokenizer, StopScanner, defaults, SLOTS, LENGTH), QUEUE)
    life.progress(Phase.WARMING_UP, 1.0, "", 0.0)
    life.verified(0.0)
    server = HttpServer(HttpApi(facts, Random(7), lambda: 1_700_000_000.0).app(), "127.0.0.1", 0)
    await server.start()
    url = f"http://127.0.0.1:{server.port}/v1"
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield Served(url, client, tokenizer)
    await server.close()
    await executor.close()


def log_softmax(prompt: list[int], said: list[int]) -> NDArray[np.float64]:
    """Row i: before the i-th id that was said."""
    logits = reference.logits(tiny_config(), tiny_weights(), prompt + said)
    rows = logits[len(prompt) - 1 : -1]
    shifted = rows - rows.max(axis=1, keepdims=True)
    scores: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return scores


async def test_logprobs_of_a_chat_are_the_log_softmax_of_the_models_logits(served: Served) -> None:
    done = await served.client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        max_tokens=12,
        seed=3,
        logprobs=True,
        top_logprobs=20,
        logit_bias={"7": 4},  # drawn often, and scored as the model has it
        extra_body={"return_token_ids": True, "ignore_eos": True},
        **{**CREATIVE, "top_p": 1.0},
    )
    said = (done.choices[0].model_extra or {})["token_ids"]
    scores = log_softmax((done.model_extra or {})["prompt_token_ids"], said)
    assert done.choices[0].logprobs is not None
    content = done.choices[0].logprobs.content
    assert content is not None
    assert 7 in said
    assert set(said) != {7}
    spell = served.tokenizer.token_bytes
    assert [bytes(entry.bytes or []) for entry in content] == [spell(id_) for id_ in said]
    for entry, id_, row in zip(content, said, scores, strict=True):
        order = np.argsort(-row)[:20]
        assert entry.logprob == pytest.approx(row[id_], abs=CLOSE)
        assert [bytes(top.bytes or []) for top in entry.top_logprobs] == [
            spell(int(likely)) for likely in order
        ]
        assert [top.logprob for top in entry.top_logprobs] == pytest.approx(row[order], abs=CLOSE)


async def test_logprobs_of_a_completion_are_the_same_whole_and_streamed(served: Served) -> None:
    fields: Any = {"prompt": "the cat", "max_tokens": 10, "seed": 5, "logprobs": 3} | CREATIVE
    fields["logit_bias"] = {"0": -100, "1": -100}  # special tokens: they are no text
    done = await served.client.completions.create(model="tiny", **fields)
    stream = await served.client.completions.create(model="tiny", stream=True, **fields)
    shown = done.choices[0].logprobs
    assert shown is not None
    assert len(shown.tokens or []) == 10
    columns: dict[str, list[Any]] = {}
    text = ""
    async for chunk in stream:
        for choice in chunk.choices:
            text += choice.text
            for name, values in (choice.logprobs.model_dump() if choice.logprobs else {}).items():
                columns.setdefault(name, []).extend(values)
    assert columns == shown.model_dump()
    assert text == done.choices[0].text
    placed = list(zip(shown.text_offset or [], shown.tokens or [], strict=True))
    for (_, before), (offset, token) in pairwise([(0, ""), *placed]):
        # Bytes that never became a character are no text yet when the next token begins.
        if not before.startswith("bytes:") and not token.startswith("bytes:"):
            assert text[offset:].startswith(token)
    assert sum(not token.startswith("bytes:") for _, token in placed) > 3


async def test_a_seed_gives_the_same_answer_alone_and_in_any_company(served: Served) -> None:
    async def asked(seed: int) -> str:
        return await served.text(prompt="one two", max_tokens=24, seed=seed, **CREATIVE)

    alone = [await asked(seed) for seed in range(4)]
    assert len(set(alone)) == 4
    company = [asked(seed) for seed in (0, 1, 2, 3)]
    noise = [served.text(prompt="x" * n, max_tokens=9) for n in (1, 40, 3)]
    together = await asyncio.gather(noise[0], *company[:2], noise[1], *company[2:], noise[2])
    assert [together[1], together[2], together[4], together[5]] == alone


async def test_several_answers_are_those_of_their_seeds(served: Served) -> None:
    fields: Any = {"prompt": "one two", "max_tokens": 16, **CREATIVE}
    done = await served.client.completions.create(model="tiny", n=4, seed=10, **fields)
    singles = [await served.text(seed=seed, **fields) for seed in (10, 11, 12, 13)]
    assert [choice.text for choice in done.choices] == singles
    stream = await served.client.completions.create(
        model="tiny", n=4, seed=10, stream=True, stream_options={"include_usage": True}, **fields
    )
    chunks = [chunk async for chunk in stream]
    for index in range(4):
        parts = [c.text for chunk in chunks for c in chunk.choices if c.index == index]
        assert joined(parts) == singles[index]
    whole, streamed = done.usage, chunks[-1].usage
    assert whole is not None
    assert streamed is not None
    assert (whole.prompt_tokens, whole.completion_tokens) == (streamed.prompt_tokens, 64)
    assert streamed.completion_tokens == 64
    assert streamed.prompt_tokens_details is not None  # the prompt was there, but for its last id
    assert streamed.prompt_tokens_details.cached_tokens == whole.prompt_tokens - 1


async def test_a_stop_string_is_found_across_tokens_and_is_no_part_of_a_stream(
    served: Served,
) -> None:
    fields: Any = {"prompt": "stop here", "max_tokens": 40, "temperature": 0}
    done = await served.client.completions.create(model="tiny", logprobs=0, **fields)
    whole, shown = done.choices[0].text, done.choices[0].logprobs
    assert shown is not None
    border = (shown.text_offset or [])[20]  # a token begins here: the stop string lies across it
    stop = whole[border - 1 : border + 2]
    expected = whole[: whole.index(stop)]
    stream = await served.client.completions.create(
        model="tiny", stream=True, stop=["never in it", stop], **fields
    )
    chunks = [chunk async for chunk in stream]
    assert joined(chunk.choices[0].text for chunk in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_every_event_of_a_stream_is_whole_utf_8(served: Served) -> None:
    body = {"model": "tiny", "prompt": "é", "max_tokens": 60, "seed": 1, "temperature": 2}
    body |= {"stream": True, "logit_bias": _bias_towards("é中😀")}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{served.url}/completions", json=body) as response,
    ):
        events = (await response.read()).split(b"\n\n")
    texts = [
        json.loads(event.removeprefix(b"data: "))["choices"][0]["text"] for event in events[:-2]
    ]
    fields = {name: body[name] for name in body if name not in ("model", "stream")}
    assert joined(texts) == await served.text(**fields)
    assert all(texts[:-1])  # an event for each text, none for a part of a character


def _bias_towards(text: str) -> dict[str, float]:
    return {str(id_): 8.0 for id_ in tiny_tokenizer().encode(text).ids}


async def test_banned_tokens_never_come(served: Served) -> None:
    kept = served.tokenizer.encode("abc", special=False)
    bias = {str(id_): -100 for id_ in range(VOCAB) if id_ not in kept}
    said = await served.text(prompt="x", max_tokens=30, temperature=2, seed=2, logit_bias=bias)
    assert len(said) == 30
    assert set(said) <= set("abc")


async def test_a_prompt_that_does_not_fit_is_refused_with_the_numbers(served: Served) -> None:
    with pytest.raises(
        openai.BadRequestError, match=r"128 tokens leave no room.* is 128 tokens"
    ) as it:
        await served.client.completions.create(model="tiny", prompt=[5] * LENGTH)
    assert (it.value.code, it.value.param) == ("context_length_exceeded", "prompt")


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("logit_bias.300", {"logit_bias": {"300": 1}}),
        ("n", {"n": SLOTS + QUEUE + 1}),
        ("echo", {"echo": True}),
        ("suffix", {"suffix": "x"}),
        ("best_of", {"best_of": 2}),
        ("logprobs", {"logprobs": 21}),
        ("stop.0", {"stop": [""]}),
    ],
)
async def test_what_cannot_be_done_is_refused_with_its_place(
    served: Served, param: str, fields: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await served.client.completions.create(model="tiny", prompt="x", **fields)
    assert caught.value.param == param


async def test_tools_are_refused_and_not_ignored(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await served.client.chat.completions.create(
            model="tiny", messages=HELLO, tools=[{"type": "function", "function": {"name": "f"}}]
        )
    assert caught.value.param == "tools"
