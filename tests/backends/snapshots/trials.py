"""Trials of imports in processes of their own: killed, refused room, many at once.

Floor 5, I/O.   Run as a program: TRIAL ROOT; it ends with exit code 0, or with what went wrong.
Python tells an audit hook of each step on the file system before it is taken, so a process can be
killed, and a disk can be full, at each of them in turn. A hook can never be taken out again:
hence one fork for each trial, of a process that has no threads.
"""

import errno
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from backends.snapshots.manifest import FileEntry, Manifest
from backends.snapshots.repository import AlreadyExists, Repository, Snapshot
from tests.backends.snapshots.test_manifest import EXAMPLE

STEPS: Final = frozenset({"open", "os.mkdir", "os.rename", "os.chmod", "os.rmdir", "os.remove"})
GROWS: Final = frozenset({"open", "os.mkdir", "os.rename"})  # what a full disk can refuse
IMPORTERS: Final = 4
ROUNDS: Final = 10

WRITTEN, WAS_THERE, FULL = 0, 3, 4


def write(root: Path, content: bytes = b"weights") -> Snapshot:
    """A snapshot of two files that begin with `content`."""

    def fill(folder: Path) -> None:
        (folder / "config.json").write_bytes(content)
        (folder / "model.safetensors").write_bytes(content * 1000)

    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        return replace(EXAMPLE, source=content.decode(), files=files)

    return Repository(root).write("tiny", "1", fill, describe)


def forked(body: Callable[[], int]) -> int:
    """How a process that runs `body` ended: its exit code, or minus the signal."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = body()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_step(number: int, steps: frozenset[str], act: Callable[[], None]) -> None:
    """From now on in this process: `act` before the step of that number, counted from 0."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in steps:
            seen += 1
            if seen == number + 1:
                act()

    sys.addaudithook(hook)


def whole_or_nothing(root: Path) -> bool:
    """Whether there is a snapshot; raises unless what can be seen of it is all of it."""
    found = Repository(root).list()
    for entry in found:
        assert isinstance(entry, Snapshot), entry
        Repository(root).verify(entry, lambda count: None)
    return bool(found)


def litter(root: Path) -> list[str]:
    """What is in the root beside its lock and models that hold something."""
    return sorted(
        path.name
        for path in root.iterdir()
        if path.name != ".lock" and (path.name.startswith(".") or not any(path.iterdir()))
    )


def killed(root: Path) -> None:
    """An import killed at each step leaves all or nothing, and the next one clears up."""
    for number in range(1000):
        place = root / str(number)

        def import_killed(place: Path = place, number: int = number) -> int:
            at_step(number, STEPS, lambda: os.kill(os.getpid(), signal.SIGKILL))
            write(place)
            return WRITTEN

        code = forked(import_killed)
        if code == WRITTEN:
            assert number > 10, "an import takes more steps than that"
            return
        assert code == -signal.SIGKILL, code
        was_there = place.exists() and whole_or_nothing(place)
        try:
            write(place)
            assert not was_there
        except AlreadyExists:
            assert was_there
        assert whole_or_nothing(place)
        assert litter(place) == [], number
    raise AssertionError("an import that never ends")


def full(root: Path) -> None:
    """A disk that is full at any step fails the import, which leaves nothing, or all."""
    for number in range(1000):
        place = root / str(number)
        place.mkdir()

        def refuse() -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def import_full(place: Path = place, number: int = number) -> int:
            at_step(number, GROWS, refuse)
            try:
                write(place)
            except OSError as exc:
                return FULL if exc.errno == errno.ENOSPC else exc.errno or -1
            return WRITTEN

        code = forked(import_full)
        assert code in (WRITTEN, FULL), code
        assert whole_or_nothing(place) or code == FULL
        assert litter(place) == [], number
        if code == WRITTEN and number > 100:  # the disk was never asked that often
            return
    raise AssertionError("an import that never ends")


def many(root: Path) -> None:
    """Of importers at once one wins, the others are told, and no two are mixed."""
    for number in range(ROUNDS):
        place = root / str(number)
        started, start = os.pipe()
        pids = {}
        for importer in range(IMPORTERS):
            pid = os.fork()
            if pid == 0:
                os.close(start)
                os.read(started, 1)  # until the parent closes the other end
                code = 70
                try:
                    write(place, f"importer {importer} ".encode())
                    code = WRITTEN
                except AlreadyExists as exc:
                    code = WAS_THERE if exc.snapshot.manifest.source else 70
                finally:
                    os._exit(code)
            pids[pid] = importer
        os.close(started)
        os.close(start)
        codes = {
            importer: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            for pid, importer in pids.items()
        }
        winners = [importer for importer, code in codes.items() if code == WRITTEN]
        assert sorted(codes.values()) == [WRITTEN] + [WAS_THERE] * (IMPORTERS - 1), codes
        assert whole_or_nothing(place)
        assert litter(place) == []
        snapshot = Repository(place).locate("tiny", "1")
        content = (snapshot.folder / "config.json").read_text()
        assert content == snapshot.manifest.source == f"importer {winners[0]} "


if __name__ == "__main__":
    {"killed": killed, "full": full, "many": many}[sys.argv[1]](Path(sys.argv[2]))
