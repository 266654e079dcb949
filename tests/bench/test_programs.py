"""A compiled build counts only when it was made of the sources that are here."""

import os
import shutil
from pathlib import Path

from tests.bench.programs import ROOT, missing_build, newest_build


def build(folder: Path) -> None:
    shutil.copytree(ROOT / "gateway", folder / "gateway", ignore=shutil.ignore_patterns("*.so"))


def test_a_folder_without_compiled_modules_is_no_build(tmp_path: Path) -> None:
    build(tmp_path)
    assert "no compiled module" in missing_build(tmp_path)
    assert "no compiled module" in missing_build(tmp_path / "none")


def test_a_build_of_other_sources_is_refused_by_name(tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "gateway" / "errors.so").touch()
    assert missing_build(tmp_path) == ""
    (tmp_path / "gateway" / "errors.py").write_text("changed = 1\n")
    assert "gateway/errors.py was changed" in missing_build(tmp_path)
    (tmp_path / "gateway" / "errors.py").unlink()
    assert "gateway/errors.py was changed" in missing_build(tmp_path)


def test_the_newest_build_is_the_one_to_measure(tmp_path: Path) -> None:
    assert newest_build(tmp_path) == tmp_path
    for age, name in ((30, "a"), (10, "b"), (20, "c")):
        (tmp_path / name / "gateway").mkdir(parents=True)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    assert newest_build(tmp_path) == tmp_path / "b"
