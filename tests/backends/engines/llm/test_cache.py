"""A compile cache is used again only if it is whole and nobody died of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.engines.llm.cache import KEPT, CompileCache, key
from backends.errors import LoadFailed

DIES = """
import os, pathlib, sys
from backends.engines.llm.cache import CompileCache
cache = CompileCache(pathlib.Path(sys.argv[1]), "k")
with cache.running():
    os._exit(0)  # without any cleaning up
"""

DIES_BEFORE = """
import os, pathlib, sys
from backends.engines.llm.cache import CompileCache
CompileCache(pathlib.Path(sys.argv[1]), "k")
os._exit(0)
"""

STOPPED = """
import pathlib, sys
from backends import commands
from backends.engines.llm.cache import CompileCache
from backends.living import Ending

async def run(settings):
    return Ending(0, abrupt=True)

commands._run = run
cache = CompileCache(pathlib.Path(sys.argv[1]), "k")
with cache.running():
    commands.instance(["--model", "m", "--version", "1"])
"""


def compiled(root: Path, text: str = "graph") -> None:
    with CompileCache(root, "k") as cache:
        assert not cache.warm
        (cache.folder / "graph").write_text(text)


def fails(root: Path, failure: type[Exception]) -> None:
    with CompileCache(root, "k") as cache:
        (cache.folder / "half").touch()
        with cache.running():
            raise failure


def dies(root: Path, how: str = DIES) -> None:
    """A process that opens the cache and is gone before its load has ended."""
    # Not a fork: another test may have imported MindSpore, and a fork of that hangs.
    subprocess.run([sys.executable, "-c", how, str(root)], check=True)


def stopped(root: Path) -> None:
    with CompileCache(root, "k") as cache:
        with cache.running():
            pass
        raise LoadFailed("stopped while it was loading")


def is_warm(root: Path) -> bool:
    with CompileCache(root, "k") as cache:
        return cache.warm


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


@pytest.mark.parametrize("how", [DIES_BEFORE, STOPPED])
def test_who_ends_as_told_or_before_a_graph_ran_leaves_the_cache_as_it_was(
    tmp_path: Path, how: str
) -> None:
    compiled(tmp_path)
    dies(tmp_path, how)
    assert is_warm(tmp_path)


def test_a_load_that_ends_between_two_graphs_leaves_the_cache_as_it_was(tmp_path: Path) -> None:
    compiled(tmp_path)
    with pytest.raises(LoadFailed):
        stopped(tmp_path)
    assert is_warm(tmp_path)
    assert not list((tmp_path / "k").glob(".reading-*"))


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


@pytest.mark.parametrize("damage", [b"", b"gr", b"grapf", b"graph and more"])
def test_a_file_that_is_not_what_was_compiled_is_compiled_anew(
    tmp_path: Path, damage: bytes
) -> None:
    compiled(tmp_path)
    (tmp_path / "k" / "graph").write_bytes(damage)
    compiled(tmp_path)
    with CompileCache(tmp_path, "k") as cache:
        assert cache.warm


@pytest.mark.parametrize("sums", [None, "", "[]", "{", '{"graph": 1}', '{"gone": "00"}'])
def test_a_folder_without_its_checksums_is_compiled_anew(tmp_path: Path, sums: str | None) -> None:
    compiled(tmp_path)
    file = tmp_path / "k" / ".sums"
    file.unlink() if sums is None else file.write_text(sums)
    compiled(tmp_path)
    assert visible(tmp_path) == ["k"]


def test_a_file_that_is_gone_is_compiled_anew(tmp_path: Path) -> None:
    compiled(tmp_path)
    (tmp_path / "k" / "graph").unlink()
    compiled(tmp_path)


def used(root: Path, name: str, at_ns: int) -> None:
    with CompileCache(root, name):
        pass
    os.utime(root / name, ns=(at_ns, at_ns))  # clocks of file systems are coarse


def test_of_a_model_the_folders_used_last_are_kept(tmp_path: Path) -> None:
    names = [key("m", {"slots": slots}) for slots in range(KEPT + 3)]
    other = [key("other", {"slots": slots}) for slots in range(2)]
    for at, name in enumerate([*other, *names[:KEPT]]):
        used(tmp_path, name, at)
    used(tmp_path, names[0], KEPT + 10)  # read again, so the second is the oldest now
    for at, name in enumerate(names[KEPT:], KEPT + 11):
        used(tmp_path, name, at)
    kept = {*other, names[0], *names[4:]}
    assert set(visible(tmp_path)) == kept
    assert len(kept) == KEPT + len(other)


def test_what_is_not_a_folder_of_graphs_stays(tmp_path: Path) -> None:
    (tmp_path / "fetched").mkdir()
    (tmp_path / "m.baseline").write_text("")
    old = "0123456789abcdef01234567"  # as older programs named it
    (tmp_path / old).mkdir()
    os.utime(tmp_path / old, ns=(0, 0))
    for slots in range(KEPT):
        used(tmp_path, key("m", {"slots": slots}), slots + 1)
    assert {"fetched", "m.baseline"} <= set(visible(tmp_path))
    assert old not in visible(tmp_path)


def test_a_folder_that_somebody_reads_is_not_removed(tmp_path: Path) -> None:
    names = [key("m", {"slots": slots}) for slots in range(KEPT + 1)]
    used(tmp_path, names[0], 0)
    with CompileCache(tmp_path, names[0]) as reader:
        os.utime(tmp_path / names[0], ns=(0, 0))
        for at, name in enumerate(names[1:], 1):
            used(tmp_path, name, at)
        assert reader.warm
        assert names[0] in visible(tmp_path)
    used(tmp_path, names[1], 99)
    assert names[0] in visible(tmp_path)  # the end of a use is a use
    assert len(visible(tmp_path)) == KEPT


def test_the_name_depends_on_the_model_and_on_every_part() -> None:
    parts = {"weights": "abc", "slots": 4}
    names = {
        key("m", parts),
        key("n", parts),
        key("m", {**parts, "slots": 8}),
        key("m", {**parts, "weights": "abd"}),
    }
    assert len(names) == 4
    assert key("m", parts) == key("m", dict(reversed(parts.items())))
