import errno
import fcntl
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backends.errors import SnapshotInvalid
from backends.snapshots import measured
from backends.snapshots.manifest import FILE_NAME, FileEntry, Manifest, render
from backends.snapshots.repository import (
    AlreadyExists,
    Repository,
    Snapshot,
    SnapshotInUse,
    Unreadable,
)
from tests.backends.snapshots.test_manifest import EXAMPLE

CONTENT = {"config.json": b"{}", "model.safetensors": b"weights" * 1000}


def _fill(folder: Path) -> None:
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)


def _describe(model: str, version: str) -> Callable[[tuple[FileEntry, ...]], Manifest]:
    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        return replace(EXAMPLE, model=model, version=version, files=files)

    return describe


def _write(repository: Repository, model: str = "tiny", version: str = "1") -> Snapshot:
    return repository.write(model, version, _fill, _describe(model, version))


def _visible(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.name != ".lock"}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "models")


# --- writing ---


def test_what_is_written_is_located_equal_and_verifies(repository: Repository) -> None:
    written = _write(repository)
    found = repository.locate("tiny", "1")
    assert found == written
    counted: list[int] = []
    repository.verify(found, counted.append)
    assert sum(counted) == sum(len(content) for content in CONTENT.values())
    assert {entry.name: entry.bytes for entry in found.manifest.files} == {
        name: len(content) for name, content in CONTENT.items()
    }


def test_a_snapshot_is_read_only(repository: Repository) -> None:
    folder = _write(repository).folder
    assert folder.stat().st_mode & 0o777 == 0o555
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}


def test_nothing_is_seen_before_all_of_it_is_there(repository: Repository) -> None:
    def fill(folder: Path) -> None:
        _fill(folder)
        assert repository.list() == ()
        assert not repository.holds("tiny", "1")

    repository.write("tiny", "1", fill, _describe("tiny", "1"))
    assert repository.holds("tiny", "1")


@pytest.mark.parametrize(
    "failure",
    [OSError(errno.ENOSPC, "No space left on device"), SnapshotInvalid("x"), KeyboardInterrupt()],
    ids=lambda failure: type(failure).__name__,
)
def test_an_import_that_fails_leaves_nothing(
    repository: Repository, failure: BaseException
) -> None:
    def fill(folder: Path) -> None:
        _fill(folder)
        raise failure

    with pytest.raises(type(failure)):
        repository.write("tiny", "1", fill, _describe("tiny", "1"))
    assert _visible(repository.root) == set()


def test_a_disk_that_fills_up_under_the_manifest_leaves_nothing(repository: Repository) -> None:
    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        repository.write("tiny", "1", _fill, describe)
    assert _visible(repository.root) == set()


def test_the_second_of_two_importers_finds_what_the_first_wrote(repository: Repository) -> None:
    def fill_late(folder: Path) -> None:
        (folder / "config.json").write_bytes(b"other")
        _write(Repository(repository.root))  # the first one finishes meanwhile

    with pytest.raises(AlreadyExists) as caught:
        repository.write("tiny", "1", fill_late, _describe("tiny", "1"))
    assert caught.value.snapshot == repository.locate("tiny", "1")
    assert (caught.value.snapshot.folder / "config.json").read_bytes() == CONTENT["config.json"]
    assert not [name for name in _visible(repository.root) if name.startswith(".")]


def test_versions_of_a_model_lie_side_by_side(repository: Repository) -> None:
    for model, version in (("b", "1"), ("a", "2"), ("a", "1")):
        _write(repository, model, version)
    found = [(entry.manifest.model, entry.manifest.version) for entry in _snapshots(repository)]
    assert found == [("a", "1"), ("a", "2"), ("b", "1")]


def _snapshots(repository: Repository) -> list[Snapshot]:
    return [entry for entry in repository.list() if isinstance(entry, Snapshot)]


# --- litter ---


def _litter(repository: Repository, name: str) -> Path:
    folder = repository.root / name
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"half of")
    folder.chmod(0o555)
    return folder


@pytest.mark.parametrize("name", [".importing-dead", ".removing-dead"])
def test_what_a_dead_process_left_is_cleared_by_the_next_import(
    repository: Repository, name: str
) -> None:
    folder = _litter(repository, name)
    _write(repository)
    assert not folder.exists()


def test_what_a_living_process_writes_is_left_alone(repository: Repository) -> None:
    folder = _litter(repository, ".importing-alive")
    owner = os.open(folder, os.O_RDONLY)
    fcntl.flock(owner, fcntl.LOCK_EX)
    _write(repository)
    assert (folder / "model.safetensors").exists()
    os.close(owner)
    repository.clear_litter()
    assert not folder.exists()


def test_an_import_under_way_is_no_litter_to_another(repository: Repository) -> None:
    def fill(folder: Path) -> None:
        _fill(folder)
        Repository(repository.root).clear_litter()
        assert (folder / "config.json").exists()

    repository.write("tiny", "1", fill, _describe("tiny", "1"))


def test_other_dot_files_are_nobodys_litter(repository: Repository) -> None:
    folder = _litter(repository, ".snapshots-of-the-file-system")
    repository.clear_litter()
    assert folder.exists()


# --- locating ---


