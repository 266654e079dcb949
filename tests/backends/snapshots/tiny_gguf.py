"""The tiny model as llama.cpp's converter would write it.

Floor 3, I/O.
Renamed tensors, q and k of Llama in pairs, and the tokenizer in the metadata: the same weights as
the tiny folder, so an import of either must give the same snapshot.
"""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.tiny import (
    CHAT_TEMPLATE,
    CONTEXT,
    EOS_ID,
    FEED_FORWARD,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    SPECIALS,
    VOCAB,
    tiny_tokenizer,
    tiny_weights,
)

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
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
    writer = gguf.GGUFWriter(file, architecture)
    for name, value in (_fields(architecture) | fields).items():
        _add(writer, name, value)
    weights = tiny_weights(architecture, 0, tied)
    for name, values in (weights | (extra or {})).items():
        stem, _, kind = name.rpartition(".")
        rows = values
        if architecture == "llama" and stem.endswith("q_proj"):
            rows = in_pairs(values, HEADS)
        if architecture == "llama" and stem.endswith("k_proj"):
            rows = in_pairs(values, KV_HEADS)
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


def _fields(architecture: str) -> dict[str, Any]:
    model = json.loads(tiny_tokenizer().to_str())["model"]
    return {
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": CONTEXT,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": FEED_FORWARD,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 10000.0,
        f"{architecture}.rope.dimension_count": HIDDEN // HEADS,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": sorted(model["vocab"], key=model["vocab"].__getitem__),
        "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (VOCAB - len(SPECIALS)),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": EOS_ID,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


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
