import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from backends.errors import SnapshotInvalid
from backends.snapshots.folder import open_folder
from backends.snapshots.importing import Imported, differences, import_model, import_source
from backends.snapshots.manifest import LlmManifest, Manifest
from backends.snapshots.repository import Repository
from backends.snapshots.source import ImportFailed, Source
from backends.snapshots.steps import OnBytes, silent
from backends.snapshots.transformer import memory_needed_bytes, read_config
from backends.snapshots.wanted import GgufFile, Locator, ModelFolder, Release, Wanted
from tests.backends.snapshots.tiny_gguf import write_tiny_gguf
from tests.tiny import CHAT_TEMPLATE, tiny_config, tiny_weights, write_tiny_folder

NOW = "2026-01-02T03:04:05+00:00"
NO_TEMPLATE: dict[str, Any] = {"tokenizer.chat_template": None}
WANTED = Wanted("tiny", "1", "float32", slots=2, max_seq_len=128)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "models")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tiny_folder(tmp_path / "tiny")


def _import(repository: Repository, folder: Path, **changes: Any) -> Imported:
    wanted = replace(WANTED, **changes)
    return import_model(repository, ModelFolder(folder), wanted, NOW, silent)


def test_a_folder_becomes_a_snapshot_that_verifies(repository: Repository, folder: Path) -> None:
    snapshot = _import(repository, folder).snapshot
    repository.verify(snapshot, lambda count: None)
    manifest = snapshot.manifest
    assert isinstance(manifest, LlmManifest)
    assert (manifest.architecture, manifest.dtype, manifest.kv_policy) == (
        "llama",
        "float32",
        "preallocated",
    )
    assert (manifest.slots, manifest.max_seq_len, manifest.created) == (2, 128, NOW)
    shape = read_config(tiny_config())
    assert manifest.memory_needed_bytes == memory_needed_bytes(shape, 2, 128)
    assert read_config(json.loads((snapshot.folder / "config.json").read_text())) == shape
    assert (snapshot.folder / "chat_template.jinja").read_text() == CHAT_TEMPLATE
    generation = json.loads((snapshot.folder / "generation_config.json").read_text())
    assert generation == {"bos_token_id": 1, "eos_token_id": [2]}
    for name, values in load_file(snapshot.folder / "model.safetensors").items():
        np.testing.assert_array_equal(values, tiny_weights()[name])


def test_gguf_shards_and_whole_folder_give_the_same_weights(
    repository: Repository, tmp_path: Path
) -> None:
    shards = write_tiny_folder(tmp_path / "shards", shards=3)
    whole = write_tiny_folder(tmp_path / "whole")
    file = write_tiny_gguf(tmp_path / "tiny.gguf")
    locators: tuple[Locator, ...] = (ModelFolder(shards), ModelFolder(whole), GgufFile(file))
    entries = set()
    for i, locator in enumerate(locators):
        wanted = replace(WANTED, version=str(i))
        files = import_model(repository, locator, wanted, NOW, silent).snapshot.manifest.files
        entries |= {entry for entry in files if entry.name != "tokenizer.json"}
    assert len(entries) == 4, "config, generation config, template and weights, each only one"


def test_a_model_without_template_has_no_template_file(
    repository: Repository, tmp_path: Path
) -> None:
    file = write_tiny_gguf(tmp_path / "tiny.gguf", **NO_TEMPLATE)
    snapshot = import_model(repository, GgufFile(file), WANTED, NOW, silent).snapshot
    assert not (snapshot.folder / "chat_template.jinja").exists()


@pytest.mark.parametrize(("dtype", "bytes_each"), [("float16", 2), ("bfloat16", 2)])
def test_the_dtype_asked_for_is_the_dtype_written(
    repository: Repository, folder: Path, dtype: str, bytes_each: int
) -> None:
    snapshot = _import(repository, folder, dtype=dtype).snapshot
    assert isinstance(snapshot.manifest, LlmManifest)
    assert snapshot.manifest.dtype == dtype
    assert json.loads((snapshot.folder / "config.json").read_text())["torch_dtype"] == dtype
    size = (snapshot.folder / "model.safetensors").stat().st_size
    values = sum(values.size for values in tiny_weights().values())
    assert 0 < size - values * bytes_each < 10_000, "the header, and nothing twice"
    # Whatever is stored, float32 is what an instance holds.
    needed = memory_needed_bytes(read_config(tiny_config()), 2, 128)
    assert snapshot.manifest.memory_needed_bytes == needed


def test_a_promise_not_asked_for_is_what_the_model_was_trained_for(
    repository: Repository, folder: Path
) -> None:
    manifest = _import(repository, folder, max_seq_len=None).snapshot.manifest
    assert isinstance(manifest, LlmManifest)
    assert manifest.max_seq_len == 256


def test_a_long_context_is_promised_only_when_asked_for(
    repository: Repository, folder: Path
) -> None:
    source = open_folder(folder, "folder tiny sha256:1")
    source = replace(source, shape=replace(source.shape, context=8192))
    for i, (asked, promised) in enumerate([(None, 2048), (8192, 8192)]):
        wanted = replace(WANTED, version=str(i), max_seq_len=asked)
        manifest = import_source(repository, source, wanted, NOW, silent).snapshot.manifest
        assert isinstance(manifest, LlmManifest)
        assert manifest.max_seq_len == promised


