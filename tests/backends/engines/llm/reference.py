"""The transformer from its definition, in plain numpy: what the graph is checked against.

One sequence, no cache, one head at a time, float64. It shares no line with the graph, and reads
the tensors under their Hugging Face names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Tensors = Mapping[str, NDArray[np.float32]]


def logits(config: Mapping[str, Any], tensors: Tensors, ids: Sequence[int]) -> Floats:
    """Shape: [len(ids), vocab]; row i is after ids[: i + 1]."""
    eps = config["rms_norm_eps"]
    x = _tensor(tensors, "model.embed_tokens.weight")[list(ids)]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        normed = _rms(x, _tensor(tensors, f"{layer}.input_layernorm.weight"), eps)
        x = x + _attention(config, tensors, f"{layer}.self_attn", normed)
        normed = _rms(x, _tensor(tensors, f"{layer}.post_attention_layernorm.weight"), eps)
        gate = _linear(tensors, f"{layer}.mlp.gate_proj", normed)
        up = _linear(tensors, f"{layer}.mlp.up_proj", normed)
        x = x + _linear(tensors, f"{layer}.mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
    x = _rms(x, _tensor(tensors, "model.norm.weight"), eps)
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return _linear(tensors, head, x)


def _attention(config: Mapping[str, Any], tensors: Tensors, name: str, x: Floats) -> Floats:
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", config["hidden_size"] // heads)
    q = _linear(tensors, f"{name}.q_proj", x)
    k = _linear(tensors, f"{name}.k_proj", x)
    v = _linear(tensors, f"{name}.v_proj", x)
    outputs = []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        shared = head // (heads // kv_heads)
        theirs = slice(shared * size, (shared + 1) * size)
        queries = _rotate(_head(config, tensors, f"{name}.q_norm", q[:, own]), config["rope_theta"])
        keys = _rotate(_head(config, tensors, f"{name}.k_norm", k[:, theirs]), config["rope_theta"])
        scores = queries @ keys.T / np.sqrt(size)
        scores[np.triu_indices(len(x), 1)] = -np.inf  # nothing sees what comes after it
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        outputs.append(weights / weights.sum(axis=1, keepdims=True) @ v[:, theirs])
    return _linear(tensors, f"{name}.o_proj", np.concatenate(outputs, axis=1))


def _head(config: Mapping[str, Any], tensors: Tensors, name: str, x: Floats) -> Floats:
    """Normed where the family does it (Qwen3)."""
    weight = f"{name}.weight"
    return _rms(x, _tensor(tensors, weight), config["rms_norm_eps"]) if weight in tensors else x


def _rotate(x: Floats, theta: float) -> Floats:
    """Each pair (x[j], x[j + half]) as a complex number, turned by position / theta^(j / half)."""
    half = x.shape[1] // 2
    angles = np.outer(np.arange(len(x)), theta ** (-np.arange(half) / half))
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * angles)
    rotated: Floats = np.concatenate([turned.real, turned.imag], axis=1)
    return rotated


def _rms(x: Floats, weight: Floats, eps: float) -> Floats:
    normed: Floats = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps) * weight
    return normed


def _linear(tensors: Tensors, name: str, x: Floats) -> Floats:
    out: Floats = x @ _tensor(tensors, f"{name}.weight").T
    return out + _tensor(tensors, f"{name}.bias") if f"{name}.bias" in tensors else out


def _tensor(tensors: Tensors, name: str) -> Floats:
    return tensors[name].astype(np.float64)
