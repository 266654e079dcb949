"""Scaled rotary positions, against what `transformers` makes of the same configs."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.snapshots.rope import (
    Divided,
    Linear,
    Llama3,
    Yarn,
    frequencies,
    lengthened,
    read_scaling,
    stretched,
    write_scaling,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "families" / "rope.json"
ROPES = json.loads(GOLDEN.read_text("utf-8"))["ropes"]

Config = dict[str, Any]


@pytest.mark.parametrize("golden", ROPES, ids=lambda golden: str(golden["config"]["rope_scaling"]))
def test_frequencies_and_length_are_those_of_transformers(golden: Config) -> None:
    config, problems = golden["config"], list[str]()
    scaling = read_scaling(config, problems)
    assert scaling is not None
    assert not problems
    found = frequencies(config["rope_theta"], config["head_dim"], scaling)
    np.testing.assert_allclose(found, golden["frequencies"], rtol=1e-5)
    assert lengthened(scaling) == pytest.approx(golden["lengthened"], rel=1e-6)
    unscaled = frequencies(config["rope_theta"], config["head_dim"], None)
    assert config["rope_scaling"]["factor"] == 1 or max(np.divide(unscaled, found)) > 3


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        Linear(4.0),
        Llama3(8.0, 1.0, 4.0, 8192),
        Yarn(4.0, 32768, 32.0, 1.0, 1.1, True),
        Yarn(4.0, 32768, 16.0, 2.0, 1.0, False),
        Divided((1.0, 2.0)),
    ],
)
def test_what_is_written_is_read_back_equal(scaling: Any) -> None:
    written = {"rope_scaling": json.loads(json.dumps(write_scaling(scaling)))}
    problems: list[str] = []
    assert read_scaling(written, problems) == scaling
    assert not problems


def test_both_places_and_both_words_for_the_kind_are_read() -> None:
    for config in (
        {"rope_scaling": {"type": "linear", "factor": 2}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
        {"rope_scaling": None, "rope_parameters": {"rope_type": "linear", "factor": 2.0}},
    ):
        assert read_scaling(config, []) == Linear(2.0)


def test_what_is_not_said_is_what_transformers_takes() -> None:
    config = {
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
        "max_position_embeddings": 512,
    }
    assert read_scaling(config, []) == Yarn(4.0, 512, 32.0, 1.0, 0.1 * math.log(4) + 1, True)


@pytest.mark.parametrize(
    ("rope", "problem"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "rope_scaling: must be of rope_type default"),
        (
            {"full_attention": {"rope_type": "yarn"}},
            "rope_scaling: must be the same for all layers",
        ),
        ({"rope_type": "linear"}, "rope_scaling.factor: must be a number above 0, not None"),
        ({"rope_type": "linear", "factor": True}, "rope_scaling.factor: must be a number above 0"),
        ({"rope_type": "yarn", "factor": -1.0}, "rope_scaling.factor: must be a number above 0"),
        ({"rope_type": "llama3", "factor": 8}, "rope_scaling.low_freq_factor: must be a number"),
        (
            {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1},
            "high_freq_factor: must be above low_freq_factor 4.0, not 1.0",
        ),
        ({"rope_type": "divided", "divisors": [1.0, 0.0]}, "divisors: must be a list of numbers"),
    ],
)
def test_each_number_that_is_missing_or_wrong_is_named(rope: Config, problem: str) -> None:
    problems: list[str] = []
    read_scaling({"rope_scaling": rope, "max_position_embeddings": 512}, problems)
    assert any(found.startswith(problem) for found in problems), problems


def test_a_config_that_keeps_the_trained_length_promises_the_stretched_one() -> None:
    yarn = Yarn(4.0, 32768, 32.0, 1.0, 1.1, True)
    assert stretched(32768, yarn) == stretched(131072, yarn) == 131072
    assert stretched(32768, Linear(4.0)) == stretched(32768, None) == 32768
