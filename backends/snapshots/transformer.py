"""What a Llama, Qwen2 or Qwen3 model consists of: its config, its tensors, the memory it takes.

Floor 1, pure.
The families are one computation: RMS norms, grouped attention with rotary positions on whole heads,
a gated feed-forward with SiLU. Qwen2 adds biases to q, k and v; Qwen3 an RMS norm of each head of q
and k. A config that asks for more than that is refused: an engine that ignored it would answer, and
answer wrongly.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from backends.snapshots.manifest import DTYPES
from backends.snapshots.rope import (
    Divided,
    Scaling,
    Yarn,
    read_scaling,
    stretched,
    write_scaling,
)

CLASSES: Final[Mapping[str, str]] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}

# Beside weights and cache a process holds MindSpore itself, compiled graphs and activations.
# Measured on CPU with a 135M model, 4 slots of 1024: 3.0 GB resident, of which weights and cache
# are 0.73 GB; a tenth on top.
ALLOWANCE_BYTES: Final = 2_500_000_000
HELD: Final = "float32"  # weights and cache in memory, however the weights are stored


@dataclass(frozen=True, slots=True)
class Transformer:
    """The numbers that decide every tensor's shape, and those that the computation needs."""

    architecture: str
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int  # positions it was trained for, or stretched to
    rms_norm_eps: float
    rope_theta: float
    tied: bool  # the embedding is the output matrix too
    scaling: Scaling | None = None  # of rotary positions

    @property
    def has_biases(self) -> bool:
        """Of q, k and v."""
        return self.architecture == "qwen2"

    @property
    def has_head_norms(self) -> bool:
        """Of each head of q and k, before it turns."""
        return self.architecture == "qwen3"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        product = 1
        for length in self.shape:
            product *= length
        return product


class ConfigInvalid(ValueError):
    """`problems` holds every one of them, each with the key it is about."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def read_config(config: Mapping[str, Any]) -> Transformer:
    """The model that a Hugging Face config.json describes.

    Raises: ConfigInvalid, with every problem.
    """
    problems: list[str] = []
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else ""
    if name not in CLASSES:
        problems.append(f"architectures: must be {' or '.join(CLASSES)}, not {name!r}")
    architecture = CLASSES.get(name, "")
    problems += _unsupported(config, architecture)

    def number(key: str, default: float | None = None, whole: bool = True) -> Any:
        value = config.get(key)
        value = default if value is None else value
        kinds = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or value <= 0:
            words = "a whole number of at least 1" if whole else "a number above 0"
            problems.append(f"{key}: must be {words}, not {value!r}")
            return 1
        return value

    hidden, heads = number("hidden_size"), number("num_attention_heads")
    head_dim = 128 if architecture == "qwen3" else hidden // heads or None  # as in transformers
    scaling = read_scaling(config, problems)
    shape = Transformer(
        architecture=architecture,
        layers=number("num_hidden_layers"),
        hidden=hidden,
        feed_forward=number("intermediate_size"),
        heads=heads,
        kv_heads=number("num_key_value_heads", heads),
        head_dim=number("head_dim", head_dim),
        vocab=number("vocab_size"),
        context=stretched(number("max_position_embeddings"), scaling),
        rms_norm_eps=float(number("rms_norm_eps", 1e-6, whole=False)),  # default of transformers
        rope_theta=_rope_theta(config, problems),
        tied=bool(config.get("tie_word_embeddings", False)),
        scaling=scaling,
    )
    if shape.heads % shape.kv_heads:
        problems.append(
            f"num_key_value_heads: must divide num_attention_heads {shape.heads}, "
            f"not {shape.kv_heads}"
        )
    if shape.head_dim % 2:
        problems.append(
            f"head_dim: must be even, not {shape.head_dim}: rotary positions turn pairs"
        )
    if isinstance(scaling, Yarn) and shape.rope_theta <= 1:
        problems.append(f"rope_theta: must be above 1 for yarn, not {shape.rope_theta}")
    if isinstance(scaling, Divided) and len(scaling.divisors) != shape.head_dim // 2:
        problems.append(f"divisors: must be {shape.head_dim // 2}, not {len(scaling.divisors)}")
    if problems:
        raise ConfigInvalid(problems)
    return shape


def write_config(shape: Transformer, dtype: str, bos: int | None, eos: list[int]) -> dict[str, Any]:
    """The config.json that `read_config` reads back, every number in it explicit."""
    name = next(key for key, value in CLASSES.items() if value == shape.architecture)
    scaling = write_scaling(shape.scaling)
    return {
        "architectures": [name],
        "model_type": shape.architecture,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        **({"rope_scaling": scaling} if scaling else {}),
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "torch_dtype": dtype,
    }


def tensors(shape: Transformer) -> Iterator[TensorSpec]:
    """Every tensor of the model, in the order in which a forward pass meets them."""
    hidden, inner = shape.hidden, shape.heads * shape.head_dim
    kv_inner = shape.kv_heads * shape.head_dim
    yield TensorSpec("model.embed_tokens.weight", (shape.vocab, hidden))
    for i in range(shape.layers):
        layer = f"model.layers.{i}"
        yield TensorSpec(f"{layer}.input_layernorm.weight", (hidden,))
        for name, rows in (("q_proj", inner), ("k_proj", kv_inner), ("v_proj", kv_inner)):
            yield TensorSpec(f"{layer}.self_attn.{name}.weight", (rows, hidden))
            if shape.has_biases:
                yield TensorSpec(f"{layer}.self_attn.{name}.bias", (rows,))
        if shape.has_head_norms:
            yield TensorSpec(f"{layer}.self_attn.q_norm.weight", (shape.head_dim,))
            yield TensorSpec(f"{layer}.self_attn.k_norm.weight", (shape.head_dim,))
        yield TensorSpec(f"{layer}.self_attn.o_proj.weight", (hidden, inner))
        yield TensorSpec(f"{layer}.post_attention_layernorm.weight", (hidden,))
        yield TensorSpec(f"{layer}.mlp.gate_proj.weight", (shape.feed_forward, hidden))
        yield TensorSpec(f"{layer}.mlp.up_proj.weight", (shape.feed_forward, hidden))
        yield TensorSpec(f"{layer}.mlp.down_proj.weight", (hidden, shape.feed_forward))
    yield TensorSpec("model.norm.weight", (hidden,))
    if not shape.tied:
        yield TensorSpec("lm_head.weight", (shape.vocab, hidden))


def missing_and_foreign(shape: Transformer, found: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Each way in which the tensors of a source are not those of this model."""
    expected = {spec.name: spec.shape for spec in tensors(shape)}
    for name, wanted in expected.items():
        if name not in found:
            yield f"{name}: is missing"
        elif found[name] != wanted:
            yield f"{name}: must have shape {wanted}, not {found[name]}"
    for name in found:
        # Old checkpoints store the rotary table, and tied ones the output matrix a second time.
        harmless = name.endswith("rotary_emb.inv_freq") or (shape.tied and name == "lm_head.weight")
        if name not in expected and not harmless:
            yield f"{name}: is not part of a {shape.architecture} model"


