import os
import zlib
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from backends.snapshots import ckpt
from backends.snapshots.ckpt import CheckpointFile, hugging_face_name
from backends.snapshots.folder import open_folder
from backends.snapshots.importing import import_model
from backends.snapshots.repository import Repository
from backends.snapshots.source import ImportFailed
from backends.snapshots.steps import silent
from backends.snapshots.wanted import ModelFolder, Wanted
from tests.tiny import tiny_config, tiny_weights, write_tiny_folder

MINDFORMERS = {
    "model.embed_tokens.weight": "model.tok_embeddings.embedding_weight",
    "model.norm.weight": "model.norm_out.weight",
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}


def mindformers_name(name: str) -> str:
    for ours, theirs in MINDFORMERS.items():
        name = name.replace(ours, theirs)
    return name


def generated() -> Any:
    """MindSpore's own description of the format, without MindSpore around it."""
    spec = find_spec("mindspore")
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "train" / "checkpoint_pb2.py"
    found = spec_from_file_location("checkpoint_pb2", file)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def value(tag: str, values: NDArray[Any], kind: str = "Float32", content: bytes = b"") -> bytes:
    message = generated().Checkpoint()
    one = message.value.add()
    one.tag = tag
    one.tensor.dims.extend(values.shape)
    one.tensor.tensor_type = kind
    one.tensor.tensor_content = content or values.tobytes()
    return bytes(message.SerializeToString())


def written(folder: Path, weights: dict[str, NDArray[np.float32]], name: str = "m.ckpt") -> Path:
    (folder / name).write_bytes(b"".join(value(tag, one) for tag, one in weights.items()))
    return folder / name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's config and tokenizer, without weights."""
    found = write_tiny_folder(tmp_path / "tiny")
    (found / "model.safetensors").unlink()
    return found


@pytest.mark.parametrize("theirs", [True, False], ids=["mindformers", "huggingface"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_model_is_read_from_a_checkpoint_under_either_names(
    tmp_path: Path, architecture: str, theirs: bool
) -> None:
    write_tiny_folder(tmp_path, architecture, tied=False)
    weights = tiny_weights(architecture, 0, tied=False)
    (tmp_path / "model.safetensors").unlink()
    name = mindformers_name if theirs else str
    written(tmp_path, {name(tag): one for tag, one in weights.items()})
    source = open_folder(tmp_path, "origin")
    assert source.shape.architecture == tiny_config(architecture)["model_type"]
    for tag, one in weights.items():
        np.testing.assert_array_equal(source.read(tag), one, err_msg=tag)


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        ("Float16", np.array([[1.5, -2.0]], "<f2")),
        ("BFloat16", np.array([[0x3FC0, 0xC000]], "<u2")),
        ("Float32", np.array([[1.5, -2.0]], "<f4")),
    ],
)
def test_every_kind_of_number_becomes_float32(
    tmp_path: Path, kind: str, bits: NDArray[Any]
) -> None:
    file = tmp_path / "m.ckpt"
    file.write_bytes(value("a", bits, kind))
    found = CheckpointFile(file).read("a")
    assert found.dtype == np.float32
    assert found.tolist() == [[1.5, -2.0]]


def test_a_large_tensor_is_several_values_in_order(tmp_path: Path) -> None:
    whole = np.arange(6, dtype=np.float32).reshape(2, 3)
    content = whole.tobytes()
    file = tmp_path / "m.ckpt"
    pieces = (value("a", whole, content=content[i : i + 8]) for i in range(0, len(content), 8))
    file.write_bytes(b"".join(pieces) + value("b", whole + 1))
    opened = CheckpointFile(file)
    np.testing.assert_array_equal(opened.read("a"), whole)
    np.testing.assert_array_equal(opened.read("b"), whole + 1)


def test_what_an_optimizer_keeps_is_no_part_of_the_model(folder: Path) -> None:
    weights = tiny_weights()
    beside = {f"adam_m.{name}": one for name, one in weights.items()}
    beside |= {f"moments.{name}": one for name, one in weights.items()}
    file = written(folder, weights | beside)
    more = value("epoch_num", np.array(3)) + value("data", np.array([1, 2]), "Int32")
    file.write_bytes(file.read_bytes() + more)
    assert set(CheckpointFile(file).shapes) == set(weights)
    open_folder(folder, "origin")


