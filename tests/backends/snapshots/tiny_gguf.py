"""The tiny model as llama.cpp's converter would write it.

Floor 3, I/O.
Renamed tensors, q and k of Llama in pairs, and the tokenizer in the metadata: the same weights as
the tiny folder, so an import of either must give the same snapshot.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.tiny import (
    CHAT_TEMPLATE,
    CLASSES,
    SPECIALS,
    VOCAB,
    tiny_config,
    tiny_tokenizer,
    tiny_weights,
)

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_tiny_gguf(
    file: Path,
    architecture: str = "llama",
    tied: bool = True,
    quantised: bool = False,
    extra: dict[str, NDArray[np.float32]] | None = None,
    **fields: Any,
) -> Path:
    """`file`; `fields` are metadata that replace or (None) drop those of the tiny model."""
    config = tiny_config(architecture if architecture in CLASSES else "llama", tied)
    tensors = tiny_weights(config["model_type"], 0, tied) | (extra or {})
    return write_gguf(file, config | {"model_type": architecture}, tensors, quantised, **fields)


def write_gguf(
    file: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, NDArray[np.float32]],
    quantised: bool = False,
    **fields: Any,
) -> Path:
    """`file`, of a model as Hugging Face spells it, with the tiny model's tokenizer."""
    architecture = config["model_type"]
    writer = gguf.GGUFWriter(file, architecture)
    for name, value in (_fields(config) | fields).items():
        _add(writer, name, value)
    for name, values in {**tensors, **_divisors(config)}.items():
        stem, _, kind = name.rpartition(".")
        rows = values
        if architecture == "llama" and stem.endswith("q_proj"):
            rows = in_pairs(values, config["num_attention_heads"])
        if architecture == "llama" and stem.endswith("k_proj"):
            rows = in_pairs(values, config["num_key_value_heads"])
        renamed = f"{_renamed(stem)}.{kind}"
        if quantised and rows.ndim == 2:
            q8 = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(renamed, gguf.quantize(rows, q8), raw_dtype=q8)
        else:
            writer.add_tensor(renamed, np.ascontiguousarray(rows))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def in_pairs(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Row i and row i + half of each head next to each other, written out one by one."""
    width = len(rows) // heads
    order = [
        head * width + half * (width // 2) + i
        for head in range(heads)
        for i in range(width // 2)
        for half in (0, 1)
    ]
    return rows[order]


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    architecture = config["model_type"]
    model = json.loads(tiny_tokenizer().to_str())["model"]
    words = sorted(model["vocab"], key=model["vocab"].__getitem__)
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    return {
        f"{architecture}.block_count": config["num_hidden_layers"],
        f"{architecture}.context_length": config["max_position_embeddings"],
        f"{architecture}.embedding_length": config["hidden_size"],
        f"{architecture}.feed_forward_length": config["intermediate_size"],
        f"{architecture}.attention.head_count": config["num_attention_heads"],
        f"{architecture}.attention.head_count_kv": config["num_key_value_heads"],
        f"{architecture}.attention.key_length": head_dim,
        f"{architecture}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{architecture}.rope.freq_base": config["rope_theta"],
        f"{architecture}.rope.dimension_count": head_dim,
        **_scaling(architecture, config.get("rope_scaling") or {}),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (VOCAB - len(SPECIALS)),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": config.get("bos_token_id"),
        "tokenizer.ggml.eos_token_id": config["eos_token_id"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE if "bos_token_id" in config else None,
    }


def _scaling(architecture: str, rope: Mapping[str, Any]) -> dict[str, Any]:
    kind = rope.get("rope_type", rope.get("type"))
    if kind not in ("linear", "yarn"):
        return {}
    return {
        f"{architecture}.rope.scaling.type": kind,
        f"{architecture}.rope.scaling.factor": rope["factor"],
        f"{architecture}.rope.scaling.original_context_length": rope.get(
            "original_max_position_embeddings"
        ),
    }


def _divisors(config: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Llama 3's scaling is not in the metadata, but a tensor of what each frequency is divided by.

    By the three cases that its authors give: short, long and middling waves.
    """
    rope = config.get("rope_scaling") or {}
    if rope.get("rope_type") != "llama3":
        return {}
    trained = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    found = []
    for i in range(config["head_dim"] // 2):
        wave = 2 * math.pi * config["rope_theta"] ** (2 * i / config["head_dim"])
        if wave < trained / high:
            found.append(1.0)
        elif wave > trained / low:
            found.append(rope["factor"])
        else:
            smooth = (trained / wave - low) / (high - low)
            found.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return {"rope_freqs.weight": np.array(found, np.float32)}


def _add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(name, value)
        case int():
            writer.add_uint32(name, value)
        case float():
            writer.add_float32(name, value)
        case str():
            writer.add_string(name, value)
        case list():
            writer.add_array(name, value)


def _renamed(stem: str) -> str:
    if not stem.startswith("model.layers."):
        return NAMES.get(stem, stem)
    _, _, index, part = stem.split(".", 3)
    return f"blk.{index}.{NAMES.get(part, part)}"
