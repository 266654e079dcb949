"""Imports that are killed, find no room, or meet: see trials.py for how."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from backends.snapshots.repository import Repository
from tests.tiny import write_tiny_folder

TOP = Path(__file__).parents[3]


def _try(trial: str, root: Path) -> None:
    program = [sys.executable, "-m", "tests.backends.snapshots.trials", trial, str(root)]
    done = subprocess.run(program, cwd=TOP, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_an_import_killed_at_any_step_leaves_all_or_nothing(tmp_path: Path) -> None:
    _try("killed", tmp_path)


def test_an_import_refused_room_at_any_step_leaves_all_or_nothing(tmp_path: Path) -> None:
    _try("full", tmp_path)


def test_of_many_importers_at_once_one_wins_and_no_two_are_mixed(tmp_path: Path) -> None:
    _try("many", tmp_path)


@pytest.mark.parametrize("room", [100, 10_000, 200_000])
def test_a_command_that_may_write_no_more_fails_with_a_sentence_and_keeps_nothing(
    tmp_path: Path, room: int
) -> None:
    """The kernel refuses what goes beyond `room` bytes of one file, in the middle of a write."""
    write_tiny_folder(tmp_path / "tiny")
    root = tmp_path / "models"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    words = ["models", "import", str(tmp_path / "tiny"), "--model", "tiny", "--version", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", *words, "--root", str(root)],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limited,
    )
    assert done.returncode == 1, done.stderr
    assert "Error: no room to write: nothing was kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert Repository(root).list() == ()
    assert [path.name for path in root.iterdir()] == [".lock"]
