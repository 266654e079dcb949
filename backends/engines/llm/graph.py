"""The transformer as one MindSpore graph cell, with its KV cache.

Floor 3, no I/O.   Imported only once `runtime.prepare` has set MindSpore up.
One cell, and `construct` tells prefill from decode by the rank of `ids`: MindSpore compiles one
graph for each combination of shapes and constants, and all graphs of one cell share its parameters,
so weights and cache exist once. Only own methods may be called in it, no other cell's.
The cache is a matrix per layer, keys and values apart: row (h * slots + slot) * length + position
holds head h of that position.
"""

from dataclasses import fields
from typing import Any, Final

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from backends.engines.llm.weights import LayerWeights, Weights
from backends.snapshots.rope import frequencies, lengthened
from backends.snapshots.transformer import Transformer

LAYER_FIELDS: Final = tuple(field.name for field in fields(LayerWeights))
HIDDEN: Final = (
    -1e9
)  # added to a score that must not be seen: its weight after softmax is exactly 0


class Decoder(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """Weights, cache and the two graphs' code. Owner: the model thread."""

    def __init__(self, shape: Transformer, slots: int, length: int, dtype: ms.Type) -> None:
        super().__init__(auto_prefix=False)
        self.slots, self.length, self.dtype = slots, length, dtype
        self.layers, self.head_dim, self.eps = shape.layers, shape.head_dim, shape.rms_norm_eps
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.per_kv = shape.heads // shape.kv_heads
        self.feed_forward = shape.feed_forward
        self.biased, self.normed = shape.has_biases, shape.has_head_norms
        self.scale = shape.head_dim**-0.5
        cos, sin = rotary(shape, length)
        self.cos, self.sin = Tensor(cos, dtype), Tensor(sin, dtype)
        self.places = Tensor(np.arange(length, dtype=np.int32))
        self.slot_ids = Tensor(np.arange(slots, dtype=np.int32))
        head_rows = np.arange(shape.kv_heads, dtype=np.int32) * slots * length
        self.head_rows = Tensor(head_rows.reshape(-1, 1))
        self.seen, self.unseen = Tensor(0.0, dtype), Tensor(HIDDEN, dtype)
        self.matmul = ops.MatMul(transpose_b=True)
        self.bmm, self.bmm_t = ops.BatchMatMul(), ops.BatchMatMul(transpose_b=True)
        self.scatter = ops.ScatterUpdate()

    # --- filling, once, before the first call ---

    def fill(self, weights: Weights) -> None:
        """Take over the weights, layer by layer, under names that are unique, as must be."""
        filled: dict[str, list[Parameter]] = {
            field: []
            for field in LAYER_FIELDS
            if (field != "qkv_bias" or self.biased) and (field != "qk_norm" or self.normed)
        }
        for i in range(self.layers):
            layer = weights.layer(i)
            for field, parameters in filled.items():
                parameters.append(self._parameter(f"{field}.{i}", getattr(layer, field)))
        for field, parameters in filled.items():
            setattr(self, field, ParameterTuple(parameters))
        outer = weights.outer()
        self.embedding = self._parameter("embedding", outer.embedding)
        self.norm = self._parameter("norm", outer.norm)
        # A tied output matrix is the same parameter, not a copy.
        self.head = self.embedding if outer.head is None else self._parameter("head", outer.head)

    def allocate(self) -> None:
        """The cache, at its full size: nothing grows afterwards."""
        rows = self.kv_heads * self.slots * self.length
        empty = np.zeros((rows, self.head_dim), np.float32)
        self.keys = ParameterTuple(
            [self._parameter(f"keys.{i}", empty) for i in range(self.layers)]
        )
        self.values = ParameterTuple(
            [self._parameter(f"values.{i}", empty) for i in range(self.layers)]
        )

    def _parameter(self, name: str, values: NDArray[np.float32]) -> Parameter:
        return Parameter(Tensor(values, self.dtype), name=name, requires_grad=False)

    # --- the graphs ---

    def construct(self, ids: Any, positions: Any, slot: Any, last: Any, window: int) -> Any:
        """Logits [1, vocab] after ids [1, n] of one slot, or [slots, vocab] after ids [slots]."""
        if ids.ndim == 1:
            return self.decode(ids, positions, window)
        return self.prefill(ids[0], positions, slot, last)

    def decode(self, ids: Any, positions: Any, window: int) -> Any:
        """One position of each slot; attends to the first `window` positions (a constant)."""
        slots, kv_heads, head_dim = self.slots, self.kv_heads, self.head_dim
        cos = ops.gather(self.cos, positions, 0).reshape(slots, 1, head_dim)
        sin = ops.gather(self.sin, positions, 0).reshape(slots, 1, head_dim)
        rows = (
            self.head_rows + (self.slot_ids * self.length + positions).reshape(1, slots)
        ).reshape(-1)
        visible = self.places[:window].reshape(1, window) <= positions.reshape(slots, 1)
        mask = ops.where(visible, self.seen, self.unseen).reshape(1, slots, 1, window)
        x = ops.gather(self.embedding, ids, 0)
        for i in range(self.layers):
            q, k, v = self.project(x, i, slots, cos, sin)
            q = ops.transpose(q.reshape(slots, kv_heads, self.per_kv, head_dim), (1, 0, 2, 3))
            keys = self.scatter(self.keys[i], rows, k).reshape(
                kv_heads, slots, self.length, head_dim
            )
            values = self.scatter(self.values[i], rows, v).reshape(
                kv_heads, slots, self.length, head_dim
            )
            if window < self.length:
                keys = keys[:, :, :window]
                values = values[:, :, :window]
            scores = ops.softmax(self.bmm_t(q, keys) * self.scale + mask, -1)
            mixed = ops.transpose(self.bmm(scores, values), (1, 0, 2, 3))
            x = self.finish_layer(x, mixed.reshape(slots, self.heads * head_dim), i)
        return self.logits(x)

    def prefill(self, ids: Any, start: Any, slot: Any, last: Any) -> Any:
        """Positions start..start+last of one slot; attends to all of the slot's cache.

        `ids` is longer than last + 1 to fit a compiled shape. The rest of it must repeat the last
        id: it is computed at the last position too, and so writes there what is there anyway.
        """
        length, kv_heads, head_dim = self.length, self.kv_heads, self.head_dim
        count = ids.shape[0]
        positions = ops.minimum(self.places[:count], last) + start
        cos = ops.gather(self.cos, positions, 0).reshape(count, 1, head_dim)
        sin = ops.gather(self.sin, positions, 0).reshape(count, 1, head_dim)
        rows = (self.head_rows + (slot * length + positions).reshape(1, count)).reshape(-1)
        own = (self.head_rows + (slot * length + self.places).reshape(1, length)).reshape(-1)
        visible = self.places.reshape(1, length) <= positions.reshape(count, 1)
        mask = ops.where(visible, self.seen, self.unseen).reshape(1, 1, count, length)
        x = ops.gather(self.embedding, ids, 0)
        for i in range(self.layers):
            q, k, v = self.project(x, i, count, cos, sin)
            q = ops.transpose(q, (1, 0, 2)).reshape(kv_heads, self.per_kv * count, head_dim)
            keys = ops.gather(self.scatter(self.keys[i], rows, k), own, 0)
            values = ops.gather(self.scatter(self.values[i], rows, v), own, 0)
            scores = self.bmm_t(q, keys.reshape(kv_heads, length, head_dim)) * self.scale
            scores = scores.reshape(kv_heads, self.per_kv, count, length) + mask
            scores = ops.softmax(scores, -1).reshape(kv_heads, self.per_kv * count, length)
            mixed = self.bmm(scores, values.reshape(kv_heads, length, head_dim))
            mixed = ops.transpose(mixed.reshape(self.heads, count, head_dim), (1, 0, 2))
            x = self.finish_layer(x, mixed.reshape(count, self.heads * head_dim), i)
        return self.logits(ops.gather(x, last, 0))

    def project(self, x: Any, i: int, count: int, cos: Any, sin: Any) -> tuple[Any, Any, Any]:
        """Queries [count, heads, head_dim]; keys and values [kv_heads * count, head_dim]."""
        kv_heads, head_dim = self.kv_heads, self.head_dim
        rotated = self.heads + kv_heads  # queries and keys turn, values do not
        qkv = self.matmul(self.rms_norm(x, self.attention_norm[i]), self.qkv[i])
        if self.biased:
            qkv = qkv + self.qkv_bias[i]
        qk = qkv[:, : rotated * head_dim].reshape(count, rotated, head_dim)
        if self.normed:
            qk = self.rms_norm(qk, self.qk_norm[i])
        half = head_dim // 2
        qk = qk * cos + ops.concat((qk[..., half:], qk[..., :half]), -1) * sin
        k = ops.transpose(qk[:, self.heads :], (1, 0, 2)).reshape(kv_heads * count, head_dim)
        v = qkv[:, rotated * head_dim :].reshape(count, kv_heads, head_dim)
        v = ops.transpose(v, (1, 0, 2)).reshape(kv_heads * count, head_dim)
        return qk[:, : self.heads], k, v

    def finish_layer(self, x: Any, mixed: Any, i: int) -> Any:
        x = x + self.matmul(mixed, self.out[i])
        gate_up = self.matmul(self.rms_norm(x, self.feed_forward_norm[i]), self.gate_up[i])
        gate = gate_up[:, : self.feed_forward]
        up = gate_up[:, self.feed_forward :]
        return x + self.matmul(gate * ops.sigmoid(gate) * up, self.down[i])

    def logits(self, x: Any) -> Any:
        return ops.cast(self.matmul(self.rms_norm(x, self.norm), self.head), ms.float32)

    def rms_norm(self, x: Any, weight: Any) -> Any:
        # Composed, because `ops.rms_norm` has no CPU kernel.
        return x * ops.rsqrt(ops.mean(x * x, -1, True) + self.eps) * weight


def rotary(shape: Transformer, length: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosines and sines of each position's angles, [length, head_dim].

    The first half of the sines is negative: `x * cos + swap_halves(x) * sin` then is the rotation.
    """
    turns = np.array(frequencies(shape.rope_theta, shape.head_dim, shape.scaling))
    angles = np.arange(length)[:, None] * turns[None, :]
    cos = lengthened(shape.scaling) * np.concatenate([np.cos(angles), np.cos(angles)], axis=1)
    sin = lengthened(shape.scaling) * np.concatenate([-np.sin(angles), np.sin(angles)], axis=1)
    return cos.astype(np.float32), sin.astype(np.float32)
