"""What is read off streamed answers, and what is shown of it."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config import parse
from tests.bench import chat_turns, prefill
from tests.bench.model import MODEL, Answer, config_text, spread
from tests.live.gateways import ROOT


def answer(first_ms: float, prompt: int, cached: int) -> Answer:
    usage = {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}
    return Answer(1.0, [1.0 + first_ms / 1000, 9.0], usage=usage)


def test_the_config_is_of_this_checkouts_model_and_takes_any_key(tmp_path: Path) -> None:
    settings = parse(config_text(tmp_path, 2, policy="affinity", prefix_reuse=False))
    (model,) = settings.model
    assert (model.name, model.replicas, model.policy) == (MODEL, {"1": 2}, "affinity")
    assert not model.prefix_reuse
    assert settings.repository.root == f"{ROOT}/var/models"


def test_a_moment_is_noted_for_each_piece_and_none_for_who_speaks() -> None:
    read = Answer(0.0)
    events: list[dict[str, Any]] = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": None},
        {"choices": [{"delta": {"content": "he"}}], "usage": None},
        {"choices": [{"text": "y"}], "usage": None},
        {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 3}}},
    ]
    assert [read.read(event, now) for now, event in enumerate(events)] == [False, True, True, False]
    assert (read.text, read.came_s, read.cached) == ("hey", [1, 2], 3)


def test_chats_are_medians_by_turn_and_the_line_has_the_first_and_the_last() -> None:
    found = {
        way: [
            [answer(ms, 50 * turn, turn) for ms in (1.0, base * turn, 900.0)] for turn in (1, 2, 3)
        ]
        for way, base in (("affinity", 10.0), ("no_reuse", 20.0))
    }
    assert chat_turns.table(found).splitlines()[2:] == [
        "| 1 | 50 | 10 | 1 | 20 | 1 |",
        "| 2 | 100 | 20 | 2 | 40 | 2 |",
        "| 3 | 150 | 30 | 3 | 60 | 3 |",
    ]
    assert chat_turns.line(found).split() == [
        "affinity_turn1_ms=10",
        "affinity_turn3_ms=30",
        "no_reuse_turn1_ms=20",
        "no_reuse_turn3_ms=60",
    ]


def test_gaps_are_shown_with_and_without_the_prompt_beside_them() -> None:
    found = prefill.Found([10.0] * 99 + [20.0], [10.0, 300.0], [2000.0])
    assert spread(found.quiet_ms) == "10 / 10 / 20"
    assert "| beside a prompt | 10 / 300 / 300 | 2 |" in prefill.table(found)
    figures = dict(pair.split("=") for pair in prefill.line(found, 900).split())
    assert figures["beside_p99_ms"] == "300"
    assert figures["first_token_ms"] == "2000"
    with pytest.raises(IndexError):
        prefill.line(prefill.Found(), 900)  # a run that measured nothing has no figures
