"""A compiled build counts only when it was made of the sources that are here."""

import shutil
from pathlib import Path

from tests.bench.programs import ROOT, missing_build


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
