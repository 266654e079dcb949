"""A compile cache is used again only if it is whole and nobody died of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from backends.engines.llm.cache import CompileCache, key

DIES = """
import os, pathlib, sys
from backends.engines.llm.cache import CompileCache
CompileCache(pathlib.Path(sys.argv[1]), "k")
os._exit(0)  # without any cleaning up
"""


def compiled(root: Path, text: str = "graph") -> None:
    with CompileCache(root, "k") as cache:
        assert not cache.warm
        (cache.folder / "graph").write_text(text)


def fails(root: Path, failure: type[Exception]) -> None:
    with CompileCache(root, "k") as cache:
        (cache.folder / "half").touch()
        raise failure


def dies(root: Path) -> None:
    """A process that opens the cache and is gone before its load has ended."""
    # Not a fork: another test may have imported MindSpore, and a fork of that hangs.
    subprocess.run([sys.executable, "-c", DIES, str(root)], check=True)


def test_graphs_that_were_all_compiled_are_found_again(tmp_path: Path) -> None:
    compiled(tmp_path)
    for _ in range(2):
        with CompileCache(tmp_path, "k") as cache:
            assert cache.warm
            assert (cache.folder / "graph").read_text() == "graph"


def test_graphs_are_compiled_anew_under_another_name(tmp_path: Path) -> None:
    compiled(tmp_path)
    with CompileCache(tmp_path, "other") as cache:
        assert not cache.warm
        assert list(cache.folder.iterdir()) == []


def test_a_compile_that_failed_leaves_nothing_to_find(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        fails(tmp_path, MemoryError)
    compiled(tmp_path)


def test_a_process_that_dies_while_it_compiles_leaves_nothing_to_find(tmp_path: Path) -> None:
    dies(tmp_path)
    compiled(tmp_path)
    assert visible(tmp_path) == ["k"]


def test_a_cache_that_a_load_failed_with_is_thrown_away(tmp_path: Path) -> None:
    compiled(tmp_path, "corrupt")
    with pytest.raises(RuntimeError):
        fails(tmp_path, RuntimeError)
    compiled(tmp_path)
    with CompileCache(tmp_path, "k") as cache:
        assert (cache.folder / "graph").read_text() == "graph"


def test_a_cache_that_a_process_died_with_is_thrown_away(tmp_path: Path) -> None:
    compiled(tmp_path, "crashes")
    dies(tmp_path)
    compiled(tmp_path)
    assert visible(tmp_path) == ["k"]


def test_two_processes_may_read_at_once(tmp_path: Path) -> None:
    compiled(tmp_path)
    with CompileCache(tmp_path, "k") as one, CompileCache(tmp_path, "k") as other:
        assert one.warm
        assert other.warm


def test_two_processes_may_compile_at_once_and_the_first_result_stays(tmp_path: Path) -> None:
    with CompileCache(tmp_path, "k") as slow:
        (slow.folder / "graph").write_text("slow")
        compiled(tmp_path, "quick")
        assert (slow.folder / "graph").exists()  # it lives, so nobody clears it away
    with CompileCache(tmp_path, "k") as cache:
        assert (cache.folder / "graph").read_text() == "quick"
    assert visible(tmp_path) == ["k"]


def test_a_cache_not_to_be_trusted_stays_for_the_one_who_still_reads_it(tmp_path: Path) -> None:
    compiled(tmp_path)
    with CompileCache(tmp_path, "k") as reader:
        dies(tmp_path)
        with CompileCache(tmp_path, "k") as cache:
            assert not cache.warm
        assert (reader.folder / "graph").exists()
    compiled(tmp_path)


def visible(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name != ".lock"]


def test_the_name_depends_on_every_part() -> None:
    parts = {"weights": "abc", "slots": 4}
    names = {key(parts), key({**parts, "slots": 8}), key({**parts, "weights": "abd"})}
    assert len(names) == 3
    assert key(parts) == key(dict(reversed(parts.items())))
