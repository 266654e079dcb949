"""Tensors of a snapshot, fused, or the file that is wrong by name."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.engines.llm.weights import Weights, balanced
from backends.errors import SnapshotInvalid
from tests.tiny import HEADS, KV_HEADS, LAYERS, tiny_weights, write_tiny_folder

Floats = NDArray[np.float32]


def opened(folder: Path) -> Weights:
    return Weights(folder, lambda count: None)


def normed(rows: Floats, eps: float) -> Floats:
    found: Floats = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + eps)
    return found


def layer_normed(rows: Floats, eps: float) -> Floats:
    return normed(rows - rows.mean(axis=1, keepdims=True), eps)


@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1e-2, 1.0]))
def test_a_layer_norm_of_balanced_rows_is_the_rms_norm_of_the_rows(
    hidden: int, seed: int, eps: float
) -> None:
    rng = np.random.default_rng(seed)
    rows, matrix = rng.normal(0.5, 1.0, (2, 3, hidden)).astype(np.float32)
    np.testing.assert_allclose(balanced(rows).sum(axis=1), 0, atol=1e-4)
    wide = layer_normed(balanced(rows), eps * hidden / (hidden + 1))
    found = wide * (hidden / (hidden + 1)) ** 0.5 @ balanced(matrix).T
    np.testing.assert_allclose(found, normed(rows, eps) @ matrix.T, atol=1e-4 * hidden)


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_what_can_be_multiplied_in_advance_is(
    tmp_path: Path, architecture: str, shards: int
) -> None:
    tensors = tiny_weights(architecture)
    weights = opened(write_tiny_folder(tmp_path, architecture, shards=shards))
    shape = weights.shape
    rows = np.random.default_rng(1).normal(0.2, 1.0, (5, shape.hidden)).astype(np.float32)
    wide = layer_normed(balanced(rows), shape.rms_norm_eps * shape.hidden / (shape.hidden + 1))
    for i in range(LAYERS):
        layer, name = weights.layer(i), f"model.layers.{i}"

        def into(norm: str, *names: str, layer_name: str = name) -> Floats:
            matrix = np.concatenate([tensors[f"{layer_name}.{each}.weight"] for each in names])
            by = normed(rows, shape.rms_norm_eps) * tensors[f"{layer_name}.{norm}.weight"]
            found: Floats = by @ matrix.T
            return found

        qkv = into("input_layernorm", *(f"self_attn.{each}_proj" for each in "qkv"))
        scale = shape.head_dim**-0.5
        queries = slice(0, shape.heads * shape.head_dim)
        if architecture != "qwen3":
            qkv[:, queries] *= scale
        close(wide @ layer.qkv.T, qkv)
        close(wide @ layer.gate.T, into("post_attention_layernorm", "mlp.gate_proj"))
        close(wide @ layer.up.T, into("post_attention_layernorm", "mlp.up_proj"))
        out = tensors[f"{name}.self_attn.o_proj.weight"]
        close(layer.out, balanced(out.T).T)
        close(layer.down, balanced(tensors[f"{name}.mlp.down_proj.weight"].T).T)
        assert (layer.qkv_bias is None) == (architecture != "qwen2")
        if layer.qkv_bias is not None:
            biases = [tensors[f"{name}.self_attn.{each}_proj.bias"] for each in "qkv"]
            close(layer.qkv_bias, np.concatenate([biases[0] * scale, *biases[1:]]))
        assert (layer.qk_norm is None) == (architecture != "qwen3")
        if layer.qk_norm is not None:
            norms = [tensors[f"{name}.self_attn.{each}_norm.weight"] for each in "qk"]
            wanted = [norms[0] * scale] * HEADS + [norms[1]] * KV_HEADS
            close(layer.qk_norm, np.stack(wanted))


def close(found: Floats, wanted: Floats) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_rows_of_the_embedding_are_balanced_on_their_way_in_and_back_on_their_way_out(
    tmp_path: Path,
) -> None:
    weights = opened(write_tiny_folder(tmp_path))
    outer, shape = weights.outer(), weights.shape
    rows = outer.embedding[:7]
    close(rows @ outer.balance.T, balanced(rows))
    wide = layer_normed(balanced(rows), shape.rms_norm_eps * shape.hidden / (shape.hidden + 1))
    norm = tiny_weights()["model.norm.weight"]
    close(wide @ outer.norm.T, normed(rows, shape.rms_norm_eps) * norm)


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_output_matrix_is_not_read_again(tmp_path: Path, tied: bool) -> None:
    outer = opened(write_tiny_folder(tmp_path, tied=tied)).outer()
    assert (outer.head is None) == tied
    np.testing.assert_array_equal(
        outer.embedding, tiny_weights(tied=tied)["model.embed_tokens.weight"]
    )


def test_every_byte_of_every_tensor_is_reported_once(tmp_path: Path) -> None:
    counts: list[int] = []
    weights = Weights(write_tiny_folder(tmp_path), counts.append)
    weights.outer()
    for i in range(LAYERS):
        weights.layer(i)
    assert sum(counts) == sum(values.nbytes for values in tiny_weights().values())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_stored_in_half_the_bytes_are_float32_in_memory(tmp_path: Path, dtype: str) -> None:
    layer = opened(write_tiny_folder(tmp_path, dtype=dtype)).layer(0)
    assert layer.qkv.dtype == np.float32


def test_a_file_that_is_missing_cut_or_foreign_is_named(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path)
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for broken, words in (
        (whole[:100], "cut short"),
        (whole[:-1], "cut short"),
        (b"", "model.safe"),
    ):
        file.write_bytes(broken)
        with pytest.raises(SnapshotInvalid, match=words):
            opened(folder)
    file.unlink()
    with pytest.raises(SnapshotInvalid, match=r"no \.safetensors file"):
        opened(folder)


def test_tensors_that_do_not_belong_to_the_config_are_all_named(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": LAYERS + 1}))
    with pytest.raises(SnapshotInvalid, match=r"layers\.2\.mlp\.up_proj\.weight: is missing"):
        opened(folder)


@pytest.mark.parametrize("text", ["{", "{}", '{"architectures": ["BertModel"]}'])
def test_a_config_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    folder = write_tiny_folder(tmp_path)
    (folder / "config.json").write_text(text)
    with pytest.raises(SnapshotInvalid, match=r"config\.json"):
        opened(folder)
