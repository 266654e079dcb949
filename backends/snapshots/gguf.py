"""A GGUF file as a source: names, layout and numbers as Hugging Face has them.

Floor 3, I/O.
llama.cpp renames every tensor, quantises most, and for Llama stores the rows of q and k in the
order its rotary kernel wants. All of it is undone here, so that engines know one layout only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
from numpy.typing import NDArray

from backends.snapshots.checksum import file_sha256
from backends.snapshots.gguf_tokenizer import tokenizer_json
from backends.snapshots.source import ImportFailed, Source, origin_text, some
from backends.snapshots.steps import Steps
from backends.snapshots.transformer import (
    CLASSES,
    ConfigInvalid,
    Transformer,
    missing_and_foreign,
    read_config,
)

_MAGIC: Final = b"GGUF"
_CLASSES: Final = {name: written for written, name in CLASSES.items()}
_DIVISORS: Final = "rope_freqs.weight"  # of the frequencies of rotary positions: Llama 3's scaling

# GGUF name (with `blk.N.` cut off for layers) -> Hugging Face name.
_WHOLE: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# Metadata key after the architecture's prefix -> key of config.json.
_CONFIG: Final = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}


def gguf_origin(file: Path, steps: Steps, kind: str = "gguf") -> str:
    """What a snapshot of `file` is made from."""
    with steps(f"checksum of {file.name}", file.stat().st_size) as on_bytes:
        return origin_text(kind, file.name, file_sha256(file, on_bytes))


def open_gguf(file: Path, origin: str) -> Source:
    """The model in `file`.

    Raises: ImportFailed, saying what in it is not understood.
    """
    reader = _reader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    stored = {hugging_face_name(tensor.name): tensor for tensor in reader.tensors}
    divisors = stored.pop(_DIVISORS, None)
    shapes = {name: tuple(int(n) for n in reversed(t.shape)) for name, t in stored.items()}
    scaling = _scaling(fields, None if divisors is None else _floats(divisors))
    shape = _shape(file, fields, shapes, scaling)

    def read(name: str) -> NDArray[np.float32]:
        values = _floats(stored[name])
        if shape.architecture == "llama" and name.endswith("self_attn.q_proj.weight"):
            return unpermute(values, shape.heads)
        if shape.architecture == "llama" and name.endswith("self_attn.k_proj.weight"):
            return unpermute(values, shape.kv_heads)
        return values

    return Source(
        origin=origin,
        shape=shape,
        tokenizer_json=tokenizer_json(fields, file.name),
        chat_template=fields.get("tokenizer.chat_template"),
        bos=fields.get("tokenizer.ggml.bos_token_id"),
        eos=_eos(fields, file),
        sampling={},
        read=read,
    )


def hugging_face_name(name: str) -> str:
    """The tensor's name in Hugging Face's layout; unknown names stay, and are refused by name."""
    if name in _WHOLE:
        return _WHOLE[name]
    block, _, rest = name.removeprefix("blk.").partition(".")
    part, _, kind = rest.partition(".")
    if name.startswith("blk.") and block.isdecimal() and part in _LAYER:
        return f"model.layers.{block}.{_LAYER[part]}.{kind}"
    return name


def unpermute(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows as rotate-half wants them, from pairs side by side (x0, x_half0, x1, x_half1, ...)."""
    out, width = rows.shape
    return rows.reshape(heads, out // heads // 2, 2, width).swapaxes(1, 2).reshape(out, width)


def _reader(file: Path) -> gguf.GGUFReader:
    with file.open("rb") as opened:
        if opened.read(len(_MAGIC)) != _MAGIC:
            raise ImportFailed(f"{file.name} is not a GGUF file")
    try:
        return gguf.GGUFReader(file)
    except (ValueError, IndexError, KeyError) as exc:  # what reading past the end of it raises
        raise ImportFailed(f"{file.name} is damaged or cut short: {exc}") from exc


def _shape(
    file: Path,
    fields: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    scaling: Mapping[str, Any],
) -> Transformer:
    architecture = fields.get("general.architecture")
    if architecture not in _CLASSES:
        known = ", ".join(_CLASSES)
        raise ImportFailed(f"{file.name} holds a {architecture} model; {known} are read")
    config: dict[str, Any] = {
        key: _as_written(fields[f"{architecture}.{name}"])
        for name, key in _CONFIG.items()
        if f"{architecture}.{name}" in fields
    }
    config["architectures"] = [_CLASSES[architecture]]
    config["tie_word_embeddings"] = "lm_head.weight" not in shapes
    # Not the length of the token list: some models pad their embedding.
    config["vocab_size"] = shapes.get("model.embed_tokens.weight", (None,))[0]
    config["rope_scaling"] = scaling
    try:
        shape = read_config(config)
    except ConfigInvalid as exc:
        raise ImportFailed(f"{file.name}: {exc}") from exc
    problems = list(missing_and_foreign(shape, shapes))
    turned = fields.get(f"{architecture}.rope.dimension_count", shape.head_dim)
    if turned != shape.head_dim:
        problems.append(f"rope.dimension_count: must be {shape.head_dim}, not {turned}")
    if problems:
        raise ImportFailed(f"{file.name}: {some(problems)}")
    return shape


def _scaling(fields: Mapping[str, Any], divisors: NDArray[np.float32] | None) -> dict[str, Any]:
    """Of rotary positions, as a config.json spells it; what is wrong with it is found there."""
    if divisors is not None:
        return {"rope_type": "divided", "divisors": [_as_written(float(n)) for n in divisors]}
    keys = f"{fields.get('general.architecture')}.rope"
    # Before there were kinds, files had a factor alone.
    factor = _as_written(fields.get(f"{keys}.scaling.factor", fields.get(f"{keys}.scale_linear")))
    kind = fields.get(f"{keys}.scaling.type", "linear" if factor else "none")
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return {}
    for name in ("attn_factor", "yarn_attn_factor", "yarn_ext_factor"):
        value = fields.get(f"{keys}.scaling.{name}", 1.0)
        if value != 1.0:
            raise ImportFailed(f"{keys}.scaling.{name}: must be 1, not {value}")
    found = {
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": fields.get(f"{keys}.scaling.original_context_length"),
        "beta_fast": _as_written(fields.get(f"{keys}.scaling.yarn_beta_fast")),
        "beta_slow": _as_written(fields.get(f"{keys}.scaling.yarn_beta_slow")),
    }
    return {key: value for key, value in found.items() if value is not None}


def _floats(tensor: Any) -> NDArray[np.float32]:
    return np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32)


def _as_written(value: Any) -> Any:
    """Floats are stored with 32 bits: 1e-05 comes back as 9.999999747378752e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _eos(fields: Mapping[str, Any], file: Path) -> tuple[int, ...]:
    # eot ends a turn where a model tells it from the end of a text.
    names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    found = dict.fromkeys(fields[name] for name in names if name in fields)
    if not found:
        raise ImportFailed(f"{file.name} names no end token, so no answer would ever end")
    return tuple(found)
