"""The real model says, id by id, what another implementation said with the same weights."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from backends.engines.base import Generation, Sampling
from backends.engines.llm.engine import LlmEngine
from backends.engines.llm.text import Tokenizer
from backends.executor import Executor
from backends.snapshots.repository import Snapshot
from backends.stream import Stream

pytestmark = pytest.mark.mindspore

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "smollm2_greedy.json"
CASES = json.loads(GOLDEN.read_text("utf-8"))["cases"]
MAX_TOKENS = 64  # where the golden answers were cut
END = frozenset({2})

Case = dict[str, Any]


async def ids(stream: Stream) -> list[int]:
    return [token.id async for token in stream]


async def test_greedy_answers_are_the_golden_ones_alone_in_one_batch_and_from_kept_prefixes(
    smollm2: Snapshot, compile_cache: Path
) -> None:
    """One load serves all three: it is most of the time that this takes."""
    executor = Executor(LlmEngine(smollm2, compile_cache), queue_max=len(CASES))

    def submit(case: Case, said: int = 0) -> Stream:
        prompt = (*case["prompt_ids"], *case["greedy_ids"][:said])
        return executor.submit(Generation("golden", prompt, MAX_TOKENS - said, Sampling(), END))

    await executor.start(lambda phase, share, words: None)
    try:
        assert await ids(submit(CASES[0])) == CASES[0]["greedy_ids"]
        batch = [submit(case) for case in CASES]
        answers = await asyncio.gather(*(ids(stream) for stream in batch))
        # Each goes on in the middle of its own answer, and finds itself.
        turns = [submit(case, len(case["greedy_ids"]) // 2) for case in CASES]
        rests = await asyncio.gather(*(ids(stream) for stream in turns))
    finally:
        await executor.close()
    assert answers == [case["greedy_ids"] for case in CASES]
    assert [stream.reused for stream in batch] == [len(CASES[0]["prompt_ids"]) - 1, 0, 0, 0]
    halves = [len(case["greedy_ids"]) // 2 for case in CASES]
    assert rests == [case["greedy_ids"][half:] for case, half in zip(CASES, halves, strict=True)]
    assert [stream.reused for stream in turns] == [
        len(case["prompt_ids"]) + half - 1 for case, half in zip(CASES, halves, strict=True)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"][:20])
def test_prompts_encode_to_the_golden_ids_and_answers_decode_to_the_golden_text(
    smollm2: Snapshot, case: Case
) -> None:
    tokenizer = Tokenizer.read(smollm2.folder)
    assert tokenizer.encode(case["prompt"], special=False) == case["prompt_ids"]
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.push(id_) for id_ in case["greedy_ids"]]
    assert "".join(pieces) + detokenizer.flush() == case["text"]
    assert tokenizer.stop_ids == END


def test_a_chat_renders_to_the_golden_prompt(smollm2: Snapshot) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    assert Tokenizer.read(smollm2.folder).chat(messages) == CASES[0]["prompt_ids"]
