"""The reading order of README.md is the import order, and pure files stay pure."""

import re
from pathlib import Path

import pytest

from docs.generate import files, imports, module

ROOT = Path(__file__).parents[1]
LISTED = re.findall(r"^- `([\w/]+\.py)` - ", (ROOT / "README.md").read_text(), re.MULTILINE)
IMPURE = {
    "aiohttp",
    "asyncio",
    "grpc",
    "logging",
    "mindspore",
    "os",
    "prometheus_client",
    "socket",
    "subprocess",
    "threading",
    "time",
    "uvloop",
}


def text(path: str) -> str:
    return (ROOT / path).read_text()


def says_pure(path: str) -> bool:
    return bool(re.search(r"^Floor [01](?:, |.*)pure", text(path), re.MULTILINE))


def test_every_file_is_listed_once_and_every_listed_file_exists() -> None:
    assert len(set(LISTED)) == len(LISTED)
    assert sorted(LISTED) == files()


@pytest.mark.parametrize("path", LISTED)
def test_a_file_imports_only_what_is_above_it(path: str) -> None:
    below = {module(other) for other in LISTED[LISTED.index(path) :]}
    assert imports(path) & below == set()


@pytest.mark.parametrize("path", LISTED)
def test_a_file_says_on_which_floor_it_stands(path: str) -> None:
    assert re.search(r"^Floor \d[,.: ]", text(path), re.MULTILINE)


@pytest.mark.parametrize("path", [path for path in LISTED if says_pure(path)])
def test_a_pure_file_imports_nothing_that_can_wait_or_tell_the_time(path: str) -> None:
    assert {name.partition(".")[0] for name in imports(path)} & IMPURE == set()
    # `from random import Random` names a type; `import random` is a hidden source of chance.
    assert "import random\n" not in text(path)