def weights_bytes(shape: Transformer, dtype: str) -> int:
    """Stored in `dtype`."""
    return DTYPES[dtype] * sum(spec.size for spec in tensors(shape))


def memory_needed_bytes(shape: Transformer, slots: int, max_seq_len: int) -> int:
    """Weights, a KV cache for every slot at full length, and the allowance above."""
    position = 2 * shape.layers * shape.kv_heads * shape.head_dim * DTYPES[HELD]  # 2: key, value
    return weights_bytes(shape, HELD) + slots * max_seq_len * position + ALLOWANCE_BYTES


def _rope_theta(config: Mapping[str, Any], problems: list[str]) -> float:
    # transformers 5 moved the key into `rope_parameters`; 10000 is its default in both.
    nested = config.get("rope_parameters")
    nested = nested if isinstance(nested, Mapping) else {}
    value = config.get("rope_theta", nested.get("rope_theta", 10000.0))
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        problems.append(f"rope_theta: must be a number above 0, not {value!r}")
        return 1.0
    return float(value)


def _unsupported(config: Mapping[str, Any], architecture: str) -> Iterator[str]:
    act = config.get("hidden_act", "silu")
    if act != "silu":
        yield f'hidden_act: must be "silu", not {act!r}'
    if config.get("partial_rotary_factor", 1.0) != 1.0:
        yield "partial_rotary_factor: must be 1, rotary positions on a part of a head are not read"
    if config.get("mlp_bias"):
        yield "mlp_bias: must be false, biases of the feed-forward are not supported"
    if config.get("attention_bias") and architecture != "qwen2":
        yield "attention_bias: must be false, only Qwen2's biases are supported"
    sliding = set(config.get("layer_types") or ()) - {"full_attention"}
    if config.get("use_sliding_window") or sliding:
        yield "use_sliding_window: must be false, sliding windows are not supported"
    if config.get("quantization_config"):
        yield "quantization_config: must be absent, import the weights that were not quantised"
