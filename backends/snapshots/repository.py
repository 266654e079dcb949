"""The folder that holds all snapshots: find, verify, list, write once, remove.

Floor 3, I/O.   Owner: one Repository per process; any number of processes may share its folder.
`<root>/<model>/<version>/` is either absent or whole: a snapshot is written to a dot-folder,
synced, and renamed into place. A dot-folder belongs to the process that holds a lock (flock) on it.
The kernel drops the lock when that process ends, however it ends: a folder without one is litter.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.errors import InstanceError, SnapshotInvalid
from backends.snapshots import measured
from backends.snapshots.checksum import file_sha256
from backends.snapshots.manifest import (
    FILE_NAME,
    NAME_RULE,
    FileEntry,
    Manifest,
    ManifestInvalid,
    is_name,
    parse,
    render,
)
from backends.snapshots.steps import OnBytes, Steps, silent

_IMPORTING: Final = ".importing-"
_REMOVING: Final = ".removing-"
_LOCK: Final = ".lock"


class AlreadyExists(InstanceError):
    """A version never changes; `snapshot` is the one that is there."""

    def __init__(self, snapshot: "Snapshot") -> None:
        manifest = snapshot.manifest
        super().__init__(
            f"{manifest.model} {manifest.version} exists already, made from {manifest.source}; "
            "versions never change: import under another version"
        )
        self.snapshot = snapshot


class SnapshotInUse(InstanceError):
    pass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version on disk, whole when it was written."""

    folder: Path
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A folder in a snapshot's place that cannot be read as one."""

    model: str
    version: str
    problem: str


