"""The weights of a snapshot, fused the way the graph wants them.

Floor 3, I/O.
Q, K and V are one matrix in the graph, and so are gate and up: fewer, larger multiplications. One
layer is in memory beside what the graph holds already.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.errors import SnapshotInvalid
from backends.snapshots.source import ImportFailed
from backends.snapshots.tensorfile import TensorFile
from backends.snapshots.transformer import (
    ConfigInvalid,
    Transformer,
    missing_and_foreign,
    read_config,
)

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    attention_norm: Floats
    qkv: Floats  # [(heads + 2 kv_heads) * head_dim, hidden]
    qkv_bias: Floats | None  # Qwen2 has one
    qk_norm: Floats | None  # [heads + kv_heads, head_dim]; Qwen3 has one
    out: Floats
    feed_forward_norm: Floats
    gate_up: Floats  # [2 * feed_forward, hidden]
    down: Floats


@dataclass(frozen=True, slots=True)
class OuterWeights:
    embedding: Floats
    norm: Floats
    head: Floats | None  # None: the embedding is the output matrix too


class Weights:
    """The tensors of one snapshot folder by their Hugging Face names, whatever files hold them."""

    def __init__(self, folder: Path, on_bytes: Callable[[int], None]) -> None:
        """Raises: SnapshotInvalid, naming the file or every tensor that is wrong."""
        self.shape = _read_shape(folder / "config.json")
        self._on_bytes = on_bytes
        self._files: dict[str, TensorFile] = {}
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise SnapshotInvalid(f"{folder}: holds no .safetensors file; import it again")
        for path in paths:
            file = _open(path)
            self._files.update(dict.fromkeys(file.shapes, file))
        shapes = {name: file.shapes[name] for name, file in self._files.items()}
        problems = list(missing_and_foreign(self.shape, shapes))
        if problems:
            raise SnapshotInvalid(f"{folder}: {'; '.join(problems)}")

    def layer(self, i: int) -> LayerWeights:
        prefix = f"model.layers.{i}"
        attention, gated = f"{prefix}.self_attn", f"{prefix}.mlp"
        biased, normed = self.shape.has_biases, self.shape.has_head_norms
        return LayerWeights(
            attention_norm=self._read(f"{prefix}.input_layernorm.weight"),
            qkv=self._fused([f"{attention}.{name}_proj.weight" for name in "qkv"]),
            qkv_bias=self._fused([f"{attention}.{n}_proj.bias" for n in "qkv"]) if biased else None,
            qk_norm=self._head_norms(attention) if normed else None,
            out=self._read(f"{attention}.o_proj.weight"),
            feed_forward_norm=self._read(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=self._fused([f"{gated}.gate_proj.weight", f"{gated}.up_proj.weight"]),
            down=self._read(f"{gated}.down_proj.weight"),
        )

    def outer(self) -> OuterWeights:
        return OuterWeights(
            embedding=self._read("model.embed_tokens.weight"),
            norm=self._read("model.norm.weight"),
            head=None if self.shape.tied else self._read("lm_head.weight"),
        )

    def _head_norms(self, attention: str) -> Floats:
        """A row for each head, so that queries and keys are one multiplication."""
        q, k = (self._read(f"{attention}.{name}_norm.weight") for name in "qk")
        return np.concatenate(
            [np.tile(q, (self.shape.heads, 1)), np.tile(k, (self.shape.kv_heads, 1))]
        )

    def _fused(self, names: list[str]) -> Floats:
        return np.concatenate([self._read(name) for name in names])

    def _read(self, name: str) -> Floats:
        values = self._files[name].read(name)
        self._on_bytes(values.nbytes)
        return values


def _read_shape(path: Path) -> Transformer:
    try:
        return read_config(json.loads(path.read_bytes()))
    except ConfigInvalid as exc:
        raise SnapshotInvalid(f"{path}: {exc}") from exc
    except (OSError, ValueError) as exc:
        raise SnapshotInvalid(f"{path}: cannot be read: {exc}; import it again") from exc


def _open(path: Path) -> TensorFile:
    try:
        return TensorFile(path)
    except (ImportFailed, OSError) as exc:
        raise SnapshotInvalid(f"{path}: {exc}; import it again") from exc
