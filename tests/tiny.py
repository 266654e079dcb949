"""A random model that a real engine loads in seconds: what importing, serving and draining need.

Floor 3, I/O.
`write_tiny_folder` makes a folder as a model hub would hand it out. It is written with the
`safetensors` and `tokenizers` libraries, not with our own writers, so that tests of the importers
read what others write. The same arguments give the same bytes. Its text is noise, but every token
of it has text, so streams look like streams; the end token is all but never drawn.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import TensorSpec, serialize_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from backends.snapshots.folder import folder_origin, open_folder
from backends.snapshots.importing import import_source
from backends.snapshots.repository import Repository, Snapshot
from backends.snapshots.steps import silent
from backends.snapshots.wanted import Wanted

SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2
EOS_ID: Final = 2
VOCAB: Final = 300
LAYERS: Final = 2
HIDDEN: Final = 64
FEED_FORWARD: Final = 128
HEADS: Final = 4
KV_HEADS: Final = 2
CONTEXT: Final = 256
# Qwen3 is the family whose heads need not add up to the hidden size.
HEAD_DIM: Final = {"llama": HIDDEN // HEADS, "qwen2": HIDDEN // HEADS, "qwen3": 24}
CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

# Pairs in the order in which they merge; with the bytes and the specials they make VOCAB ids.
_MERGES: Final = (
    "Ġ t|h e|Ġt he|i n|r e|o n|a t|e r|Ġ a|Ġ s|e n|o r|Ġ o|i s|Ġ w|e s|a n|Ġ c|i t|o u|Ġo f|"
    "in g|Ġa n|Ġan d|e d|a l|Ġ b|Ġ f|Ġ p|Ġ m|Ġ in|Ġt o|a r|i c|l e|s t|u n|Ġ d|o m|v e|l o"
)


def tiny_tokenizer() -> Tokenizer:
    """Byte-level BPE over all 256 bytes: every text has ids, every id has text."""
    merges = [(left, right) for left, right in (pair.split(" ") for pair in _MERGES.split("|"))]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*SPECIALS, *letters, *(left + right for left, right in merges)]
    assert len(set(words)) == VOCAB, len(set(words))
    tokenizer = Tokenizer(
        models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, normalized=False) for word in SPECIALS])
    return tokenizer


def tiny_config(architecture: str = "llama", tied: bool = True, dtype: str = "float32") -> Any:
    """config.json of the model, as `transformers` spells it."""
    return {
        "architectures": [CLASSES[architecture]],
        "model_type": architecture,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        **({"head_dim": HEAD_DIM[architecture]} if architecture == "qwen3" else {}),
        "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": tied,
        "bos_token_id": 1,
        "eos_token_id": EOS_ID,
        "torch_dtype": dtype,
    }


def tiny_weights(
    architecture: str = "llama", seed: int = 0, tied: bool = True
) -> dict[str, NDArray[np.float32]]:
    """Tensors under their Hugging Face names, float32."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in _shapes(architecture, tied):
        if name.endswith("norm.weight"):
            values = rng.normal(1.0, 0.05, shape)
        else:
            values = rng.normal(0.0, 0.15, shape)  # wide enough that logits are far from ties
        weights[name] = values.astype(np.float32)
    return weights


def write_tiny_folder(
    path: Path,
    architecture: str = "llama",
    seed: int = 0,
    tied: bool = True,
    dtype: str = "float32",
    shards: int = 1,
) -> Path:
    """`path`, filled: config, generation config, tokenizer, chat template and weights."""
    path.mkdir(parents=True, exist_ok=True)
    _write_json(path / "config.json", tiny_config(architecture, tied, dtype))
    _write_json(path / "generation_config.json", {"bos_token_id": 1, "eos_token_id": EOS_ID})
    _write_json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": {"content": "<|im_end|>", "special": True},
            "chat_template": CHAT_TEMPLATE,
        },
    )
    tiny_tokenizer().save(str(path / "tokenizer.json"))
    weights = tiny_weights(architecture, seed, tied)
    if shards == 1:
        _write_weights(path / "model.safetensors", weights, dtype)
        return path
    places: dict[str, str] = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        names = list(weights)[i::shards]
        _write_weights(path / file, {name: weights[name] for name in names}, dtype)
        places |= dict.fromkeys(names, file)
    _write_json(path / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})
    return path


def write_tiny_snapshot(
    root: Path,
    model: str = "tiny",
    version: str = "1",
    architecture: str = "llama",
    seed: int = 0,
    slots: int = 2,
    max_seq_len: int = 128,
) -> Snapshot:
    """The same model, imported into the repository at `root`."""
    with TemporaryDirectory() as scratch:
        folder = write_tiny_folder(Path(scratch) / "tiny", architecture, seed)
        source = open_folder(folder, folder_origin(folder, silent))
        wanted = Wanted(model, version, "float32", slots, max_seq_len)
        created = "2000-01-01T00:00:00+00:00"  # any: the same arguments give the same bytes
        return import_source(Repository(root), source, wanted, created, silent).snapshot


def _shapes(architecture: str, tied: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    head = HEAD_DIM[architecture]
    rows = {"q_proj": HEADS * head, "k_proj": KV_HEADS * head, "v_proj": KV_HEADS * head}
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (HIDDEN,)
        for name, out in rows.items():
            yield f"{layer}.self_attn.{name}.weight", (out, HIDDEN)
            if architecture == "qwen2":
                yield f"{layer}.self_attn.{name}.bias", (out,)
        if architecture == "qwen3":
            yield f"{layer}.self_attn.q_norm.weight", (head,)
            yield f"{layer}.self_attn.k_norm.weight", (head,)
        yield f"{layer}.self_attn.o_proj.weight", (HIDDEN, HEADS * head)
        yield f"{layer}.post_attention_layernorm.weight", (HIDDEN,)
        yield f"{layer}.mlp.gate_proj.weight", (FEED_FORWARD, HIDDEN)
        yield f"{layer}.mlp.up_proj.weight", (FEED_FORWARD, HIDDEN)
        yield f"{layer}.mlp.down_proj.weight", (HIDDEN, FEED_FORWARD)
    yield "model.norm.weight", (HIDDEN,)
    if not tied:
        yield "lm_head.weight", (VOCAB, HIDDEN)


def _write_weights(file: Path, weights: dict[str, NDArray[np.float32]], dtype: str) -> None:
    stored = {name: _in_dtype(values, dtype) for name, values in weights.items()}
    specs = {
        name: TensorSpec(
            dtype=dtype, shape=list(a.shape), data_ptr=a.ctypes.data, data_len=a.nbytes
        )
        for name, a in stored.items()
    }
    serialize_file(specs, str(file), {"format": "pt"})


def _in_dtype(values: NDArray[np.float32], dtype: str) -> NDArray[Any]:
    if dtype == "bfloat16":  # the upper half of a float32; numpy has no name for it
        return np.ascontiguousarray(values.view(np.uint16)[..., 1::2])
    return values.astype(dtype)


def _write_json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, sort_keys=True), "utf-8")
