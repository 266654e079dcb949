"""The transformer as one MindSpore graph cell, with its KV cache.

Floor 3, no I/O.   Imported only once `runtime.prepare` has set MindSpore up.
One cell, and `construct` tells prefill from decode by the rank of `ids`: MindSpore compiles one
graph for each combination of shapes and constants, and all graphs of one cell share its parameters,
so weights and cache exist once. Only own methods may be called in it, no other cell's.
Every operation costs microseconds beside its work, and a slice copies: the code has few of them.
The cache of a layer is in parts, keys and values apart, each part for the positions from one decode
window's end to the next: a short window reads whole parameters, where a slice would copy them. Row
(slot * kv_heads + h) * rows + r of a part holds head h of the part's r-th position. If there are
several parts, the last row of each is spare: who stands in another part writes there.
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
NOWHERE: Final = 2**31 - 1  # the spare row's position: seen from none


class Decoder(nn.Cell):  # type: ignore[misc]  # MindSpore has no types
    """Weights, cache and the two graphs' code. Owner: the model thread."""

    def __init__(
        self, shape: Transformer, slots: int, windows: tuple[int, ...], dtype: ms.Type
    ) -> None:
        """`windows` ascend; the last is the length of a slot."""
        super().__init__(auto_prefix=False)
        self.slots, self.length, self.dtype = slots, windows[-1], dtype
        self.layers, self.head_dim, self.eps = shape.layers, shape.head_dim, shape.rms_norm_eps
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.per_kv = shape.heads // shape.kv_heads
        wide = shape.hidden + 1  # of a residual row: see `weights.balanced`
        self.biased, self.normed = shape.has_biases, shape.has_head_norms
        cos, sin = rotary(shape, self.length)
        self.cos, self.sin = Tensor(cos, dtype), Tensor(sin, dtype)
        same = np.eye(shape.head_dim, dtype=np.float32)
        self.same = Tensor(same, dtype)
        self.swapped = Tensor(np.roll(same, shape.head_dim // 2, axis=0), dtype)
        self.edges = (0, *windows)
        self.parts = len(windows)
        self.rows = tuple(
            end - start + (self.parts > 1)
            for start, end in zip(self.edges, self.edges[1:], strict=False)
        )
        self.places = tuple(Tensor(places) for places in self._places())
        heads = np.arange(slots * shape.kv_heads, dtype=np.int32).reshape(slots, shape.kv_heads)
        self.firsts = tuple(Tensor(heads * rows) for rows in self.rows)
        self.steps = Tensor(np.arange(self.length, dtype=np.int32))
        self.seen, self.unseen = Tensor(0.0, dtype), Tensor(HIDDEN, dtype)
        self.matmul = ops.MatMul(transpose_b=True)
        self.bmm, self.bmm_t = ops.BatchMatMul(), ops.BatchMatMul(transpose_b=True)
        self.scatter = ops.ScatterUpdate()
        eps = shape.rms_norm_eps * shape.hidden / wide
        self.layer_norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=eps)
        self.ones, self.zeros = Tensor(np.ones(wide), dtype), Tensor(np.zeros(wide), dtype)

    def _places(self) -> list[NDArray[np.int32]]:
        """Of each part, the positions that its rows hold."""
        found = []
        for start, end, rows in zip(self.edges, self.edges[1:], self.rows, strict=False):
            places = np.full(rows, NOWHERE, np.int32)
            places[: end - start] = np.arange(start, end)
            found.append(places)
        return found

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
        self.balance = self._parameter("balance", outer.balance)
        self.norm = self._parameter("norm", outer.norm)
        # A tied output matrix is the same parameter, not a copy.
        self.head = self.embedding if outer.head is None else self._parameter("head", outer.head)

    def allocate(self) -> None:
        """The cache, at its full size: nothing grows afterwards."""
        self.keys, self.values = self._cache("keys"), self._cache("values")

    def clear(self, slot: int) -> None:
        """Zeros in the slot's rows, outside of the graphs. Rare: it copies the whole cache."""
        for at, parameter in enumerate((*self.keys, *self.values)):
            rows = self.kv_heads * self.rows[at % self.parts]
            values = parameter.asnumpy().copy()
            values[slot * rows : (slot + 1) * rows] = 0
            parameter.set_data(Tensor(values, self.dtype))

    def _cache(self, name: str) -> ParameterTuple:
        """Part p of layer i is at i * parts + p."""
        empty = [
            np.zeros((self.slots * self.kv_heads * rows, self.head_dim), np.float32)
            for rows in self.rows
        ]
        return ParameterTuple(
            [
                self._parameter(f"{name}.{i}.{part}", values)
                for i in range(self.layers)
                for part, values in enumerate(empty)
            ]
        )

    def _parameter(self, name: str, values: NDArray[np.float32]) -> Parameter:
        return Parameter(Tensor(values, self.dtype), name=name, requires_grad=False)

    # --- the graphs ---

    def construct(self, ids: Any, positions: Any, slot: Any, last: Any, parts: int) -> Any:
        """Logits [1, vocab] after ids [1, n] of one slot, or [slots, vocab] after ids [slots]."""
        if ids.ndim == 1:
            return self.decode(ids, positions, parts)
        return self.prefill(ids[0], positions, slot, last, parts)

    def decode(self, ids: Any, positions: Any, parts: int) -> Any:
        """One position of each slot; attends to the first `parts` parts (a constant)."""
        slots = self.slots
        turns = self.turns(positions, slots)
        rows: Any = ()
        masks: Any = ()
        for part in range(parts):
            rows += (self.rows_of(part, positions, self.firsts[part], slots),)
            masks += (self.mask(part, positions, slots).reshape(slots, 1, 1, self.rows[part]),)
        x = self.matmul(ops.gather(self.embedding, ids, 0), self.balance)
        for i in range(self.layers):
            q, k, v = self.project(x, i, slots, turns)
            q = q.reshape(slots, self.kv_heads, self.per_kv, self.head_dim)
            keys: Any = ()
            values: Any = ()
            for part in range(parts):
                at = i * self.parts + part
                whole = (slots, self.kv_heads, self.rows[part], self.head_dim)
                keys += (self.scatter(self.keys[at], rows[part], k).reshape(whole),)
                values += (self.scatter(self.values[at], rows[part], v).reshape(whole),)
            mixed = self.attend(q, keys, values, masks)
            x = self.finish_layer(x, mixed.reshape(slots, self.heads * self.head_dim), i)
        return self.logits(x)

    def prefill(self, ids: Any, start: Any, slot: Any, last: Any, parts: int) -> Any:
        """Positions start..start+last of one slot; attends to its first `parts` parts, in one.

        `ids` is longer than last + 1 to fit a compiled shape. The rest of it must repeat the last
        id: it is computed at the last position too, and so writes there what is there anyway.
        """
        count, queries = ids.shape[0], self.per_kv * ids.shape[0]
        positions = ops.minimum(self.steps[:count], last) + start
        turns = self.turns(positions, count)
        rows: Any = ()
        masks: Any = ()
        for part in range(parts):
            firsts = ops.gather(self.firsts[part], slot, 0)
            rows += (self.rows_of(part, positions, firsts, count),)
            masks += (self.mask(part, positions, count),)
        # As large as the scores: an addition that has to stretch one side takes thrice as long.
        mask = ops.tile(joined(masks, -1), (self.heads, 1))
        mask = mask.reshape(1, self.kv_heads, queries, -1)
        x = self.matmul(ops.gather(self.embedding, ids, 0), self.balance)
        for i in range(self.layers):
            q, k, v = self.project(x, i, count, turns)
            q = ops.transpose(q, (1, 0, 2)).reshape(1, self.kv_heads, queries, self.head_dim)
            keys: Any = ()
            values: Any = ()
            for part in range(parts):
                at = i * self.parts + part
                keys += (self.own(self.scatter(self.keys[at], rows[part], k), slot, part),)
                values += (self.own(self.scatter(self.values[at], rows[part], v), slot, part),)
            # Here the parts are smaller than their scores: cheaper to join than those to part.
            mixed = self.attend(q, (joined(keys, 2),), (joined(values, 2),), (mask,))
            mixed = ops.transpose(mixed.reshape(self.heads, count, self.head_dim), (1, 0, 2))
            x = self.finish_layer(x, mixed.reshape(count, self.heads * self.head_dim), i)
        return self.logits(ops.gather(x, last, 0))

    def rows_of(self, part: int, positions: Any, firsts: Any, count: int) -> Any:
        """Where each position's keys go, head by head: [count * kv_heads]."""
        rows = positions - self.edges[part]
        if self.parts > 1:
            inside = ops.logical_and(rows >= 0, positions < self.edges[part + 1])
            rows = ops.where(inside, rows, ops.full_like(rows, self.rows[part] - 1))
        return (firsts + rows.reshape(count, 1)).reshape(-1)

    def mask(self, part: int, positions: Any, count: int) -> Any:
        visible = self.places[part].reshape(1, self.rows[part]) <= positions.reshape(count, 1)
        return ops.where(visible, self.seen, self.unseen)

    def own(self, part_of_all: Any, slot: Any, part: int) -> Any:
        """The slot's rows of a part, [1, kv_heads, rows, head_dim]."""
        rows, row = self.rows[part], self.kv_heads * self.rows[part] * self.head_dim
        one = ops.gather(part_of_all.reshape(self.slots, row), slot, 0)
        return one.reshape(1, self.kv_heads, rows, self.head_dim)

    def turns(self, positions: Any, count: int) -> Any:
        """A matrix for each position that rotates a head: one multiplication for all of them."""
        cos = ops.gather(self.cos, positions, 0).reshape(count, 1, self.head_dim)
        sin = ops.gather(self.sin, positions, 0).reshape(count, 1, self.head_dim)
        return self.same * cos + self.swapped * sin

    def project(self, x: Any, i: int, count: int, turns: Any) -> tuple[Any, Any, Any]:
        """Queries [count, heads, head_dim]; keys and values [count * kv_heads, head_dim]."""
        heads, kv_heads, head_dim = self.heads, self.kv_heads, self.head_dim
        rotated = heads + kv_heads  # queries and keys turn, values do not
        qkv = self.matmul(self.rms_norm(x), self.qkv[i])
        if self.biased:
            qkv = qkv + self.qkv_bias[i]
        qk = qkv.reshape(count, rotated + kv_heads, head_dim)  # values too: a slice costs more
        if self.normed:
            qk = qk[:, :rotated]
            qk = qk * ops.rsqrt(ops.mean(qk * qk, -1, True) + self.eps) * self.qk_norm[i]
        qk = self.bmm(qk, turns)
        k = qk[:, heads:rotated].reshape(count * kv_heads, head_dim)
        v = qkv[:, rotated * head_dim :].reshape(count * kv_heads, head_dim)
        return qk[:, :heads], k, v

    def attend(self, q: Any, keys: Any, values: Any, masks: Any) -> Any:
        """Shape: q and the result [n, kv_heads, queries, head_dim]; the rest a part each."""
        if len(keys) == 1:
            return self.bmm(ops.softmax(self.bmm_t(q, keys[0]) + masks[0], -1), values[0])
        scores: Any = ()
        for part in range(len(keys)):
            scores += (self.bmm_t(q, keys[part]) + masks[part],)
        shares = ops.softmax(ops.concat(scores, -1), -1)
        mixed = self.bmm(shares[..., : self.rows[0]], values[0])
        end = self.rows[0]
        for part in range(1, len(keys)):
            mixed = mixed + self.bmm(shares[..., end : end + self.rows[part]], values[part])
            end = end + self.rows[part]
        return mixed

    def finish_layer(self, x: Any, mixed: Any, i: int) -> Any:
        x = x + self.matmul(mixed, self.out[i])
        normed = self.rms_norm(x)
        gate, up = self.matmul(normed, self.gate[i]), self.matmul(normed, self.up[i])
        return x + self.matmul(ops.silu(gate) * up, self.down[i])

    def logits(self, x: Any) -> Any:
        normed = self.matmul(self.rms_norm(x), self.norm)
        return ops.cast(self.matmul(normed, self.head), ms.float32)

    def rms_norm(self, x: Any) -> Any:
        # Rows are balanced, their mean is 0. (`ops.rms_norm` has no CPU kernel.)
        return self.layer_norm(x, self.ones, self.zeros)[0]


def joined(parts: Any, axis: int) -> Any:
    """Compiled into the graphs."""
    return parts[0] if len(parts) == 1 else ops.concat(parts, axis)


def rotary(shape: Transformer, length: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosines and sines of each position's angles, [length, head_dim].

    The first half of the sines is negative: `x * cos + swap_halves(x) * sin` then is the rotation.
    """
    turns = np.array(frequencies(shape.rope_theta, shape.head_dim, shape.scaling))
    angles = np.arange(length)[:, None] * turns[None, :]
    cos = lengthened(shape.scaling) * np.concatenate([np.cos(angles), np.cos(angles)], axis=1)
    sin = lengthened(shape.scaling) * np.concatenate([-np.sin(angles), np.sin(angles)], axis=1)
    return cos.astype(np.float32), sin.astype(np.float32)
