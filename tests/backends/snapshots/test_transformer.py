from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.snapshots.rope import Linear, Llama3, Yarn
from backends.snapshots.transformer import (
    ALLOWANCE_BYTES,
    ConfigInvalid,
    Transformer,
    memory_needed_bytes,
    missing_and_foreign,
    read_config,
    tensors,
    weights_bytes,
    write_config,
)
from tests.tiny import tiny_config, tiny_weights

sizes = st.integers(1, 8)
shapes = st.builds(
    lambda kv, group, half, **rest: Transformer(
        kv_heads=kv, heads=kv * group, head_dim=2 * half, **rest
    ),
    sizes,
    sizes,
    sizes,
    architecture=st.sampled_from(["llama", "qwen2", "qwen3"]),
    layers=sizes,
    hidden=sizes,
    feed_forward=sizes,
    vocab=sizes,
    context=st.integers(8, 64),  # no shorter than what the scalings below stretch to
    rms_norm_eps=st.sampled_from([1e-5, 1e-6]),
    rope_theta=st.sampled_from([1e4, 1e6]),
    tied=st.booleans(),
    scaling=st.sampled_from(
        [
            None,
            Linear(2.5),
            Llama3(8.0, 1.0, 4.0, 8192),
            Yarn(2.0, 4, 32.0, 1.0, 1.07, True),
            Yarn(2.0, 4, 64.0, 2.0, 1.5, False),
        ]
    ),
)


@given(shapes)
def test_what_is_written_is_read_back_equal(shape: Transformer) -> None:
    assert read_config(write_config(shape, "float32", None, [2])) == shape


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_tensors_are_those_of_a_real_folder(architecture: str, tied: bool) -> None:
    shape = read_config(tiny_config(architecture, tied))
    found = {name: values.shape for name, values in tiny_weights(architecture, 0, tied).items()}
    assert {spec.name: spec.shape for spec in tensors(shape)} == found
    assert list(missing_and_foreign(shape, found)) == []


def test_each_missing_misshapen_and_foreign_tensor_is_named() -> None:
    shape = read_config(tiny_config("llama", tied=True))
    found: dict[str, tuple[int, ...]] = {spec.name: spec.shape for spec in tensors(shape)}
    del found["model.norm.weight"]
    found["model.embed_tokens.weight"] = (1, 64)
    found["model.layers.0.self_attn.q_proj.bias"] = (64,)
    assert list(missing_and_foreign(shape, found)) == [
        "model.embed_tokens.weight: must have shape (300, 64), not (1, 64)",
        "model.norm.weight: is missing",
        "model.layers.0.self_attn.q_proj.bias: is not part of a llama model",
    ]


def test_rotary_tables_and_a_second_output_matrix_do_no_harm() -> None:
    tied = read_config(tiny_config("llama", tied=True))
    found: dict[str, tuple[int, ...]] = {spec.name: spec.shape for spec in tensors(tied)}
    found["model.layers.0.self_attn.rotary_emb.inv_freq"] = (8,)
    found["lm_head.weight"] = (300, 64)
    assert list(missing_and_foreign(tied, found)) == []


@given(shapes, st.integers(1, 64), st.integers(1, 4096))
def test_memory_is_weights_and_a_full_cache_and_the_allowance(
    shape: Transformer, slots: int, max_seq_len: int
) -> None:
    cache = np.empty(0, np.float32).itemsize * slots * max_seq_len
    cache *= shape.layers * (shape.kv_heads * shape.head_dim) * len(("key", "value"))
    needed = memory_needed_bytes(shape, slots, max_seq_len)
    assert needed == weights_bytes(shape, "float32") + cache + ALLOWANCE_BYTES


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architectures: must be LlamaForCausalLM or"),
        ({"architectures": None}, "architectures: must be"),
        ({"hidden_size": None}, "hidden_size: must be a whole number of at least 1, not None"),
        ({"hidden_size": "64"}, "hidden_size: must be"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: must be"),
        ({"vocab_size": True}, "vocab_size: must be"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: must divide num_attention_heads 4"),
        ({"head_dim": 15}, "head_dim: must be even"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: must be a number above 0"),
        ({"rope_theta": 0}, "rope_theta: must be a number above 0"),
        ({"hidden_act": "gelu"}, 'hidden_act: must be "silu"'),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "rope_scaling: must be of rope_type default"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_parameters: must be of rope_type"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor: must be a number above"),
        (
            {"rope_theta": 1.0, "rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
            "rope_theta: must be above 1 for yarn",
        ),
        (
            {"rope_scaling": {"rope_type": "divided", "divisors": [1.0, 2.0]}},
            "divisors: must be 8, not 2",
        ),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: must be 1"),
        ({"mlp_bias": True}, "mlp_bias: must be false"),
        ({"attention_bias": True}, "attention_bias: must be false"),
        ({"use_sliding_window": True}, "use_sliding_window: must be false"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "use_sliding_window: must be"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: must be absent"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_config_that_asks_for_more_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        read_config(tiny_config() | change)
    assert any(found.startswith(problem) for found in caught.value.problems), caught.value.problems


def test_layers_that_all_see_everything_are_no_sliding_windows() -> None:
    read_config(tiny_config() | {"layer_types": ["full_attention"] * 2})


def test_heads_of_qwen3_have_128_numbers_unless_the_config_says_so() -> None:
    config = tiny_config("qwen3")
    del config["head_dim"]
    assert read_config(config).head_dim == 128


def test_defaults_are_those_of_transformers() -> None:
    config = tiny_config()
    for key in ("num_key_value_heads", "rms_norm_eps", "rope_theta", "tie_word_embeddings"):
        del config[key]
    shape = read_config(config)
    assert (shape.kv_heads, shape.head_dim, shape.rope_theta) == (4, 16, 10000.0)
    assert (shape.rms_norm_eps, shape.tied) == (1e-6, False)


def test_rope_theta_is_read_from_its_new_place_too() -> None:
    config = tiny_config()
    del config["rope_theta"]
    config["rope_parameters"] = {"rope_theta": 5e5, "rope_type": "default"}
    assert read_config(config).rope_theta == 5e5
