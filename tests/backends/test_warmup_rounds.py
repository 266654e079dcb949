"""Samples go through the executor like any request, and slow or broken ones are not READY."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from backends import warmup_rounds
from backends.batcher import Batcher
from backends.engines.base import Sampling
from backends.errors import LoadFailed
from backends.executor import Executor
from backends.facts import Loaded, LoadedGraph
from backends.warmup import TOKENS, Warmed
from backends.warmup_rounds import Plan, warm_up
from tests.backends.fakes import Gate, ScriptedEngine, successor
from tests.backends.graphs import ScriptedGraph
from tests.backends.rig import END, ByteText, PlainScanner

LENGTH = 256  # made-up samples of 50 and of 248


def nobody(share: float, words: str) -> None:
    pass


@asynccontextmanager
async def loaded(engine: ScriptedEngine, text: ByteText | None = None) -> AsyncIterator[Loaded]:
    executor = Executor(engine, queue_max=0, rng=Random(7))
    await executor.start(lambda *_: None)
    try:
        yield Loaded(
            executor,
            text or ByteText(),
            PlainScanner,
            Sampling(temperature=1.0, seed=1),
            engine.slots,
            engine.max_seq_len,
        )
    finally:
        await executor.close()


def engine(**more: Any) -> ScriptedEngine:
    return ScriptedEngine(max_seq_len=LENGTH, chunks=(64,), rule=successor, **more)


def prompts(made: ScriptedEngine) -> list[tuple[int, ...]]:
    """Each prompt that was read, put together from its chunks."""
    found: list[tuple[int, ...]] = []
    for step, *details in made.calls:
        if step == "prefill":
            _, ids, start = details
            assert isinstance(ids, tuple)
            if start == 0:
                found.append(ids)
            else:
                found[-1] += ids
    return found


def plan(rounds: int = 3, samples: Path | None = None, baseline_ms: float = 0.0) -> Plan:
    return Plan(rounds, samples, baseline_ms)


def recorded(folder: Path, *bodies: object) -> Path:
    file = folder / "m.jsonl"
    rows = [
        {"at": 1.0, "model": "m", "path": "/v1/completions", "bucket": "<100", "body": body}
        for body in bodies
    ]
    file.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    return file


async def test_every_length_is_run_in_every_round_up_to_the_whole_context() -> None:
    made = engine()
    async with loaded(made) as there:
        warmed = await warm_up(there, "m", plan(), nobody)
    assert [len(prompt) for prompt in prompts(made)] == [50, 248] * 3
    assert (warmed.samples, warmed.rounds, warmed.skipped) == (2, 3, 0)
    decoded = [call[2] for call in made.calls if call[0] == "decode"]
    written = max(max(each) for each in decoded if isinstance(each, tuple))
    assert written == LENGTH - 2  # the last token is not read by anything


async def test_no_prompt_begins_as_another_did() -> None:
    made = engine()
    async with loaded(made) as there:
        await warm_up(there, "m", plan(), nobody)
    assert len({prompt[:8] for prompt in prompts(made)}) == 6


async def test_progress_is_told_by_samples_that_have_run() -> None:
    told: list[tuple[float, str]] = []
    async with loaded(engine()) as there:
        await warm_up(there, "m", plan(2), lambda share, words: told.append((share, words)))
    assert told == [
        (0.0, "sample 1 of 2, round 1 of 2 (length 50)"),
        (0.25, "sample 2 of 2, round 1 of 2 (length 248)"),
        (0.5, "sample 1 of 2, round 2 of 2 (length 50)"),
        (0.75, "sample 2 of 2, round 2 of 2 (length 248)"),
    ]


async def test_recorded_requests_are_run_as_they_ask_to_be_drawn(tmp_path: Path) -> None:
    made = engine()
    biased = {"prompt": "ab" * 10, "temperature": 0, "logit_bias": {"7": 100}, "max_tokens": 900}
    async with loaded(made) as there:
        warmed = await warm_up(there, "m", plan(1, recorded(tmp_path, biased)), nobody)
    assert [len(prompt) for prompt in prompts(made)] == [20, 248]
    assert warmed.skipped == 0
    first = made.calls[1 : 1 + TOKENS - 1]
    fed = [ids for step, ids, _ in first if step == "decode" and isinstance(ids, tuple)]
    assert [max(ids) for ids in fed] == [7] * (TOKENS - 1)  # what was drawn: the bias is in force


async def test_what_this_model_cannot_run_is_left_out_and_counted(tmp_path: Path) -> None:
    made = engine()
    file = recorded(
        tmp_path,
        {"prompt": ""},
        {"prompt": "hi", "temperature": 99},
        {"prompt": [5, 100_000]},
        {"prompt": "hi", "logit_bias": {"100000": 1}},
        {"messages": "a chat on the wrong path"},
        "no body",
        {"prompt": "good"},
    )
    async with loaded(made) as there:
        warmed = await warm_up(there, "m", plan(1, file), nobody)
    assert [len(prompt) for prompt in prompts(made)] == [4, 248]
    assert warmed.skipped == 6


async def test_a_recorded_prompt_that_is_too_long_is_cut_to_what_fits(tmp_path: Path) -> None:
    made = engine()
    async with loaded(made) as there:
        await warm_up(there, "m", plan(1, recorded(tmp_path, {"prompt": "x" * 9999})), nobody)
    assert [len(prompt) for prompt in prompts(made)] == [50, 248, 248]


async def test_without_the_file_made_up_samples_are_run(tmp_path: Path) -> None:
    made = engine()
    async with loaded(made) as there:
        warmed = await warm_up(there, "m", plan(1, tmp_path / "none.jsonl"), nobody)
    assert warmed.samples == 2


async def test_what_a_model_says_does_not_end_a_run() -> None:
    made = ScriptedEngine(max_seq_len=LENGTH, chunks=(64,), rule=lambda ids: END)
    async with loaded(made) as there:
        await warm_up(there, "m", plan(1), nobody)
    assert [step for step, *_ in made.calls].count("decode") == 2 * (TOKENS - 1)


async def test_a_context_with_room_for_one_token_is_warmed_up_too() -> None:
    async with loaded(ScriptedEngine(max_seq_len=2, rule=successor)) as there:
        warmed = await warm_up(there, "m", plan(1), nobody)
    assert warmed.samples == 1
    assert warmed.effect.gap_s == 0.0


async def test_a_sample_that_fails_names_itself() -> None:
    def fault(step: str) -> None:
        if step == "decode":
            raise RuntimeError("kernel failed")

    made = engine()
    made.faults = fault
    async with loaded(made) as there:
        with pytest.raises(LoadFailed, match=r"warm-up: sample 1 of 2, round 1 of 3 failed: .*ker"):
            await warm_up(there, "m", plan(), nobody)


async def test_an_engine_that_hangs_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warmup_rounds, "RUN_S", 0.0)
    monkeypatch.setattr(warmup_rounds, "PROMPT_TOKENS_PER_S", 1e9)
    steps = Gate()
    async with loaded(engine(gate=steps)) as there:
        with pytest.raises(LoadFailed, match="no answer within"):
            await warm_up(there, "m", plan(), nobody)
        steps.open()


async def test_a_model_that_is_slower_than_the_baseline_is_refused() -> None:
    async with loaded(engine()) as there:
        with pytest.raises(LoadFailed, match="the baseline is 1e-09 ms"):
            await warm_up(there, "m", plan(baseline_ms=1e-9), nobody)
        assert isinstance(await warm_up(there, "m", plan(baseline_ms=1e9), nobody), Warmed)


async def test_a_stop_in_the_middle_leaves_nothing_in_the_slots() -> None:
    steps = Gate()
    made = engine(gate=steps, slots=1)
    async with loaded(made) as there:
        running = asyncio.create_task(warm_up(there, "m", plan(), nobody))
        await asyncio.to_thread(steps.await_arrivals, 1)
        running.cancel()
        await asyncio.wait([running])
        steps.open()
        assert running.cancelled()
        async with asyncio.timeout(300):
            await warm_up(there, "m", plan(1), nobody)  # the only slot is free for it
        assert there.executor.readings().served_total == 2
    assert [step for step, *_ in made.calls[:2]] == ["prefill", "prefill"]


async def test_a_graph_is_run_alone_and_filled_up() -> None:
    graph, rows = ScriptedGraph(), []
    graph.fault = lambda x: rows.append(len(x))
    batcher = Batcher(graph, 0.0, 0)
    await batcher.start(lambda *_: None)
    try:
        warmed = await warm_up(LoadedGraph(batcher, graph.signature), "m", plan(2), nobody)
    finally:
        await batcher.close()
    assert rows == [1, 4, 1, 4]
    assert (warmed.samples, warmed.rounds) == (2, 2)
    assert warmed.effect.gap_s > 0
