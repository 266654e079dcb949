"""Tiny models of each family, imported and run, against the logits of `transformers`.

tests/golden/families is made by make_families.py, next to this file.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from backends.engines.llm.engine import LlmEngine
from backends.snapshots.importing import import_model
from backends.snapshots.repository import Repository, Snapshot
from backends.snapshots.steps import silent
from backends.snapshots.wanted import GgufFile, Locator, ModelFolder, Wanted
from tests.backends.snapshots.tiny_gguf import write_gguf
from tests.tiny import tiny_tokenizer

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "families"
CASES: dict[str, Any] = json.loads((GOLDEN / "cases.json").read_text("utf-8"))["cases"]
LOGITS = load_file(GOLDEN / "logits.safetensors")

CLOSE = 1e-4  # of the largest logit: two float32 programs over two layers differ by 1e-6
PROMPT = 20  # ids; what follows them is decoded one by one
LENGTH = 32  # positions: twice what scaled cases were trained for, and two graphs to compile
NOW = "2026-01-02T03:04:05+00:00"


def tensors_of(case: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    tensors = load_file(GOLDEN / f"{case['family']}.safetensors")
    if case["config"]["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    return tensors


def folder_of(case: dict[str, Any], folder: Path) -> Locator:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(case["config"]))
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    save_file(tensors_of(case), folder / "model.safetensors")
    return ModelFolder(folder)


def imported(root: Path, locator: Locator, version: str = "1") -> Snapshot:
    wanted = Wanted("tiny", version, "float32", slots=2, max_seq_len=LENGTH)
    return import_model(Repository(root), locator, wanted, NOW, silent).snapshot


@pytest.mark.mindspore
@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    ids = case["ids"][:LENGTH]
    snapshot = imported(tmp_path / "models", folder_of(case, tmp_path / "folder"))
    engine = LlmEngine(snapshot, tmp_path / "cache")
    engine.load(lambda phase, share, words: None)
    found = [engine.prefill(1, ids[:count], 0) for count in range(1, PROMPT + 1)]
    for position in range(PROMPT, len(ids)):
        id_row, position_row = np.zeros((2, engine.slots), np.int32)
        id_row[1], position_row[1] = ids[position], position
        found.append(engine.decode(id_row, position_row)[1])
    engine.close()
    wanted = LOGITS[name][:LENGTH]
    np.testing.assert_allclose(np.stack(found), wanted, rtol=0, atol=CLOSE * np.abs(wanted).max())


@pytest.mark.parametrize("name", CASES)
def test_a_gguf_file_of_the_same_model_gives_the_same_snapshot(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    folder = imported(tmp_path / "models", folder_of(case, tmp_path / "folder"))
    file = write_gguf(tmp_path / "tiny.gguf", case["config"], tensors_of(case))
    gguf = imported(tmp_path / "models", GgufFile(file), version="2")
    first, second = ({e.name: e.sha256 for e in s.manifest.files} for s in (folder, gguf))
    assert first["model.safetensors"] == second["model.safetensors"]
    assert replace(folder.manifest, files=(), source="", version="") == replace(
        gguf.manifest, files=(), source="", version=""
    )
    configs = [json.loads((each.folder / "config.json").read_bytes()) for each in (folder, gguf)]
    if name.endswith("llama3"):  # spelled as what it comes to: see test_rope.py for the numbers
        assert configs[1].pop("rope_scaling")["rope_type"] == "divided"
        del configs[0]["rope_scaling"]
    assert configs[0] == configs[1]


def test_the_golden_logits_tell_scaled_positions_from_plain_ones_and_families_apart() -> None:
    assert {case["family"] for case in CASES.values()} == {"llama", "qwen2", "qwen3"}
    assert {case["config"]["tie_word_embeddings"] for case in CASES.values()} == {True, False}
    for case in CASES.values():
        rope = case["config"].get("rope_scaling") or {}
        trained = rope.get("original_max_position_embeddings", 16)
        assert trained < PROMPT < LENGTH <= len(case["ids"])  # prefill and decode go past it
