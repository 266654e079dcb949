"""The folder of the compiled data plane: found again while it is current, never after."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ".ci/compiled.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of all that is compiled, and how."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("gateway", "backends", "admin", "proto", ".ci"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def digest(tree: Path) -> str:
    made: str = runpy.run_path(str(tree / SCRIPT))["digest"]()
    return made


@pytest.mark.parametrize(
    "path", ["gateway/wire/heads.py", "gateway/records.py", "gateway/native.py", "setup.py", SCRIPT]
)
def test_another_source_is_another_folder(tree: Path, path: str) -> None:
    before = digest(tree)
    (tree / path).write_text((tree / path).read_text() + "\n# another\n")
    assert digest(tree) != before


def test_another_package_is_another_folder_because_it_holds_a_link_to_each(tree: Path) -> None:
    before = digest(tree)
    (tree / "gateway" / "new").mkdir()
    assert digest(tree) != before


def test_what_is_only_linked_may_change(tree: Path) -> None:
    before = digest(tree)
    (tree / "gateway" / "fleet" / "decide.py").write_text("# another\n")
    (tree / "gateway" / "wire" / "__pycache__").mkdir()
    assert digest(tree) == before


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import os; print(os.environ.get('PYTHONSAFEPATH'))"
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments, sys.executable, "-c", program],
        cwd=tree,
        env={**os.environ, "CC": "no-such-compiler", "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.live
def test_without_a_compiler_the_command_runs_as_it_is(tree: Path) -> None:
    done = run(tree)
    assert (done.returncode, done.stdout) == (0, "\n")
    assert "a C compiler (no-such-compiler) is not installed" in done.stderr
    assert list((tree / "var" / "compiled").iterdir()) == []


@pytest.mark.live
def test_without_a_compiler_nothing_runs_that_must_be_compiled(tree: Path) -> None:
    done = run(tree, "--must")
    assert (done.returncode, done.stdout) == (1, "")