def test_a_checksum_is_compared(folder: Path) -> None:
    file = written(folder, tiny_weights())
    content = file.read_bytes()
    sealed = content + b"crc_num" + zlib.crc32(content).to_bytes(10, "big")
    file.write_bytes(sealed)
    open_folder(folder, "origin")
    file.write_bytes(sealed[:500] + bytes([sealed[500] ^ 1]) + sealed[501:])
    with pytest.raises(ImportFailed, match=r"m\.ckpt is damaged"):
        open_folder(folder, "origin")


def test_one_of_several_checkpoints_is_named(folder: Path, tmp_path: Path) -> None:
    written(folder, tiny_weights(seed=1), "a-1.ckpt")
    written(folder, tiny_weights(seed=2), "a-2.ckpt")
    wanted = Wanted("tiny", "1", "float32", 1, 64)
    repository = Repository(tmp_path / "models")
    now = "2000-01-01T00:00:00+00:00"
    with pytest.raises(ImportFailed, match="again: these are several checkpoints"):
        import_model(repository, ModelFolder(folder), wanted, now, silent)
    done = import_model(repository, ModelFolder(folder, "a-2.ckpt"), wanted, now, silent)
    assert "a-1" not in done.snapshot.manifest.source
    assert import_model(repository, ModelFolder(folder, "a-2.ckpt"), wanted, now, silent).was_there
    with pytest.raises(ImportFailed, match=r"gone\.ckpt is missing"):
        import_model(repository, ModelFolder(folder, "gone.ckpt"), wanted, now, silent)


def test_joined_matrices_are_refused_by_name(tmp_path: Path) -> None:
    file = written(tmp_path, {"model.layers.0.attention.w_qkv.weight": np.ones((4, 4), np.float32)})
    with pytest.raises(ImportFailed, match=r"w_qkv\.weight holds several matrices"):
        CheckpointFile(file)


def test_a_tensor_cut_short_is_named(tmp_path: Path) -> None:
    file = tmp_path / "m.ckpt"
    file.write_bytes(value("a.b", np.ones((2, 2), np.float32), content=b"12345678"))
    with pytest.raises(ImportFailed, match=r"a\.b: its 8 bytes do not fit \(2, 2\)"):
        CheckpointFile(file)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x0a\xff\xff\xff\xff\x7f", b"\x80" * 40])
def test_another_file_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "m.ckpt"
    file.write_bytes(content)
    with pytest.raises(ImportFailed, match=r"m\.ckpt is (empty|not a MindSpore checkpoint)"):
        CheckpointFile(file)


@given(st.data())
def test_no_damage_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = value("a", np.ones((2, 3), np.float32)) + value("b", np.ones(4, np.float32))
    cut = data.draw(st.integers(0, len(whole)))
    changed = bytearray(whole[:cut])
    for at in data.draw(st.lists(st.integers(0, max(0, cut - 1)), max_size=3)) if cut else ():
        changed[at] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.getbasetemp() / f"{os.getpid()}.ckpt"
    file.write_bytes(changed)
    try:
        opened = CheckpointFile(file)
    except ImportFailed:
        return
    for name, shape in opened.shapes.items():
        assert opened.read(name).shape == shape


def test_every_name_of_a_layer_is_told_from_a_strangers() -> None:
    for ours in tiny_weights("qwen2", tied=False):
        assert hugging_face_name(mindformers_name(ours)) == ours
    for name in ("model.layers.x.attention.wq.weight", "attention.wq.weight", "lm_head.weight"):
        assert hugging_face_name(name) == name


@pytest.mark.mindspore
@pytest.mark.parametrize("sealed", [False, True])
def test_mindspores_own_file_is_read(folder: Path, sealed: bool) -> None:
    import mindspore as ms

    weights = tiny_weights()
    saved = [{"name": mindformers_name(k), "data": ms.Tensor(v)} for k, v in weights.items()]
    more = {"epoch_num": 3, "lr": 0.5, "of": "a run"}
    file = str(folder / "m.ckpt")
    ms.save_checkpoint(saved, file, crc_check=sealed, append_dict=more)
    source = open_folder(folder, "origin")
    for name, values in weights.items():
        np.testing.assert_array_equal(source.read(name), values, err_msg=name)


def test_the_checksum_is_read_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ckpt, "_BLOCK", 100)
    file = written(folder, tiny_weights())
    content = file.read_bytes()
    file.write_bytes(content + b"crc_num" + zlib.crc32(content).to_bytes(10, "big"))
    assert CheckpointFile(file).shapes
