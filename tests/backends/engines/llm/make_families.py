"""What `transformers` answers for tiny random models of each family, for the tests of our engine.

Floor 5, I/O.   Run by `make fixtures` in an environment of its own: the tests need neither torch
nor transformers. It writes into tests/golden/families:
  FAMILY.safetensors  random weights, an output matrix among them that tied cases leave alone
  cases.json          each case: family, config.json, ids
  logits.safetensors  of each case, after each of its ids
  rope.json           configs and the frequencies that rotary positions have by them
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

CLASSES: Final = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
VOCAB, HIDDEN, FEED_FORWARD, LAYERS, HEADS, KV_HEADS = 64, 32, 48, 2, 4, 2
HEAD_DIM: Final = {"llama": 8, "qwen2": 8, "qwen3": 16}  # Qwen3's heads are not hidden / heads
TRAINED: Final = 16  # positions; the ids go well past them
IDS: Final = 40  # more than a test has to use

YARN: Final = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}
LLAMA3: Final = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": TRAINED,
}
SCALINGS: Final[dict[str, dict[str, Any] | None]] = {
    "plain": None,
    "linear": {"type": "linear", "factor": 2.5},  # as older configs spell it
    "llama3": LLAMA3,
    "yarn": YARN,
}
TIED: Final = {"plain": True, "linear": False, "llama3": True, "yarn": False}

# More of what configs say, without a model around it.
ROPES: Final[tuple[dict[str, Any], ...]] = (
    {"rope_type": "linear", "factor": 4},
    {**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192},
    {**YARN, "original_max_position_embeddings": 32768},
    {**YARN, "original_max_position_embeddings": 4096, "factor": 16.0, "attention_factor": 1.5},
    {**YARN, "original_max_position_embeddings": 4096, "beta_fast": 64.0, "beta_slow": 2.0},
    {**YARN, "original_max_position_embeddings": 4096, "truncate": False},
    {**YARN, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.5},
    {**YARN, "original_max_position_embeddings": 4096, "factor": 1.0},
)


def config(family: str, scaling: str) -> dict[str, Any]:
    found = {
        "architectures": [CLASSES[family]],
        "model_type": family,
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM[family],
        "max_position_embeddings": 4 * TRAINED,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": TIED[scaling],
        "eos_token_id": 2,
    }
    rope = SCALINGS[scaling]
    return {**found, "rope_scaling": rope} if rope else found


def weights(family: str, rng: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    separate = {**config(family, "plain"), "tie_word_embeddings": False}
    found = {}
    for name, tensor in model_of(separate).state_dict().items():
        centre, spread = (1.0, 0.1) if name.endswith("norm.weight") else (0.0, 0.3)
        found[name] = rng.normal(centre, spread, tuple(tensor.shape)).astype(np.float32)
    return found


def model_of(table: dict[str, Any]) -> Any:
    return AutoModelForCausalLM.from_config(config_of(table), dtype=torch.float32).eval()


def config_of(table: dict[str, Any]) -> Any:
    return AutoConfig.for_model(**table)


def logits(
    table: dict[str, Any], tensors: dict[str, np.ndarray[Any, Any]], ids: list[int]
) -> np.ndarray[Any, Any]:
    model = model_of(table)
    state = {name: torch.from_numpy(values) for name, values in tensors.items()}
    if table["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        found: np.ndarray[Any, Any] = model(torch.tensor([ids])).logits[0].numpy()
    return found.astype(np.float32)


def rope(parameters: dict[str, Any]) -> dict[str, Any]:
    original = parameters.get("original_max_position_embeddings", 4096)
    table = {
        **config("llama", "plain"),
        "head_dim": 64,
        "max_position_embeddings": int(original * parameters["factor"]),
        "rope_theta": 5e5,
        "rope_scaling": parameters,
    }
    made = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config_of(table), torch.device("cpu"))
    return {"config": table, "frequencies": made[0].tolist(), "lengthened": float(made[1])}


def main(folder: Path) -> None:
    rng = np.random.default_rng(1)
    cases, answers = {}, {}
    for family in CLASSES:
        tensors = weights(family, rng)
        save_file(tensors, folder / f"{family}.safetensors")
        for scaling in SCALINGS:
            name, table = f"{family}-{scaling}", config(family, scaling)
            ids = [int(i) for i in rng.integers(0, VOCAB, IDS)]
            cases[name] = {"family": family, "config": table, "ids": ids}
            answers[name] = logits(table, tensors, ids)
    save_file(answers, folder / "logits.safetensors")
    made_with = {"transformers": transformers.__version__, "torch": torch.__version__}
    _write(folder / "cases.json", {"made_with": made_with, "cases": cases})
    _write(folder / "rope.json", {"made_with": made_with, "ropes": [rope(one) for one in ROPES]})


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