class Repository:
    """Snapshots by model and version under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    # --- reading ---

    def where(self, model: str, version: str) -> str:
        return str(self.root / model / version)

    def locate(self, model: str, version: str) -> Snapshot:
        """The snapshot of that name, its manifest checked, its files not read.

        Raises: SnapshotInvalid with the path and what to do.
        """
        folder = self._place(model, version)
        try:
            manifest = parse((folder / FILE_NAME).read_text("utf-8"))
        except FileNotFoundError:
            if folder.is_dir():
                hint = f"its {FILE_NAME} is missing: remove this folder and import it again"
            else:
                hint = f"import it: sluicegate models import SOURCE --model {model}"
                hint += f" --version {version} --root {self.root}"
            raise SnapshotInvalid(f"{folder}: no snapshot here; {hint}") from None
        except ManifestInvalid as exc:
            raise SnapshotInvalid(
                f"{folder / FILE_NAME}: {exc}; remove the version and import it again"
            ) from exc
        except (OSError, UnicodeDecodeError) as exc:
            raise SnapshotInvalid(f"{folder / FILE_NAME}: cannot be read: {exc}") from exc
        if (manifest.model, manifest.version) != (model, version):
            raise SnapshotInvalid(
                f"{folder / FILE_NAME}: says {manifest.model} {manifest.version}: a snapshot "
                "cannot be moved to another name, import it under that name"
            )
        return Snapshot(folder, manifest)

    def holds(self, model: str, version: str) -> bool:
        """Whether anything is in its place, readable or not."""
        return self._place(model, version).exists()

    def list(self) -> tuple[Snapshot | Unreadable, ...]:
        """Everything in a snapshot's place, by model and version."""
        found: list[Snapshot | Unreadable] = []
        for model in _folders(self.root):
            for version in _folders(model):
                try:
                    found.append(self.locate(model.name, version.name))
                except SnapshotInvalid as exc:
                    found.append(Unreadable(model.name, version.name, str(exc)))
        return tuple(found)

    def verify(self, snapshot: Snapshot, on_bytes: OnBytes) -> None:
        """Read every byte of it.

        Raises: SnapshotInvalid naming the first file that is missing, too many, or changed.
        """
        remedy = "remove the version and import it again"
        expected = {entry.name for entry in snapshot.manifest.files} | {FILE_NAME}
        for path in sorted(snapshot.folder.iterdir()):
            if path.name not in expected:
                raise SnapshotInvalid(f"{path}: is not in {FILE_NAME}; {remedy}")
        for entry in snapshot.manifest.files:
            path = snapshot.folder / entry.name
            try:
                found = _entry(path, on_bytes, bytes_expected=entry.bytes)
            except FileNotFoundError:
                raise SnapshotInvalid(f"{path}: is missing; {remedy}") from None
            except OSError as exc:
                raise SnapshotInvalid(f"{path}: cannot be read: {exc.strerror}") from exc
            if found.bytes != entry.bytes:
                raise SnapshotInvalid(
                    f"{path}: has {found.bytes} bytes, not {entry.bytes}; {remedy}"
                )
            if found.sha256 != entry.sha256:
                raise SnapshotInvalid(
                    f"{path}: has sha256 {found.sha256}, not {entry.sha256}; {remedy}"
                )

    @contextmanager
    def hold(self, snapshot: Snapshot) -> Iterator[None]:
        """While held, nobody removes it. Ends with the process at the latest."""
        lock = _lock(snapshot.folder, fcntl.LOCK_SH)
        if lock is None:
            raise SnapshotInvalid(f"{snapshot.folder}: is being removed")
        try:
            yield
        finally:
            os.close(lock)

    # --- changing ---

    def free_bytes(self) -> int:
        self.root.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.root).free

    def write(
        self,
        model: str,
        version: str,
        fill: Callable[[Path], None],
        describe: Callable[[tuple[FileEntry, ...]], Manifest],
        steps: Steps = silent,
    ) -> Snapshot:
        """The snapshot whose files `fill` puts into the folder it is given.

        `describe` makes the manifest from what is then on disk.
        Raises: AlreadyExists, OSError, and what `fill` raises; then nothing is left behind.
        """
        place = self._place(model, version)
        with self._workplace(_IMPORTING) as draft:
            fill(draft)
            paths = sorted(draft.iterdir())
            with steps("checksums", sum(path.stat().st_size for path in paths)) as on_bytes:
                entries = tuple(_entry(path, on_bytes) for path in paths)
            manifest = describe(entries)
            (draft / FILE_NAME).write_text(render(manifest), "utf-8")
            for path in draft.iterdir():
                _sync(path)
                path.chmod(0o444)
            _sync(draft)
            with self._root_lock():
                place.parent.mkdir(exist_ok=True)
                try:
                    draft.rename(place)
                except OSError as exc:
                    # A rename never replaces a folder that holds something, so of two importers
                    # one wins; it does replace an empty one, which is no snapshot.
                    if place.exists():
                        raise AlreadyExists(self.locate(model, version)) from exc
                    with suppress(OSError):  # other versions are there
                        place.parent.rmdir()
                    raise
            place.chmod(0o555)  # not earlier: only a writable folder can be renamed
            _sync(place.parent)
            _sync(self.root)
        return Snapshot(place, manifest)

    def remove(self, model: str, version: str) -> None:
        """The version is gone, also when its manifest could not be read.

        Raises: SnapshotInvalid when there is none, SnapshotInUse when an instance holds it.
        """
        place = self._place(model, version)
        if not place.is_dir():
            raise SnapshotInvalid(f"{place}: no snapshot here")
        lock = _lock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is None:
            raise SnapshotInUse(f"{model} {version} is in use: drain and stop its instances first")
        try:
            place.chmod(0o755)
            litter = self.root / f"{_REMOVING}{os.urandom(8).hex()}"
            place.rename(litter)  # from here on nobody sees a half of it
            measured.place(place).unlink(missing_ok=True)
            shutil.rmtree(litter)
        finally:
            os.close(lock)
        with self._root_lock(), suppress(OSError):  # other versions are there
            place.parent.rmdir()

    def clear_litter(self) -> None:
        """Remove dot-folders whose owner is gone; those of living processes stay."""
        with self._root_lock():
            for path in self.root.iterdir():
                if not path.name.startswith((_IMPORTING, _REMOVING)):
                    continue
                lock = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock is None:
                    continue
                path.chmod(0o755)
                shutil.rmtree(path, ignore_errors=True)  # what stays is litter for the next time
                os.close(lock)

    # --- inside ---

    def _place(self, model: str, version: str) -> Path:
        for what, name in (("model", model), ("version", version)):
            if not is_name(name):
                raise SnapshotInvalid(f"{what}: must be {NAME_RULE}, not {name!r}")
        return self.root / model / version

    @contextmanager
    def _root_lock(self) -> Iterator[None]:
        """Makes two steps one for other processes: a folder is made and locked (in between it would
        look like litter), a model's folder is made and filled (in between it would look empty)."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / _LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _workplace(self, prefix: str) -> Iterator[Path]:
        """A new dot-folder, locked; gone afterwards unless it was renamed."""
        self.clear_litter()
        with self._root_lock():
            draft = Path(tempfile.mkdtemp(prefix=prefix, dir=self.root))
            try:
                draft.chmod(0o755)  # mkdtemp's 0700 would hide the snapshot from other users
                lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                draft.rmdir()
                raise
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            os.close(lock)


def _folders(parent: Path) -> list[Path]:
    try:
        inside = sorted(parent.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in inside if is_name(path.name) and path.is_dir()]


def _lock(folder: Path, operation: int) -> int | None:
    """A descriptor that locks `folder`, or None when another holds it or it is no longer there."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, operation)
        if os.path.samestat(os.fstat(descriptor), os.stat(folder)):  # not renamed in between
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _entry(path: Path, on_bytes: OnBytes, bytes_expected: int | None = None) -> FileEntry:
    """What is on disk now; not hashed when the size alone tells that it is something else."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for ever
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    same_size = bytes_expected in (None, status.st_size)
    return FileEntry(path.name, status.st_size, file_sha256(path, on_bytes) if same_size else "")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
