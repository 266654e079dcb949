"""Runs the warm-up: samples through the executor, the way that all requests go, sampling included.

Floor 3, I/O.
Flow: read > choose > [round: run, run ...] > judge.
It comes after every shape has been compiled and run. What it adds is what only whole requests show:
prompts in chunks, decodes at every length, the drawing of tokens, and how long all that takes here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from backends.encoding import encode
from backends.engines.base import Generation
from backends.errors import EngineFailed, LoadFailed, RequestInvalid
from backends.facts import Loaded, LoadedGraph
from backends.openai.requests import Kind, parse
from backends.tensors import zeros
from backends.warmup import (
    TOKENS,
    Run,
    Sample,
    Warmed,
    chosen,
    effect,
    lengths,
    made_up,
    refusal,
    turned,
)
from backends.warmup_samples import Recorded, read

log = logging.getLogger(__name__)

# Words that no tokenizer makes one token of; what it means does not matter.
FILLER: Final = (
    "A lock holds the water back until the gates are closed behind the boat and the level has "
    "risen, 12 feet in 8 minutes; then the upper gates open, and it goes on its way. "
)
RUN_S: Final = 120.0  # an engine that hangs must not be INITIALIZING for ever
PROMPT_TOKENS_PER_S: Final = 10.0  # slower than any engine reads
KINDS: Final = {"/v1/chat/completions": Kind.CHAT, "/v1/completions": Kind.TEXT}

# Share of the whole that is done (0..1), in words.
Told = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the operator asks of a warm-up."""

    rounds: int
    samples: Path | None  # a file of recorded requests
    baseline_ms: float


async def warm_up(loaded: Loaded | LoadedGraph, model: str, plan: Plan, told: Told) -> Warmed:
    """Raises: LoadFailed, if a sample is not answered, or all of it is too slow."""
    recorded = Recorded()
    if plan.samples is not None and isinstance(loaded, Loaded):
        # A house rule broken (one thread): a disk may hang, and a poll must not wait for it.
        recorded = await asyncio.to_thread(read, plan.samples, model)
    if recorded.problem:
        log.info("no recorded samples", extra={"reason": recorded.problem})
    if isinstance(loaded, LoadedGraph):
        runs, skipped = await _graph(loaded, plan.rounds, told), 0
    else:
        samples, skipped = await _samples(loaded, recorded)
        runs = await _text(loaded, samples, plan.rounds, told)
    found = effect(runs, len(runs) // plan.rounds)
    warmed = Warmed(len(runs) // plan.rounds, plan.rounds, recorded.skipped + skipped, found)
    log.info(
        "warmed up",
        extra={
            "samples": warmed.samples,
            "rounds": warmed.rounds,
            "skipped": warmed.skipped,
            "first_quarter_ms": round(1000 * found.first_s, 1),
            "last_quarter_ms": round(1000 * found.last_s, 1),
            "token_p95_ms": round(1000 * found.gap_s, 1),
        },
    )
    why = refusal(found, plan.baseline_ms)
    if why:
        raise LoadFailed(why)
    return warmed


async def _samples(loaded: Loaded, recorded: Recorded) -> tuple[tuple[Sample, ...], int]:
    """What a round runs, and how many of the recorded requests cannot be."""
    usable: list[Sample] = []
    for path, body in recorded.requests:
        sample = await _sample(loaded, path, body)
        if sample is not None:
            usable.append(sample)
    ids = loaded.text.encode(FILLER, special=True)
    made = [Sample(made_up(ids, length), loaded.defaults) for length in lengths(loaded.max_seq_len)]
    return chosen(usable, made), len(recorded.requests) - len(usable)


async def _sample(loaded: Loaded, path: str, body: dict[str, Any]) -> Sample | None:
    try:
        request = parse(KINDS[path], body, loaded.defaults)
        ids = await encode(loaded.text, request.prompt)
    except RequestInvalid:  # made for another version of the model, or of this program
        return None
    biased = (id_ for id_, _ in request.sampling.logit_bias)
    if not all(0 <= id_ < loaded.executor.vocab for id_ in (*ids, *biased)):
        return None
    room = max(1, loaded.max_seq_len - TOKENS)
    return Sample(ids[:room], request.sampling, request.logprobs)


async def _text(loaded: Loaded, samples: Sequence[Sample], rounds: int, told: Told) -> list[Run]:
    async def run(number: int, which: int) -> Run:
        ids = turned(samples[which].prompt_ids, number)
        return await _generate(loaded, number, which, ids, samples[which])

    return await _rounds(run, [len(sample.prompt_ids) for sample in samples], rounds, told)


async def _graph(loaded: LoadedGraph, rounds: int, told: Told) -> list[Run]:
    """The graph alone and filled up, without values of anybody's."""
    rows = sorted({1, max(1, loaded.signature.max_batch)})

    async def run(number: int, which: int) -> Run:
        latency_s = await _timed(loaded.executor.infer(zeros(loaded.signature, rows[which])))
        return Run(which, latency_s, (latency_s,))

    return await _rounds(run, rows, rounds, told)


async def _rounds(
    run: Callable[[int, int], Awaitable[Run]], sizes: Sequence[int], rounds: int, told: Told
) -> list[Run]:
    """Every sample once a round.

    Raises: LoadFailed.
    """
    runs: list[Run] = []
    count = len(sizes) * rounds
    for number in range(count):
        turn, which = divmod(number, len(sizes))
        place = f"sample {which + 1} of {len(sizes)}, round {turn + 1} of {rounds}"
        told(number / count, f"{place} (length {sizes[which]})")
        limit_s = RUN_S + sizes[which] / PROMPT_TOKENS_PER_S
        try:
            async with asyncio.timeout(limit_s):
                runs.append(await run(number, which))
        except TimeoutError as exc:
            raise LoadFailed(f"warm-up: {place} had no answer within {limit_s:g} s") from exc
        except EngineFailed as exc:
            raise LoadFailed(f"warm-up: {place} failed: {exc}") from exc
    return runs


async def _generate(
    loaded: Loaded, number: int, which: int, ids: tuple[int, ...], sample: Sample
) -> Run:
    now = asyncio.get_running_loop().time
    stream = loaded.executor.submit(
        Generation(
            request_id=f"warm-up-{number}",
            prompt_ids=ids,
            max_tokens=min(TOKENS, loaded.max_seq_len - len(ids)),
            sampling=sample.sampling,
            stop_ids=frozenset(),  # to the end, whatever it says
            logprobs=sample.logprobs,
        )
    )
    began = now()
    times = []
    try:
        async for _ in stream:
            times.append(now())
    finally:
        stream.cancel()
    if not times:
        raise EngineFailed("the answer was empty")
    gaps = tuple(later - earlier for earlier, later in pairwise(times))
    return Run(which, times[-1] - began, gaps)


async def _timed(answer: Awaitable[object]) -> float:
    now = asyncio.get_running_loop().time
    began = now()
    await answer
    return now() - began
