"""Clients of an executor by the hundred, who leave whenever they like.

Each leaves at a stage of its own: in the queue, in its prompt, in its answer, at its end, after it,
or not at all. What it was given until then is the beginning of its answer.
"""

import asyncio
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final
from weakref import ref

from backends.engines.base import Generation, Sampling
from backends.executor import Executor
from backends.stream import Stream

ANSWER_MAX: Final = 6


class Stage(Enum):
    QUEUED = "queued"
    SOON = "soon"  # a few turns of the loop later: wherever the thread has come to
    ANSWER = "answer"
    LAST = "last"  # with the last token in hand
    AFTER = "after"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Client:
    prompt: tuple[int, ...]
    tokens: int
    stage: Stage
    turns: int  # of the loop, or tokens of the answer

    def generation(self) -> Generation:
        return Generation("r", self.prompt, self.tokens, Sampling(), frozenset())


def crowd(count: int, rng: Random, vocab: int, prompt_max: int) -> list[Client]:
    """Half of them begin as somebody else does."""
    stems = [tuple(rng.choices(range(vocab), k=prompt_max // 2)) for _ in range(5)]
    clients = []
    for _ in range(count):
        prompt = tuple(rng.choices(range(vocab), k=rng.randint(1, prompt_max // 2)))
        prompt = (*rng.choice(stems), *prompt) if rng.random() < 0.5 else prompt
        stage, tokens = rng.choice(list(Stage)), rng.randint(1, ANSWER_MAX)
        turns = rng.randint(1, 20) if stage is Stage.SOON else rng.randint(1, tokens)
        clients.append(Client(prompt, tokens, stage, turns))
    return clients


async def visit(executor: Executor, client: Client, streams: list[ref[Stream]]) -> list[int]:
    """The ids that it was given."""
    stream = executor.submit(client.generation())
    streams.append(ref(stream))
    got: list[int] = []
    match client.stage:
        case Stage.QUEUED:
            stream.cancel()
        case Stage.SOON:
            for _ in range(client.turns):
                await asyncio.sleep(0)
            stream.cancel()
        case Stage.ANSWER | Stage.LAST:
            wanted = client.tokens if client.stage is Stage.LAST else client.turns
            while len(got) < wanted:
                got.append((await anext(stream)).id)
            stream.cancel()
        case Stage.AFTER | Stage.NEVER:
            got = [token.id async for token in stream]
            if client.stage is Stage.AFTER:
                stream.cancel()
    assert [token async for token in stream] == []
    return got


async def leave_nothing_behind(
    executor: Executor,
    clients: Sequence[Client],
    queue_max: int,
    slots: int,
    answer: Callable[[Client, Sequence[int]], Sequence[int]],
) -> None:
    """All of them at once; then the executor is as it was, and takes as many as ever.

    `answer` says what a client should have been given where it was given so many.
    """
    tasks = asyncio.all_tasks()
    streams: list[ref[Stream]] = []
    given = await asyncio.gather(*(visit(executor, client, streams) for client in clients))
    for client, got in zip(clients, given, strict=True):
        assert got == answer(client, got)
        if client.stage in (Stage.LAST, Stage.AFTER, Stage.NEVER):
            assert len(got) == client.tokens
    # As many as there ever was room for; they are taken only if nobody still holds a place.
    full = [Generation("full", (1,), 1, Sampling(), frozenset())] * (slots + queue_max)
    for taken in executor.submit_all(full):
        assert len([token async for token in taken]) == 1
    readings = executor.readings()
    assert (readings.active, readings.queue_depth, readings.failure) == (0, 0, "")
    assert asyncio.all_tasks() == tasks
    gc.collect()
    assert not any(stream() for stream in streams)
