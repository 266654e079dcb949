"""A hundred clients of a real engine who leave when they like: who stays gets its own answer."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from backends.engines.base import Report
from backends.engines.llm.engine import LlmEngine
from backends.executor import Executor
from tests.backends.conftest import tiny_snapshot
from tests.backends.crowd import ANSWER_MAX, Client, crowd, leave_nothing_behind

LENGTH, SLOTS, QUEUE_MAX = 48, 3, 200
PROMPT_MAX = LENGTH - ANSWER_MAX
VOCAB = 64  # the ids that prompts are made of; the model has more
CLEAR = 1e-3  # by how much a greedy token must win, of the largest logit; float32 differs by 1e-6


class Asked(LlmEngine):
    """Answers every prompt alone, as a whole and in slot 0, before anybody else may ask."""

    def __init__(self, folder: Path, prompts: Sequence[tuple[int, ...]]) -> None:
        snapshot = tiny_snapshot(folder / "model", "llama", LENGTH, SLOTS)
        super().__init__(snapshot, folder / "cache")
        self._prompts = prompts
        self.answers: dict[tuple[int, ...], list[int]] = {}

    def load(self, report: Report) -> None:
        super().load(report)
        for prompt in self._prompts:
            self.answers[prompt] = self._alone(prompt)

    def _alone(self, prompt: tuple[int, ...]) -> list[int]:
        """Up to the first token that does not win clearly."""
        logits, said = self.prefill(0, prompt, 0), list[int]()
        for position in range(len(prompt), len(prompt) + ANSWER_MAX):
            second, first = np.sort(logits)[-2:]
            if first - second < CLEAR * np.abs(logits).max():
                break
            said.append(int(np.argmax(logits)))
            ids, positions = np.zeros((2, self.slots), np.int32)
            ids[0], positions[0] = said[-1], position
            logits = self.decode(ids, positions)[0]
        return said


@pytest.mark.mindspore
async def test_a_hundred_clients_who_leave_when_they_like_leave_nothing_behind(
    tmp_path: Path,
) -> None:
    clients = crowd(100, Random(11), VOCAB, PROMPT_MAX)
    engine = Asked(tmp_path, [client.prompt for client in clients])
    executor = Executor(engine, QUEUE_MAX)

    def alone(client: Client, got: Sequence[int]) -> list[int]:
        """What it should have been given; after a token that does not win clearly, anything."""
        clear = engine.answers[client.prompt]
        return [*clear, *got[len(clear) :]][: len(got)]

    await executor.start(lambda phase, share, words: None)
    try:
        assert sum(len(said) for said in engine.answers.values()) > 50 * ANSWER_MAX
        await leave_nothing_behind(executor, clients, QUEUE_MAX, SLOTS, alone)
        readings = executor.readings()
        assert readings.prefix_hits_total > 0
    finally:
        await executor.close()