def test_more_positions_than_the_model_knows_are_refused(
    repository: Repository, folder: Path
) -> None:
    with pytest.raises(ImportFailed, match="max_seq_len: must be at most 256"):
        _import(repository, folder, max_seq_len=257)
    assert not repository.holds("tiny", "1")


# --- what is there already ---


def test_the_same_import_again_changes_nothing(repository: Repository, folder: Path) -> None:
    first = _import(repository, folder)
    again = _import(repository, folder, max_seq_len=None)
    assert not first.was_there
    assert again == Imported(first.snapshot, was_there=True)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"slots": 3}, "it has slots 2, not 3"),
        ({"max_seq_len": 64}, "it has max_seq_len 128, not 64"),
        ({"dtype": "float16"}, "it has dtype float32, not float16"),
    ],
)
def test_other_promises_under_the_same_version_are_refused(
    repository: Repository, folder: Path, changes: dict[str, Any], problem: str
) -> None:
    _import(repository, folder)
    with pytest.raises(ImportFailed, match=f"{problem}: import it under another version"):
        _import(repository, folder, **changes)


def test_other_content_under_the_same_version_is_refused(
    repository: Repository, folder: Path, tmp_path: Path
) -> None:
    before = _import(repository, folder)
    other = write_tiny_folder(tmp_path / "other", seed=1)
    with pytest.raises(
        ImportFailed, match=r"it was made from folder tiny .*, this is folder other"
    ):
        _import(repository, other)
    assert repository.locate("tiny", "1") == before.snapshot


def test_a_damaged_snapshot_is_not_taken_for_the_same(repository: Repository, folder: Path) -> None:
    place = _import(repository, folder).snapshot.folder
    place.chmod(0o755)
    (place / "manifest.toml").unlink()
    with pytest.raises(SnapshotInvalid, match="remove this folder and import it again"):
        _import(repository, folder)


def test_two_importers_of_the_same_both_succeed(repository: Repository, folder: Path) -> None:
    _import_while_another(repository, folder, slots=2)


def test_of_two_importers_that_differ_the_second_is_refused(
    repository: Repository, folder: Path
) -> None:
    with pytest.raises(ImportFailed, match="it has slots 3, not 2"):
        _import_while_another(repository, folder, slots=3)


def _import_while_another(repository: Repository, folder: Path, slots: int) -> None:
    @contextmanager
    def overtaken(what: str, total_bytes: int) -> Iterator[OnBytes]:
        if what == "converting weights":
            _import(Repository(repository.root), folder, slots=slots)
        yield lambda count: None

    imported = import_model(repository, ModelFolder(folder), WANTED, NOW, overtaken)
    assert imported.was_there
    assert repository.list() == (imported.snapshot,)


def test_a_release_that_is_there_is_not_fetched_again(repository: Repository, folder: Path) -> None:
    source = open_folder(folder, "pypi:tiny==1 tiny.gguf sha256:1")
    import_source(repository, source, WANTED, NOW, silent)
    again = import_model(repository, Release("tiny==1"), WANTED, NOW, _untouched)
    assert again.was_there
    with pytest.raises(ImportFailed, match="it has slots 2, not 4"):
        import_model(repository, Release("tiny==1"), replace(WANTED, slots=4), NOW, _untouched)


@contextmanager
def _untouched(what: str, total_bytes: int) -> Iterator[OnBytes]:
    raise AssertionError(f"nothing is to be done, least of all: {what}")
    yield


def test_differences_lists_all_of_them(repository: Repository, folder: Path) -> None:
    manifest: Manifest = _import(repository, folder).snapshot.manifest
    wanted = Wanted("tiny", "1", "float16", slots=9, max_seq_len=64)
    assert len(differences(manifest, wanted, "folder x sha256:0")) == 4
    assert differences(manifest, WANTED, manifest.source) == ()


# --- failing ---


def _broken(source: Source, failure: Exception) -> Source:
    def read(name: str) -> NDArray[np.float32]:
        if name == "model.norm.weight":
            raise failure
        return source.read(name)

    return replace(source, read=read)


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), ImportFailed("x is damaged")]
)
def test_a_failure_at_the_last_tensor_leaves_nothing(
    repository: Repository, folder: Path, failure: Exception
) -> None:
    source = _broken(open_folder(folder, "folder tiny sha256:1"), failure)
    with pytest.raises(type(failure)):
        import_source(repository, source, WANTED, NOW, silent)
    assert [path.name for path in repository.root.iterdir()] == [".lock"]


def test_a_disk_without_room_is_refused_before_anything_is_written(
    repository: Repository, folder: Path
) -> None:
    source = open_folder(folder, "folder tiny sha256:1")
    endless = replace(source, shape=replace(source.shape, vocab=2**50))
    with pytest.raises(ImportFailed, match=r"has room for \d+ bytes; \d+ are needed"):
        import_source(repository, endless, WANTED, NOW, silent)
    assert list(repository.root.iterdir()) == []


def test_every_byte_of_every_step_is_told(repository: Repository, folder: Path) -> None:
    told: dict[str, list[int]] = {}

    @contextmanager
    def steps(what: str, total_bytes: int) -> Iterator[OnBytes]:
        told[what] = [total_bytes, 0]

        def on_bytes(count: int) -> None:
            told[what][1] += count

        yield on_bytes

    import_model(repository, ModelFolder(folder), WANTED, NOW, steps)
    assert list(told) == ["checksum of tiny", "converting weights", "checksums"]
    assert all(total == done > 0 for total, done in told.values()), told
