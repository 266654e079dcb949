"""What instances were seen to hold, beside a snapshot that never changes."""

from pathlib import Path

import pytest

from backends.snapshots import measured


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny" / "1"
    folder.mkdir(parents=True)
    return folder


def test_the_most_that_was_ever_held_is_kept_for_each_kind_of_device(folder: Path) -> None:
    assert measured.read(folder) == {}
    for kind, held in (("cpu", 5), ("ascend", 3), ("cpu", 9), ("cpu", 7)):
        measured.keep(folder, kind, held)
    assert measured.read(folder) == {"ascend": 3, "cpu": 9}
    assert [path.name for path in folder.parent.iterdir() if path != folder] == [".measured-1.toml"]


def test_the_snapshot_itself_is_not_touched(folder: Path) -> None:
    folder.chmod(0o555)
    measured.keep(folder, "cpu", 5)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["not = [toml", "bytes = 3", "[bytes]\ncpu = -1\ngpu = 'x'\nascend = true", "\udcff"]
)
def test_a_note_that_cannot_be_read_says_nothing_and_is_written_anew(
    folder: Path, text: str
) -> None:
    measured.place(folder).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert measured.read(folder) == {}
    measured.keep(folder, "cpu", 4)
    assert measured.read(folder) == {"cpu": 4}


def test_a_folder_that_cannot_be_written_is_told_and_left_without_a_draft(folder: Path) -> None:
    measured.place(folder).mkdir()  # also for root, whom no mode stops
    (measured.place(folder) / "x").touch()
    with pytest.raises(OSError, match="measured"):
        measured.keep(folder, "cpu", 4)
    assert sorted(path.name for path in folder.parent.iterdir()) == [".measured-1.toml", "1"]
