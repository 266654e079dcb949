"""What a model repository says of a version, wherever it is, and when it says nothing."""

import asyncio
from pathlib import Path
from threading import Event

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gateway.fleet.stock import Stock
from gateway.launch import repository
from gateway.launch.repository import stocked


def imported(root: Path, model: str, version: str) -> None:
    (root / model / version).mkdir(parents=True)
    (root / model / version / "manifest.toml").write_text("")


@pytest.mark.parametrize("scheme", ["", "file://", "local://"])
async def test_a_folder_has_what_has_a_manifest(tmp_path: Path, scheme: str) -> None:
    for version in ("1", "3"):
        imported(tmp_path, "m", version)
    imported(tmp_path, "n", "2")
    (tmp_path / "m" / "2").mkdir()  # an import that was never finished
    root = f"{scheme}{tmp_path}"
    assert await stocked(root, "m", "3") == Stock("3", True)
    assert await stocked(root, "m", "2") == Stock("2", False, ("1", "3"))
    assert await stocked(root, "o", "2") == Stock("2", False)


async def test_a_folder_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert await stocked(str(tmp_path / "none"), "m", "1") == Stock("1", False)


async def test_a_folder_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """Whoever is root may read everything: so it is a name that no file system takes."""
    found = await stocked(str(tmp_path / ("x" * 300)), "m", "1")
    assert found.has is None
    assert "File name too long" in found.doubt


async def test_a_store_is_asked_as_a_folder_is() -> None:
    store = fsspec.filesystem("memory")
    for version in ("1", "3"):
        store.pipe_file(f"/stocked/m/{version}/manifest.toml", b"")
    assert await stocked("memory://stocked/", "m", "3") == Stock("3", True)
    assert await stocked("memory://stocked", "m", "2") == Stock("2", False, ("1", "3"))
    store.pipe_file("/stocked/m/2/manifest.toml", b"")
    assert (await stocked("memory://stocked", "m", "2")).has


@pytest.mark.parametrize(
    ("root", "said"), [("nosuch://bucket/m", "nosuch"), ("http://127.0.0.1:1/m", "")]
)
async def test_a_store_that_fails_says_nothing(root: str, said: str) -> None:
    found = await stocked(root, "m", "1")
    assert (found.has, found.others) == (None, ())
    assert found.doubt
    assert said in found.doubt


async def test_one_that_may_not_be_listed_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no listing")

    monkeypatch.setattr(MemoryFileSystem, "glob", refuse)
    fsspec.filesystem("memory").pipe_file("/unlisted/m/1/manifest.toml", b"")
    assert await stocked("memory://unlisted", "m", "1") == Stock("1", True)
    assert await stocked("memory://unlisted", "m", "2") == Stock("2", False)


async def test_one_that_never_answers_says_nothing_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs = Event()

    def hang(*_: object, **__: object) -> None:
        hangs.wait()

    monkeypatch.setattr(MemoryFileSystem, "cat_file", hang)
    monkeypatch.setattr(repository, "LOOK_S", 0.01)
    ticks = asyncio.create_task(asyncio.sleep(0))
    found = await stocked("memory://hangs", "m", "1")
    assert ticks.done()
    assert found == Stock("1", None, doubt="no answer in 0.01 s")
    hangs.set()
