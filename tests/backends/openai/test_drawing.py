"""What a body or a snapshot says of how tokens are drawn."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engines.base import Sampling
from backends.errors import RequestInvalid
from backends.openai.drawing import BIASES_MAX, parse_defaults, parse_sampling

DEFAULTS = Sampling(temperature=1.0)


def read(**fields: Any) -> Sampling:
    return parse_sampling(fields, DEFAULTS)


def test_a_body_that_says_nothing_is_drawn_from_the_models_own_distribution() -> None:
    assert read() == Sampling(temperature=1.0, top_p=1.0, top_k=0, seed=None)


def test_every_field_is_read() -> None:
    got = read(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        seed=7,
        frequency_penalty=-2,
        presence_penalty=1.5,
        logit_bias={"5": -100, "0": 2.5},
    )
    assert got == Sampling(0.5, 0.9, 40, 7, -2.0, 1.5, ((5, -100.0), (0, 2.5)))


def test_a_negative_seed_is_as_good_as_any() -> None:
    seeds = {read(seed=seed).seed for seed in (-1, 0, 1, 2**64 - 2)}
    assert seeds == {2**64 - 1, 0, 1, 2**64 - 2}


def test_top_k_minus_one_means_all() -> None:
    assert read(top_k=-1).top_k == 0


def test_a_snapshot_may_set_its_own_sampling() -> None:
    config = {"temperature": 0.2, "top_p": 0.9, "top_k": 20, "eos_token_id": [2], "do_sample": True}
    assert parse_defaults(config) == Sampling(temperature=0.2, top_p=0.9, top_k=20)
    assert parse_defaults({}) == DEFAULTS
    assert parse_sampling({}, parse_defaults(config)).temperature == 0.2
    assert read(temperature=0) == Sampling()


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("temperature", {"temperature": 2.1}),
    ("temperature", {"temperature": -0.1}),
    ("temperature", {"temperature": float("inf")}),
    ("temperature", {"temperature": float("nan")}),
    ("temperature", {"temperature": "hot"}),
    ("temperature", {"temperature": True}),
    ("top_p", {"top_p": 0}),
    ("top_p", {"top_p": 1.1}),
    ("top_k", {"top_k": -2}),
    ("top_k", {"top_k": 2.5}),
    ("seed", {"seed": 2**64}),
    ("seed", {"seed": "x"}),
    ("seed", {"seed": 1e30}),
    ("frequency_penalty", {"frequency_penalty": 2.01}),
    ("presence_penalty", {"presence_penalty": -3}),
    ("presence_penalty", {"presence_penalty": []}),
    ("logit_bias", {"logit_bias": [5]}),
    ("logit_bias", {"logit_bias": {str(i): 1 for i in range(BIASES_MAX + 1)}}),
    ("logit_bias.the", {"logit_bias": {"the": 1}}),
    ("logit_bias.-1", {"logit_bias": {"-1": 1}}),
    ("logit_bias.", {"logit_bias": {"": 1}}),
    ("logit_bias.1_0", {"logit_bias": {"1_0": 1}}),
    ("logit_bias.\u0663", {"logit_bias": {"\u0663": 1}}),  # a digit, but not one of JSON
    ("logit_bias.05", {"logit_bias": {"5": 1, "05": 1}}),
    ("logit_bias.2147483648", {"logit_bias": {"2147483648": 1}}),
    ("logit_bias.9999999999", {"logit_bias": {"9" * 5000: 1}}),
    ("logit_bias.5", {"logit_bias": {"5": 101}}),
    ("logit_bias.5", {"logit_bias": {"5": None}}),
    ("logit_bias.5", {"logit_bias": {"5": True}}),
]


@pytest.mark.parametrize(("path", "fields"), WRONG)
def test_a_mistake_is_named_with_its_path(path: str, fields: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid) as caught:
        read(**fields)
    assert caught.value.path == path
    assert len(str(caught.value)) < 150


# Few letters: what matters is the shape, and drawing from all of Unicode takes seconds to set up.
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("0a")
NAMES = ["temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"]
bodies = st.dictionaries(st.sampled_from(NAMES), values)
biases = st.none() | st.dictionaries(st.text("012a", max_size=3), values, max_size=4)


@given(bodies, biases)
def test_any_json_is_a_sampling_or_a_mistake(fields: dict[str, Any], bias: object) -> None:
    try:
        got = read(**fields, logit_bias=bias)
    except RequestInvalid:
        return
    assert 0 <= got.temperature <= 2
    assert 0 < got.top_p <= 1
    assert max(abs(got.frequency_penalty), abs(got.presence_penalty)) <= 2
    assert got.seed is None or 0 <= got.seed < 2**64
    assert len({id_ for id_, _ in got.logit_bias}) == len(got.logit_bias)
    assert all(id_ >= 0 and abs(value) <= 100 for id_, value in got.logit_bias)
