"""Where MindSpore keeps compiled graphs between lives, and when it may find them again.

Floor 3, I/O.   Owner: the engine that loads; any number of processes may share `root`.
MindSpore's own cache notices neither changed shapes nor another model, and crashes instead. So:
- the folder's name is a digest of all that the graphs depend on;
- graphs are compiled into a dot-folder and renamed into place when all of them are whole, so a
  folder with a plain name is complete; the checksums in it tell whether it still is;
- whoever reads a folder holds a mark in it until its load has ended. While graphs of it are run the
  mark is not empty: one that was left so, by a process that is gone, means that the load died of
  them, and the folder is not trusted again but compiled anew. Who is stopped lets go of the mark.
A process is alive exactly while it holds the lock (flock) on its dot-folder or its mark. Of a model
the folders used last are kept, the others are removed when one is opened.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_BUILDING: Final = ".building-"
_READING: Final = ".reading-"
_LOCK: Final = ".lock"
_SUMS: Final = ".sums"
KEY_LENGTH: Final = 24  # hex digits: 96 bits, no two keys of one disk meet by chance
# Older programs named a folder by the key alone. Other things may stand in the same root.
_NAME: Final = re.compile(rf"(?:(?P<model>.+)\.)?[0-9a-f]{{{KEY_LENGTH}}}")
_marks: Final[set[Path]] = set()  # that this process holds
KEPT: Final = 8  # of a model, some 6 MB each: versions in service and those it may go back to


def key(model: str, parts: Mapping[str, object]) -> str:
    """The folder's name for graphs of a model that depend on exactly these values."""
    lines = "".join(f"{name}={parts[name]}\n" for name in sorted(parts))
    return f"{model}.{hashlib.sha256(lines.encode()).hexdigest()[:KEY_LENGTH]}"


class CompileCache:
    """One process's use of one folder: a context from before the first compile to after the last.

    Leaving it well says that every graph is compiled, or was read, and has run.
    """

    def __init__(self, root: Path, name: str) -> None:
        """Opens the complete folder if it can be trusted, else begins a new one."""
        root.mkdir(parents=True, exist_ok=True)
        self._final = root / name
        # Between being made and being locked a folder or a mark looks abandoned.
        with (root / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _forget(root, name)
            _sweep(root)
            marks = list(self._final.glob(f"{_READING}*"))
            living = [mark for mark in marks if _is_locked(mark)]
            exists = self._final.is_dir()
            died = [mark for mark in marks if mark not in living and _blames(mark)]
            self.warm = exists and not died and _is_whole(self._final)
            if self.warm:
                descriptor, mark = tempfile.mkstemp(prefix=_READING, dir=self._final)
                self._held, self._lock = Path(mark), descriptor
                _marks.add(self._held)
                self.folder = self._final
            else:
                if exists and not living:  # a reader that lives still needs the files
                    _discard(root, self._final)
                    _sweep(root)
                self._held = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=root))
                self._lock = os.open(self._held, os.O_RDONLY | os.O_DIRECTORY)
                self.folder = self._held
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __enter__(self) -> "CompileCache":
        return self

    @contextmanager
    def running(self) -> Iterator[None]:
        """Graphs are read or compiled, and run: a failure or a death in here may be their fault."""
        if self.warm:
            os.pwrite(self._lock, b"!", 0)
        yield
        if self.warm:
            os.ftruncate(self._lock, 0)

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        # After a failure of graphs all stays where it is, but unlocked: as after a crash, not used.
        if self.warm:
            _marks.discard(self._held)
            if not os.fstat(self._lock).st_size:
                self._held.unlink(missing_ok=True)
        elif failure is None:
            self._publish()
        os.close(self._lock)

    def _publish(self) -> None:
        (self._held / _SUMS).write_text(json.dumps(_sums(self._held)))
        try:
            self._held.rename(self._final)
        except OSError:  # another process was first; its folder is as good
            shutil.rmtree(self._held, ignore_errors=True)


def let_go() -> None:
    """This process ends now, as it was told to: what it reads has done nothing wrong."""
    for mark in tuple(_marks):
        mark.unlink(missing_ok=True)


def _blames(mark: Path) -> bool:
    try:
        return mark.stat().st_size > 0
    except FileNotFoundError:
        return False


def _forget(root: Path, name: str) -> None:
    """Let go of the model's folders but for those used last, and for those that somebody reads."""
    if (named := _NAME.fullmatch(name)) is None:
        return
    found = []
    for path in root.iterdir():
        other = _NAME.fullmatch(path.name)
        if other and path.name != name and other["model"] in (named["model"], None):
            # A mark comes and goes with each use, and the folder's time with it.
            found.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(found, reverse=True)[KEPT - 1 :]:
        if not any(map(_is_locked, path.glob(f"{_READING}*"))):
            _discard(root, path)


def _discard(root: Path, folder: Path) -> None:
    """Nobody finds it any more; `_sweep` removes it."""
    folder.rename(root / f"{_BUILDING}{os.urandom(8).hex()}")


def _is_whole(folder: Path) -> bool:
    try:
        wanted: dict[str, str] = json.loads((folder / _SUMS).read_bytes())
        return wanted == {name: _sum(folder / name) for name in wanted}
    except (OSError, ValueError, AttributeError, TypeError):  # cut short, or not ours
        return False


def _sums(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): _sum(path) for path in files}


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _sweep(root: Path) -> None:
    """Remove what processes that are gone had begun."""
    for path in root.glob(f"{_BUILDING}*"):
        if not _is_locked(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_locked(path: Path) -> bool:
    """False also when it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)
