"""The weights of a snapshot, the way the graph wants them.

Floor 3, I/O.
A step on a CPU pays microseconds for each operation, so what can be multiplied in advance is: Q, K
and V are one matrix; the weights of norms and the scale of scores are in the matrices; and rows
are balanced, which makes an RMS norm the one operation LayerNorm (see `balanced`). Gate and up stay
apart: taking their product apart again costs more. One layer is in memory beside what the graph
holds already.
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
    qkv: Floats  # [(heads + 2 kv_heads) * head_dim, hidden + 1]
    qkv_bias: Floats | None  # Qwen2 has one
    qk_norm: Floats | None  # [heads + kv_heads, head_dim]; Qwen3 has one
    out: Floats  # [hidden + 1, heads * head_dim]
    gate: Floats  # [feed_forward, hidden + 1]
    up: Floats
    down: Floats  # [hidden + 1, feed_forward]


@dataclass(frozen=True, slots=True)
class OuterWeights:
    embedding: Floats
    balance: Floats  # [hidden + 1, hidden]: makes rows of the embedding balanced
    norm: Floats  # [hidden, hidden + 1]: the last norm, of rows as the output matrix wants them
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
        into_attention = self._norm(f"{prefix}.input_layernorm.weight")
        into_gated = self._norm(f"{prefix}.post_attention_layernorm.weight")
        scaled = self._scaled()
        qkv = self._fused([f"{attention}.{name}_proj.weight" for name in "qkv"])
        biases = [f"{attention}.{name}_proj.bias" for name in "qkv"]
        return LayerWeights(
            qkv=balanced(qkv * into_attention * scaled[:, None]),
            qkv_bias=self._fused(biases) * scaled if self.shape.has_biases else None,
            qk_norm=self._head_norms(attention) if self.shape.has_head_norms else None,
            out=balanced(self._read(f"{attention}.o_proj.weight").T).T,
            gate=balanced(self._read(f"{gated}.gate_proj.weight") * into_gated),
            up=balanced(self._read(f"{gated}.up_proj.weight") * into_gated),
            down=balanced(self._read(f"{gated}.down_proj.weight").T).T,
        )

    def outer(self) -> OuterWeights:
        balance = balanced(np.eye(self.shape.hidden, dtype=np.float32))
        return OuterWeights(
            embedding=self._read("model.embed_tokens.weight"),
            balance=balance.T,
            norm=self._norm("model.norm.weight")[:, None] * balance,
            head=None if self.shape.tied else self._read("lm_head.weight"),
        )

    def _norm(self, name: str) -> Floats:
        """Times the root of the share of numbers: LayerNorm takes a mean over one more."""
        hidden = self.shape.hidden
        return self._read(name) * np.float32((hidden / (hidden + 1)) ** 0.5)

    def _scaled(self) -> Floats:
        """A factor for each row of Q, K and V: scores are divided by the root of `head_dim`."""
        shape = self.shape
        rows = np.ones((shape.heads + 2 * shape.kv_heads) * shape.head_dim, np.float32)
        if not shape.has_head_norms:  # those undo whatever their input is times
            rows[: shape.heads * shape.head_dim] = shape.head_dim**-0.5
        return rows

    def _head_norms(self, attention: str) -> Floats:
        """A row for each head, so that queries and keys are one multiplication."""
        q, k = (self._read(f"{attention}.{name}_norm.weight") for name in "qk")
        q = q * np.float32(self.shape.head_dim**-0.5)
        return np.concatenate(
            [np.tile(q, (self.shape.heads, 1)), np.tile(k, (self.shape.kv_heads, 1))]
        )

    def _fused(self, names: list[str]) -> Floats:
        return np.concatenate([self._read(name) for name in names])

    def _read(self, name: str) -> Floats:
        values = self._files[name].read(name)
        self._on_bytes(values.nbytes)
        return values


def balanced(rows: Floats) -> Floats:
    """Each row with one number more, of the same length and with the sum 0.

    Where that is done to all that a residual row is made of, and to all that it is multiplied with,
    products are what they were, and LayerNorm, which first takes the mean off, finds none to take.
    It is a reflection of space: the new axis goes to the direction of equal numbers. The sum s of
    n - 1 numbers becomes s / sqrt(n) on the new axis, and s / (n - sqrt(n)) less on the others.
    """
    n = rows.shape[1] + 1
    sums = rows.sum(axis=1, keepdims=True, dtype=np.float64)
    wide = np.concatenate([rows - sums / (n - n**0.5), sums / n**0.5], axis=1)
    made: Floats = wide.astype(np.float32)
    return made


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
