"""Clients by the hundred who leave at every stage: nothing of them stays, the others are whole."""

import asyncio
import json
from collections.abc import Sequence
from random import Random

import aiohttp
import pytest

from tests.backends.crowd import Client, crowd, leave_nothing_behind
from tests.backends.fakes import VOCAB, Gate, ScriptedEngine, answer
from tests.backends.test_executor import generation, held, ids, started
from tests.backends.test_generate import serving

QUEUE_MAX = 1000


def beginning(client: Client, got: Sequence[int]) -> list[int]:
    return answer(client.prompt, len(got))


async def test_a_thousand_clients_who_leave_when_they_like_leave_nothing_behind() -> None:
    executor = await started(ScriptedEngine(slots=4, chunks=(4,)), QUEUE_MAX)
    clients = crowd(1000, Random(5), VOCAB, prompt_max=40)
    await leave_nothing_behind(executor, clients, QUEUE_MAX, 4, beginning)
    assert executor.readings().reused_tokens_total > 0
    await executor.close()


@pytest.mark.parametrize(
    ("steps", "who"),
    [
        (0, "in the queue"),
        (1, "in its prompt"),
        (3, "at the end of its prompt"),
        (6, "in its answer"),
    ],
)
async def test_a_client_that_left_has_no_step_but_the_one_under_way(steps: int, who: str) -> None:
    gate = Gate()
    engine = ScriptedEngine(slots=1, chunks=(2,), gate=gate)
    executor = await started(engine)
    leaver = executor.submit(generation(1, 2, 3, 4, 5, 6, max_tokens=9))
    next_one = executor.submit(generation(9, max_tokens=1))
    if steps:
        gate.let(steps - 1)
        await asyncio.to_thread(gate.await_arrivals, steps)
    leaver.cancel()
    gate.open()
    assert await ids(next_one) == answer([9], 1), who
    # Without a step under way the thread may still have begun the first before it heard.
    assert engine.calls[-1] == ("prefill", 0, (9,), 0)
    assert len(engine.calls) == steps + 1 or not steps
    assert held(executor.readings()) == (0, 0)
    await executor.close()


async def test_five_hundred_clients_at_once_get_whole_answers_or_are_told_at_once() -> None:
    """While no step runs: as many as slots and queue hold are taken, the others are refused."""
    slots, queue_max, clients = 4, 16, 500
    gate = Gate()
    engine = ScriptedEngine(slots=slots, gate=gate)
    told = asyncio.Event()
    statuses: list[int] = []
    texts: list[bytes] = []

    async with (
        serving(engine, gate, queue_max) as served,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):

        async def ask(number: int) -> None:
            prompt = [1 + number % 250, 2, 3 + number // 250]
            body = {"model": "m", "prompt": prompt, "max_tokens": 5, "temperature": 0}
            asked = {"return_token_ids": True, "ignore_eos": True, "stream": number % 2 == 0}
            url = f"{served.url}/completions"
            async with session.post(url, json=body | asked) as response:
                statuses.append(response.status)
                if len(statuses) == clients - slots - queue_max:
                    told.set()
                text = await response.read()
            if response.status == 503:
                assert json.loads(text)["error"]["code"] == "full"
                assert "Retry-After" in response.headers
            else:
                assert said(text) == answer(prompt, 5)
                texts.append(text)

        asked = [asyncio.create_task(ask(number)) for number in range(clients)]
        async with asyncio.timeout(300):
            await told.wait()
        assert statuses == [503] * (clients - slots - queue_max)
        assert served.rig.gate.in_flight == slots + queue_max
        gate.open()
        await asyncio.gather(*asked)
        await served.rig.gate.holds(0)
        assert served.rig.executor.readings().served_total == slots + queue_max
        assert held(served.rig.executor.readings()) == (0, 0)
    assert statuses.count(200) == len(texts) == slots + queue_max
    assert set(statuses) == {200, 503}


def said(text: bytes) -> list[int]:
    """The ids of a completion, whole or streamed."""
    if not text.startswith(b"data: "):
        (choice,) = json.loads(text)["choices"]
        return list(choice["token_ids"])
    events = text.removesuffix(b"\n\n").split(b"\n\n")
    assert events[-1] == b"data: [DONE]"
    documents = [json.loads(event.removeprefix(b"data: ")) for event in events[:-1]]
    return [id_ for document in documents for id_ in document["choices"][0]["token_ids"]]
