"""The same weights in torch, written to be fast: FOLDER, SLOTS, LENGTH, THREADS.

Floor 5, I/O.   Run by the Python of `make fixtures`, which has torch and not our requirements.
What the model is and what each step does is ours: matrices fused, a static cache, a window over it,
logits to numpy and the likeliest id on the host. Attention is torch's own (SDPA) or two
multiplications, whichever is faster here. Llama alone: it is what the demonstration model is.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # its name everywhere
from numpy.typing import NDArray
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.bench.engine_child import Contender, serve

WINDOWS: Final = (256,)  # as many windows as ours has
TRIED: Final = 6  # steps of each way to attend


class Torch:
    def __init__(self, folder: Path, slots: int, length: int) -> None:
        config = json.loads((folder / "config.json").read_text())
        assert config["architectures"] == ["LlamaForCausalLM"]
        self.slots, self.length, self.sdpa = slots, length, True
        self.layers, self.eps = config["num_hidden_layers"], config["rms_norm_eps"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.size = config.get("head_dim") or config["hidden_size"] // self.heads
        self.inner = config["intermediate_size"]
        self._read(load_file(folder / "model.safetensors"))
        turns = config["rope_theta"] ** (
            -torch.arange(0, self.size, 2, dtype=torch.float64) / self.size
        )
        angles = torch.cat([torch.arange(length)[:, None] * turns] * 2, dim=1)
        self.cos, self.sin = angles.cos().float(), angles.sin().float()
        cache = (slots, self.kv_heads, length, self.size)
        self.keys = [torch.zeros(cache) for _ in range(self.layers)]
        self.values = [torch.zeros(cache) for _ in range(self.layers)]
        self.places, self.every = torch.arange(length), torch.arange(slots)

    def _read(self, found: dict[str, Any]) -> None:
        def of(i: int, *names: str) -> Any:
            rows = [found[f"model.layers.{i}.{name}.weight"] for name in names]
            return torch.cat(rows).contiguous()

        layers = range(self.layers)
        self.norm_in = [of(i, "input_layernorm") for i in layers]
        self.qkv = [of(i, *(f"self_attn.{name}_proj" for name in "qkv")) for i in layers]
        self.out = [of(i, "self_attn.o_proj") for i in layers]
        self.norm_ff = [of(i, "post_attention_layernorm") for i in layers]
        self.gate_up = [of(i, "mlp.gate_proj", "mlp.up_proj") for i in layers]
        self.down = [of(i, "mlp.down_proj") for i in layers]
        self.embedding, self.norm = found["model.embed_tokens.weight"], found["model.norm.weight"]
        self.head = found.get("lm_head.weight", self.embedding)

    @torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is not installed here
    def prefill(self, slot: int, ids: Sequence[int]) -> NDArray[np.float32]:
        count = len(ids)
        x = F.embedding(torch.tensor(ids), self.embedding)
        cos, sin = self.cos[:count, None], self.sin[:count, None]
        for i in range(self.layers):
            q, k, v = self._project(x, i, cos, sin)
            self.keys[i][slot, :, :count] = k.transpose(0, 1)
            self.values[i][slot, :, :count] = v.transpose(0, 1)
            q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = self._finish(x, mixed[0].transpose(0, 1).reshape(count, -1), i)
        logits: NDArray[np.float32] = self._logits(x[-1:])[0]
        return logits

    @torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is not installed here
    def decode(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        last = int(positions.max())
        window = next(each for each in (*WINDOWS, self.length) if each > last)
        at = torch.from_numpy(positions.astype(np.int64))
        x = F.embedding(torch.from_numpy(ids.astype(np.int64)), self.embedding)
        cos, sin = self.cos[at][:, None], self.sin[at][:, None]
        mask = torch.zeros(self.slots, 1, 1, window)
        mask.masked_fill_(self.places[:window] > at[:, None, None, None], -1e9)
        for i in range(self.layers):
            q, k, v = self._project(x, i, cos, sin)
            self.keys[i][self.every, :, at], self.values[i][self.every, :, at] = k, v
            q = q.reshape(self.slots, self.kv_heads, -1, self.size)
            mixed = self._attend(
                q, self.keys[i][:, :, :window], self.values[i][:, :, :window], mask
            )
            x = self._finish(x, mixed.reshape(self.slots, -1), i)
        return self._logits(x)

    def _project(self, x: Any, i: int, cos: Any, sin: Any) -> tuple[Any, Any, Any]:
        rotated = self.heads + self.kv_heads
        qkv = F.linear(F.rms_norm(x, x.shape[-1:], self.norm_in[i], self.eps), self.qkv[i])
        qkv = qkv.view(len(x), rotated + self.kv_heads, self.size)
        qk, half = qkv[:, :rotated], self.size // 2
        qk = qk * cos + torch.cat([-qk[..., half:], qk[..., :half]], dim=-1) * sin
        return qk[:, : self.heads], qk[:, self.heads :], qkv[:, rotated:]

    def _attend(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        if self.sdpa:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        scores = q @ k.transpose(-1, -2) * self.size**-0.5 + mask
        return torch.softmax(scores, dim=-1) @ v

    def _finish(self, x: Any, mixed: Any, i: int) -> Any:
        x = x + F.linear(mixed, self.out[i])
        normed = F.rms_norm(x, x.shape[-1:], self.norm_ff[i], self.eps)
        gate, up = F.linear(normed, self.gate_up[i]).split(self.inner, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down[i])

    def _logits(self, x: Any) -> NDArray[np.float32]:
        normed = F.rms_norm(x, x.shape[-1:], self.norm, self.eps)
        logits: NDArray[np.float32] = F.linear(normed, self.head).numpy()
        return logits


def faster(model: Torch) -> bool:
    """Whether torch's own attention is."""
    took = {}
    idle = np.zeros(model.slots, np.int32)
    for model.sdpa in (True, False, True, False):  # the first two warm up
        began = time.perf_counter()
        for step in range(TRIED):
            model.decode(idle, idle + step)
        took[model.sdpa] = time.perf_counter() - began
    return took[True] <= took[False]


def load() -> tuple[Contender, dict[str, Any]]:
    folder, slots, length, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    model = Torch(Path(folder), int(slots), int(length))
    model.sdpa = faster(model)
    return model, {"attention": "SDPA" if model.sdpa else "two multiplications"}


if __name__ == "__main__":
    serve(load)
