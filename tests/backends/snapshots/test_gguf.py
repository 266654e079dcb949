import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.snapshots.gguf import gguf_origin, hugging_face_name, open_gguf, unpermute
from backends.snapshots.rope import Linear, Scaling, Yarn, frequencies
from backends.snapshots.source import ImportFailed, Source
from backends.snapshots.steps import silent
from backends.snapshots.transformer import read_config
from tests.backends.snapshots.tiny_gguf import in_pairs, write_tiny_gguf
from tests.tiny import CHAT_TEMPLATE, CONTEXT, tiny_config, tiny_weights


def _open(tmp_path: Path, **changes: Any) -> Source:
    return open_gguf(write_tiny_gguf(tmp_path / "tiny.gguf", **changes), "origin")


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_names_layout_and_config_are_hugging_faces(
    tmp_path: Path, architecture: str, tied: bool
) -> None:
    source = _open(tmp_path, architecture=architecture, tied=tied)
    assert source.shape == read_config(tiny_config(architecture, tied))
    for name, values in tiny_weights(architecture, 0, tied).items():
        np.testing.assert_array_equal(source.read(name), values, err_msg=name)


def test_quantised_weights_come_back_as_float32(tmp_path: Path) -> None:
    source = _open(tmp_path, quantised=True)
    for name, values in tiny_weights().items():
        found = source.read(name)
        assert found.dtype == np.float32
        step = np.abs(values).max() / 127 if values.ndim == 2 else 0.0  # of Q8_0, at its coarsest
        np.testing.assert_allclose(found, values, atol=step, rtol=0, err_msg=name)


def test_ids_template_and_origin_are_those_of_the_metadata(tmp_path: Path) -> None:
    source = _open(tmp_path)
    assert (source.bos, source.eos, source.chat_template) == (1, (2,), CHAT_TEMPLATE)
    assert source.origin == "origin"
    assert _open(tmp_path, **{"tokenizer.ggml.eot_token_id": 0}).eos == (2, 0)
    assert _open(tmp_path, **{"tokenizer.chat_template": None}).chat_template is None


def test_the_origin_names_the_file_and_its_checksum_but_no_folder(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    kind, name, checksum = gguf_origin(file, silent).split(" ")
    assert (kind, name) == ("gguf", "tiny.gguf")
    assert checksum.startswith("sha256:")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"architecture": "gemma"}, "holds a gemma model; llama, qwen2, qwen3 are read"),
        ({"llama.block_count": 3}, r"model\.layers\.2\.input_layernorm\.weight: is missing"),
        ({"llama.block_count": None}, "num_hidden_layers: must be"),
        ({"llama.attention.head_count": [4, 2]}, "num_attention_heads: must be"),
        ({"llama.rope.dimension_count": 8}, r"rope\.dimension_count: must be 16, not 8"),
        ({"llama.rope.scaling.type": "longrope"}, "rope_scaling: must be of rope_type"),
        ({"llama.rope.scaling.type": "yarn"}, r"rope_scaling\.factor: must be a number above 0"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": 0.5},
            r"yarn_ext_factor: must be 1, not 0\.5",
        ),
        ({"tokenizer.ggml.eos_token_id": None}, "names no end token"),
        ({"tokenizer.ggml.pre": "tekken"}, "has the pre-tokenizer 'tekken'"),
        (
            {"extra": {"rope_freqs.weight": np.ones(7, np.float32)}},
            "divisors: must be 8, not 7",
        ),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ImportFailed, match=problem):
        _open(tmp_path, **changes)


@pytest.mark.parametrize(
    ("fields", "scaling"),
    [
        ({"type": "none"}, None),
        ({"type": "linear", "factor": 1.0}, None),
        ({"type": "linear", "factor": 2.5}, Linear(2.5)),
        ({"factor": 2.5}, Linear(2.5)),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 32},
            Yarn(4.0, 32, 32.0, 1.0, 0.1 * math.log(4) + 1, True),
        ),
        (
            {"type": "yarn", "factor": 4.0, "yarn_beta_fast": 8.0, "yarn_beta_slow": 2.0},
            Yarn(4.0, CONTEXT, 8.0, 2.0, 0.1 * math.log(4) + 1, True),
        ),
    ],
)
def test_scaling_of_rotary_positions_is_in_the_metadata(
    tmp_path: Path, fields: dict[str, Any], scaling: Scaling | None
) -> None:
    named = {f"llama.rope.scaling.{key}": value for key, value in fields.items()}
    assert _open(tmp_path, **named).shape.scaling == scaling


def test_scaling_of_old_files_is_a_factor_alone(tmp_path: Path) -> None:
    assert _open(tmp_path, **{"llama.rope.scale_linear": 4.0}).shape.scaling == Linear(4.0)


def test_scaling_of_llama_3_is_a_tensor(tmp_path: Path) -> None:
    divisors = np.linspace(1, 8, 8, dtype=np.float32)
    source = _open(tmp_path, extra={"rope_freqs.weight": divisors})
    assert source.shape.scaling is not None
    turns = frequencies(1e4, 16, None)
    found = frequencies(1e4, 16, source.shape.scaling)
    np.testing.assert_allclose(found, np.array(turns) / divisors, rtol=1e-7)


def test_another_kind_of_file_is_told_apart_from_a_damaged_one(tmp_path: Path) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    whole = file.read_bytes()
    for part in (0.0005, 0.02, 0.5, 0.99):
        file.write_bytes(whole[: int(len(whole) * part)])
        with pytest.raises(ImportFailed, match="is damaged or cut short"):
            open_gguf(file, "origin")
    for content in (b"", b"GG", b"PK\3\4" + bytes(100)):
        file.write_bytes(content)
        with pytest.raises(ImportFailed, match="is not a GGUF file"):
            open_gguf(file, "origin")


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3))
def test_unpermute_undoes_pairs(heads: int, half: int, width: int) -> None:
    rows = np.arange(heads * 2 * half * width, dtype=np.float32).reshape(-1, width)
    np.testing.assert_array_equal(unpermute(in_pairs(rows, heads), heads), rows)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.12.ffn_gate.weight", "model.layers.12.mlp.gate_proj.weight"),
        ("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"),
        ("blk.0.ssm_a.weight", "blk.0.ssm_a.weight"),
        ("blk.x.attn_q.weight", "blk.x.attn_q.weight"),
        ("attn_q.weight", "attn_q.weight"),
    ],
)
def test_unknown_names_stay_as_they_are(theirs: str, ours: str) -> None:
    assert hugging_face_name(theirs) == ours
