"""Tensors of a snapshot, fused, or the file that is wrong by name."""

import json
from pathlib import Path

import numpy as np
import pytest

from backends.engines.llm.weights import Weights
from backends.errors import SnapshotInvalid
from tests.tiny import HEADS, KV_HEADS, LAYERS, tiny_weights, write_tiny_folder


def opened(folder: Path) -> Weights:
    return Weights(folder, lambda count: None)


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_matrices_that_are_multiplied_together_are_one(
    tmp_path: Path, architecture: str, shards: int
) -> None:
    tensors = tiny_weights(architecture)
    weights = opened(write_tiny_folder(tmp_path, architecture, shards=shards))
    for i in range(LAYERS):
        layer, name = weights.layer(i), f"model.layers.{i}"
        q, k, v = (tensors[f"{name}.self_attn.{each}_proj.weight"] for each in "qkv")
        gate, up = (tensors[f"{name}.mlp.{each}_proj.weight"] for each in ("gate", "up"))
        np.testing.assert_array_equal(layer.qkv, np.concatenate([q, k, v]))
        np.testing.assert_array_equal(layer.gate_up, np.concatenate([gate, up]))
        np.testing.assert_array_equal(layer.down, tensors[f"{name}.mlp.down_proj.weight"])
        np.testing.assert_array_equal(layer.out, tensors[f"{name}.self_attn.o_proj.weight"])
        assert (layer.qkv_bias is None) == (architecture != "qwen2")
        assert (layer.qk_norm is None) == (architecture != "qwen3")
        if layer.qk_norm is not None:
            norms = [tensors[f"{name}.self_attn.{each}_norm.weight"] for each in "qk"]
            wanted = [norms[0]] * HEADS + [norms[1]] * KV_HEADS
            np.testing.assert_array_equal(layer.qk_norm, np.stack(wanted))


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
