import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.snapshots.folder import folder_origin, open_folder
from backends.snapshots.source import ImportFailed, same_content
from backends.snapshots.steps import silent
from backends.snapshots.transformer import read_config
from tests.tiny import CHAT_TEMPLATE, tiny_config, tiny_weights, write_tiny_folder


def _edit(file: Path, **changes: Any) -> None:
    content = json.loads(file.read_text()) if file.exists() else {}
    content |= changes
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_folder(tmp_path / "tiny")


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shards", [1, 3])
def test_all_tensors_are_read_as_float32(
    tmp_path: Path, architecture: str, dtype: str, shards: int
) -> None:
    write_tiny_folder(tmp_path, architecture, tied=False, dtype=dtype, shards=shards)
    source = open_folder(tmp_path, "origin")
    assert source.shape == read_config(tiny_config(architecture, tied=False))
    for name, values in tiny_weights(architecture, 0, tied=False).items():
        found = source.read(name)
        assert found.dtype == np.float32
        tolerance = {"float32": 0.0, "float16": 2**-10, "bfloat16": 2**-7}[dtype]
        np.testing.assert_allclose(found, values, rtol=tolerance, atol=1e-7, err_msg=name)


def test_texts_and_ids_come_along(folder: Path) -> None:
    _edit(folder / "generation_config.json", temperature=0.6, top_p=0.9, transformers_version="5")
    source = open_folder(folder, "origin")
    assert source.tokenizer_json == (folder / "tokenizer.json").read_text()
    assert (source.bos, source.eos, source.chat_template) == (1, (2,), CHAT_TEMPLATE)
    assert source.sampling == {"temperature": 0.6, "top_p": 0.9}


def test_the_tokenizers_own_end_token_comes_first(folder: Path) -> None:
    _edit(folder / "generation_config.json", eos_token_id=[0, 2])
    assert open_folder(folder, "origin").eos == (2, 0)
    _edit(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    assert open_folder(folder, "origin").eos == (0, 2)
    _edit(folder / "tokenizer_config.json", eos_token=None)
    _edit(folder / "generation_config.json", eos_token_id=None)
    assert open_folder(folder, "origin").eos == (2,)


def test_an_end_token_that_is_an_ordinary_word_is_found(folder: Path) -> None:
    _edit(folder / "tokenizer_config.json", eos_token="!")
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert open_folder(folder, "origin").eos[0] == vocab["!"]


def test_a_chat_template_is_found_in_each_place_newest_first(folder: Path) -> None:
    several = [{"name": "tool", "template": "T"}, {"name": "default", "template": "D"}]
    _edit(folder / "tokenizer_config.json", chat_template=several)
    assert open_folder(folder, "origin").chat_template == "D"
    _edit(folder / "chat_template.json", chat_template="J")
    assert open_folder(folder, "origin").chat_template == "J"
    (folder / "chat_template.jinja").write_bytes(b"line\r\nline")
    assert open_folder(folder, "origin").chat_template == "line\r\nline"


def test_a_model_without_chat_template_has_none(folder: Path) -> None:
    _edit(folder / "tokenizer_config.json", chat_template=None)
    assert open_folder(folder, "origin").chat_template is None


def test_the_origin_is_the_content_of_the_files_that_are_read(folder: Path, tmp_path: Path) -> None:
    first = folder_origin(folder, silent)
    assert first.startswith("folder tiny sha256:")
    (folder / "README.md").write_text("anything")
    assert folder_origin(folder, silent) == first
    same = write_tiny_folder(tmp_path / "copy")
    assert same_content(folder_origin(same, silent), first)
    other = write_tiny_folder(tmp_path / "other" / "tiny", seed=1)
    assert not same_content(folder_origin(other, silent), first)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("config.json", None, "tiny has no config.json"),
        ("config.json", "{", "config.json is not JSON"),
        ("config.json", "[]", "config.json: must be a table"),
        ("config.json", "{}", "config.json: architectures: must be"),
        ("tokenizer.json", None, "tiny has no tokenizer.json"),
        ("model.safetensors", None, "holds neither model.safetensors nor"),
        ("model.safetensors.index.json", "{}", "weight_map is missing"),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"x": "gone.safetensors"}}',
            "gone.safetensors is missing",
        ),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"x": "../out.safetensors"}}',
            "is not the name of a file in the folder",
        ),
    ],
)
def test_what_is_missing_or_damaged_is_named(
    folder: Path, name: str, content: str | None, problem: str
) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(ImportFailed, match=problem):
        open_folder(folder, "origin")


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path, "qwen2")
    _edit(folder / "config.json", architectures=["LlamaForCausalLM"])
    with pytest.raises(ImportFailed, match=r"q_proj\.bias: is not part of a llama model.*; and 1"):
        open_folder(folder, "origin")


def test_a_model_that_never_ends_is_refused(folder: Path) -> None:
    for name in ("config.json", "generation_config.json"):
        _edit(folder / name, eos_token_id=None)
    _edit(folder / "tokenizer_config.json", eos_token=None)
    with pytest.raises(ImportFailed, match="no answer would ever end"):
        open_folder(folder, "origin")