def test_an_absent_snapshot_is_missed_with_the_command_that_imports_it(
    repository: Repository,
) -> None:
    with pytest.raises(SnapshotInvalid) as caught:
        repository.locate("tiny", "1")
    assert str(repository.root / "tiny" / "1") in str(caught.value)
    assert "sluicegate models import SOURCE --model tiny --version 1" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "version"), [("..", "1"), ("a", ".."), ("a/b", "1"), ("/etc", "1"), ("", "1")]
)
def test_no_name_leads_out_of_the_root(repository: Repository, model: str, version: str) -> None:
    for call in (repository.locate, repository.holds, repository.remove, _write_as(repository)):
        with pytest.raises(SnapshotInvalid, match="must be 1 to 128 letters"):
            call(model, version)
    assert not repository.root.exists()


def _write_as(repository: Repository) -> Callable[[str, str], Snapshot]:
    return lambda model, version: _write(repository, model, version)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "its manifest.toml is missing"),
        (b"", "model: is missing"),
        (b"\xff", "cannot be read"),
        (render(EXAMPLE).replace('"tiny"', '"other"').encode(), "says other 1"),
    ],
)
def test_an_unreadable_snapshot_is_refused_and_listed(
    repository: Repository, content: bytes | None, problem: str
) -> None:
    folder = repository.root / "tiny" / "1"
    folder.mkdir(parents=True)
    if content is not None:
        (folder / FILE_NAME).write_bytes(content)
    with pytest.raises(SnapshotInvalid, match=problem):
        repository.locate("tiny", "1")
    listed = repository.list()
    assert len(listed) == 1
    assert isinstance(listed[0], Unreadable)
    assert problem in listed[0].problem


def test_a_root_that_is_not_there_holds_nothing(repository: Repository) -> None:
    assert repository.list() == ()
    assert not repository.holds("tiny", "1")


# --- verifying ---


def _damage(folder: Path, name: str, content: bytes | None) -> None:
    folder.chmod(0o755)
    if content is None:
        (folder / name).unlink()
        return
    (folder / name).touch()
    (folder / name).chmod(0o644)
    (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("config.json", None, "config.json: is missing"),
        ("config.json", b"{} ", "config.json: has 3 bytes, not 2"),
        ("config.json", b"[]", "config.json: has sha256"),
        ("chat_template.jinja", b"{{ evil }}", "chat_template.jinja: is not in manifest.toml"),
    ],
)
def test_verify_names_the_first_file_that_is_not_as_written(
    repository: Repository, name: str, content: bytes | None, problem: str
) -> None:
    snapshot = _write(repository)
    _damage(snapshot.folder, name, content)
    with pytest.raises(SnapshotInvalid, match=problem):
        repository.verify(snapshot, lambda count: None)


def test_a_pipe_in_place_of_a_file_is_no_trap(repository: Repository) -> None:
    snapshot = _write(repository)
    _damage(snapshot.folder, "config.json", None)
    os.mkfifo(snapshot.folder / "config.json")
    with pytest.raises(SnapshotInvalid, match="it is not a plain file"):
        repository.verify(snapshot, lambda count: None)


def test_a_file_of_another_size_is_not_read(repository: Repository) -> None:
    snapshot = _write(repository)
    _damage(snapshot.folder, "config.json", bytes(10**6))
    counted: list[int] = []
    with pytest.raises(SnapshotInvalid):
        repository.verify(snapshot, counted.append)
    assert counted == []


# --- removing ---


def test_a_removed_version_is_gone_and_its_neighbours_stay(repository: Repository) -> None:
    _write(repository, "tiny", "1")
    kept = _write(repository, "tiny", "2")
    repository.remove("tiny", "1")
    assert repository.list() == (kept,)


def test_the_last_version_takes_the_models_folder_along(repository: Repository) -> None:
    _write(repository)
    repository.remove("tiny", "1")
    assert _visible(repository.root) == set()
    _write(repository)


def test_what_was_measured_goes_with_its_version(repository: Repository) -> None:
    for version in ("1", "2"):
        measured.keep(_write(repository, "tiny", version).folder, "cpu", 5)
    repository.remove("tiny", "1")
    assert measured.read(_write(repository).folder) == {}
    assert measured.read(repository.root / "tiny" / "2") == {"cpu": 5}


def test_a_held_snapshot_is_not_removed(repository: Repository) -> None:
    snapshot = _write(repository)
    with repository.hold(snapshot), repository.hold(snapshot):
        with pytest.raises(SnapshotInUse, match="tiny 1 is in use"):
            Repository(repository.root).remove("tiny", "1")
        repository.verify(snapshot, lambda count: None)
    repository.remove("tiny", "1")


def test_what_was_removed_cannot_be_held(repository: Repository) -> None:
    snapshot = _write(repository)
    repository.remove("tiny", "1")
    with pytest.raises(SnapshotInvalid, match="is being removed"), repository.hold(snapshot):
        pass


def test_a_lock_won_after_the_removal_holds_nothing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = _write(repository)
    lock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        snapshot.folder.rename(repository.root / ".removing-by-another")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(SnapshotInvalid, match="is being removed"), repository.hold(snapshot):
        pass


def test_removing_what_is_not_there_is_told(repository: Repository) -> None:
    with pytest.raises(SnapshotInvalid, match="no snapshot here"):
        repository.remove("tiny", "1")


def test_an_unreadable_snapshot_can_be_removed(repository: Repository) -> None:
    folder = repository.root / "tiny" / "1"
    folder.mkdir(parents=True)
    repository.remove("tiny", "1")
    assert not folder.exists()
