"""README.md and docs/ tell the truth about the code they were drawn from."""

import re
import subprocess
from pathlib import Path

import pytest

from docs.generate import PARTS, README, filled

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", PARTS)
def test_what_is_drawn_from_the_code_is_current(path: Path) -> None:
    assert filled(path) == path.read_text(), "run make docs"


@pytest.mark.parametrize(
    ("path", "name"), [(path, name) for path, parts in PARTS.items() for name in parts]
)
def test_every_part_says_something(path: Path, name: str) -> None:
    assert len(PARTS[path][name]().splitlines()) > 3


def test_no_placeholder_is_left() -> None:
    assert re.findall(r"^[A-Z]{4,}$", README.read_text(), re.MULTILINE) == []


def test_every_file_that_readme_names_is_there() -> None:
    named = re.findall(
        r"`((?:gateway|backends|admin|proto|tests|docs)/[\w/]+\.\w+)`", README.read_text()
    )
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_every_make_target_that_readme_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)\b", README.read_text(), re.M)) <= targets


def test_ci_calls_exactly_the_test_command_of_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"^exec (.*)$", script, re.MULTILINE) == ["make test"]
    assert "\nmake test " in README.read_text()


def test_the_lock_names_no_registry() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"https?://|--index|--find-links", lock)


def test_no_file_names_a_place_on_somebody_s_machine() -> None:
    pattern = "/(work|root|home)/[a-z]"
    found = subprocess.run(
        ["git", "grep", "-nIE", pattern, "--", ":!tests/test_docs.py", ":!tests/http_cases.py"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert found.stdout == ""
