"""A repository in an object store: fsspec's own store in memory stands for all of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import known_implementations

from backends.errors import DependencyMissing, SnapshotInvalid
from backends.snapshots.manifest import FileEntry, Manifest
from backends.snapshots.remote import RemoteRepository, StoreFailed, fetch
from backends.snapshots.repository import (
    AlreadyExists,
    Repository,
    Snapshot,
    SnapshotInUse,
    Unreadable,
)
from backends.snapshots.roots import Url
from backends.snapshots.steps import silent
from tests.backends.snapshots.test_manifest import EXAMPLE

STORE = fsspec.filesystem("memory")
ROOT = Url("memory://models")
FILES = {"config.json": b"{}", "model.safetensors": b"weights" * 1000}


@pytest.fixture
def remote() -> Iterator[RemoteRepository]:
    yield RemoteRepository(ROOT)
    if STORE.exists("/models"):
        STORE.rm("/models", recursive=True)


def _write(remote: RemoteRepository, version: str = "1", content: bytes = b"") -> Snapshot:
    return remote.write("tiny", version, _fill(content), _describe(version))


def _fill(content: bytes = b"") -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        for name, ours in FILES.items():
            (folder / name).write_bytes(content or ours)

    return fill


def _describe(version: str) -> Callable[[tuple[FileEntry, ...]], Manifest]:
    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        return replace(EXAMPLE, model="tiny", version=version, files=files)

    return describe


def _keys() -> list[str]:
    return sorted(STORE.find("/models")) if STORE.exists("/models") else []


# --- writing and reading ---


def test_what_is_written_is_found_equal_and_verifies(remote: RemoteRepository) -> None:
    written = _write(remote)
    assert remote.locate("tiny", "1") == written
    assert remote.list() == (written,)
    counted: list[int] = []
    remote.verify(written, counted.append)
    assert sum(counted) == sum(map(len, FILES.values()))


def test_a_cut_upload_is_seen_by_nobody_and_the_next_one_finishes(
    remote: RemoteRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(type(STORE), "pipe_file", _refuse)
        with pytest.raises(StoreFailed, match="models/tiny/1: the line is dead"):
            _write(remote)
    assert _keys(), "files were sent before the manifest"
    assert remote.list() == ()
    assert not remote.holds("tiny", "1")
    with pytest.raises(SnapshotInvalid, match=r"no snapshot here; import it: .* --root memory:"):
        remote.locate("tiny", "1")
    remote.verify(_write(remote), lambda count: None)


def _refuse(*words: Any, **named: Any) -> None:
    raise RuntimeError("the line is dead")


def test_of_two_importers_one_wins_and_no_file_of_the_other_is_taken_for_its_own(
    remote: RemoteRepository,
) -> None:
    def fill_late(folder: Path) -> None:
        _fill(b"other")(folder)
        _write(RemoteRepository(ROOT))  # the first one finishes meanwhile

    with pytest.raises(AlreadyExists) as caught:
        remote.write("tiny", "1", fill_late, _describe("1"))
    assert caught.value.snapshot == remote.locate("tiny", "1")
    remote.verify(caught.value.snapshot, lambda count: None)


def test_a_changed_and_a_missing_file_are_named(remote: RemoteRepository) -> None:
    written = _write(remote)
    key = next(key for key in _keys() if key.endswith("config.json"))
    STORE.pipe_file(key, b"[]")
    with pytest.raises(SnapshotInvalid, match=r"config\.json has sha256"):
        remote.verify(written, lambda count: None)
    STORE.rm_file(key)
    with pytest.raises(SnapshotInvalid, match=r"config\.json is missing"):
        remote.verify(written, lambda count: None)


def test_a_damaged_manifest_is_listed_with_its_reason(remote: RemoteRepository) -> None:
    _write(remote)
    STORE.pipe_file("/models/tiny/1/manifest.toml", b"format = 1")
    (found,) = remote.list()
    assert isinstance(found, Unreadable)
    assert "model: is missing" in found.problem
    remote.remove("tiny", "1")
    assert remote.list() == ()


def test_a_removed_version_leaves_nothing_and_its_neighbours_stay(
    remote: RemoteRepository,
) -> None:
    _write(remote)
    kept = _write(remote, "2")
    remote.remove("tiny", "1")
    assert remote.list() == (kept,)
    assert all(key.startswith("/models/tiny/2/") for key in _keys())
    with pytest.raises(SnapshotInvalid, match="no snapshot here"):
        remote.remove("tiny", "1")


def test_a_version_is_not_removed_while_a_lease_counts(remote: RemoteRepository) -> None:
    now = [1000.0]
    timed = RemoteRepository(ROOT, lambda: now[0])
    _write(timed)
    timed.lease("tiny", "1", "a", 600.0)
    timed.lease("tiny", "1", "b", 600.0)
    with pytest.raises(SnapshotInUse, match="tiny 1 is in use by a, b: drain and stop them"):
        timed.remove("tiny", "1")
    now[0] = 1300.0
    timed.lease("tiny", "1", "b", 600.0)  # once more
    now[0] = 1600.0
    with pytest.raises(SnapshotInUse, match="in use by b:"):
        timed.remove("tiny", "1")
    timed.release("tiny", "1", "b")
    timed.release("tiny", "1", "b")
    timed.verify(timed.locate("tiny", "1"), lambda count: None)
    timed.remove("tiny", "1")
    assert _keys() == []


def test_a_lease_that_cannot_be_read_counts(remote: RemoteRepository) -> None:
    _write(remote)
    STORE.pipe_file("/models/tiny/1/leases/a", b"soon")
    with pytest.raises(SnapshotInUse, match="in use by a"):
        remote.remove("tiny", "1")


@pytest.mark.parametrize("version", ["..", "a/b", ""])
def test_no_name_leads_out_of_the_root(remote: RemoteRepository, version: str) -> None:
    for call in (remote.locate, remote.holds, remote.remove):
        with pytest.raises(SnapshotInvalid, match="must be 1 to 128 letters"):
            call("tiny", version)


def test_a_store_that_needs_a_package_or_does_not_exist_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        known_implementations,
        "s3",
        {"class": "nowhere.S3", "err": "Install s3fs to access S3"},
    )
    with pytest.raises(DependencyMissing, match=r"s3://b/m: Install s3fs"):
        RemoteRepository(Url("s3://b/m"))
    with pytest.raises(SnapshotInvalid, match="gopher"):
        RemoteRepository(Url("gopher://b/m"))


# --- fetching ---


@pytest.fixture
def local(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "cache")


def test_a_fetched_snapshot_is_the_remote_one_byte_by_byte(
    remote: RemoteRepository, local: Repository
) -> None:
    written = _write(remote)
    here = fetch(remote, local, "tiny", "1", silent)
    assert here.manifest == written.manifest
    local.verify(here, lambda count: None)


def test_a_repository_that_was_copied_into_the_store_as_it_was_is_read(
    remote: RemoteRepository, local: Repository, tmp_path: Path
) -> None:
    made = Repository(tmp_path).write("tiny", "1", _fill(), _describe("1"))
    for path in made.folder.iterdir():
        STORE.pipe_file(f"/models/tiny/1/{path.name}", path.read_bytes())
    remote.verify(remote.locate("tiny", "1"), lambda count: None)
    assert fetch(remote, local, "tiny", "1", silent).manifest == made.manifest


def test_what_is_here_is_not_fetched_again_and_serves_when_the_store_does_not_answer(
    remote: RemoteRepository, local: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(remote)
    here = fetch(remote, local, "tiny", "1", silent)
    monkeypatch.setattr(type(STORE), "get_file", _refuse)
    assert fetch(remote, local, "tiny", "1", silent) == here
    monkeypatch.setattr(type(STORE), "cat_file", _refuse)
    assert fetch(remote, local, "tiny", "1", silent) == here
    with pytest.raises(StoreFailed, match="the line is dead"):
        fetch(remote, local, "tiny", "2", silent)


def test_another_content_under_the_same_name_is_refused(
    remote: RemoteRepository, local: Repository
) -> None:
    _write(remote)
    fetch(remote, local, "tiny", "1", silent)
    remote.remove("tiny", "1")
    _write(remote, content=b"other")
    with pytest.raises(SnapshotInvalid, match="is another tiny 1 than that of memory://models"):
        fetch(remote, local, "tiny", "1", silent)


def test_a_file_that_came_damaged_is_kept_by_nobody(
    remote: RemoteRepository, local: Repository
) -> None:
    _write(remote)
    key = next(key for key in _keys() if key.endswith("model.safetensors"))
    STORE.pipe_file(key, b"Weights" * 1000)
    with pytest.raises(SnapshotInvalid, match=r"model\.safetensors came with another sha256"):
        fetch(remote, local, "tiny", "1", silent)
    assert local.list() == ()
