"""A model repository in an object store, by way of fsspec.

Floor 3, I/O.
`<root>/<model>/<version>/` holds manifest.toml and each file as `<sha256>/<name>`. A store locks
and renames nothing, but an object is there whole or not at all. So the manifest comes last, and is
created only where there is none; and files of different content never have one key. Whichever
manifest is there, its files are those it names, whoever else wrote at the same time. A repository
that was copied into a store as it was, with files beside the manifest, is read as well.
Instances that serve a version say so in `leases/<holder>`, which holds the time until which it
counts (seconds since 1970: it is compared on other machines).
"""

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.callbacks import Callback

from backends.errors import DependencyMissing, InstanceError, SnapshotInvalid
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
from backends.snapshots.repository import (
    AlreadyExists,
    Repository,
    Snapshot,
    SnapshotInUse,
    Unreadable,
)
from backends.snapshots.roots import Url
from backends.snapshots.steps import OnBytes, Steps, silent

_CHUNK_BYTES: Final = 4 << 20
_LEASES: Final = "leases"


class StoreFailed(InstanceError):
    """The store did not do what it was asked; another try may find it well."""


class RemoteRepository:
    """Snapshots by model and version under a URL; the folder of each is a name, not a path here."""

    def __init__(self, root: Url, wall_s: Callable[[], float] = time.time) -> None:
        """Raises: DependencyMissing naming the package, SnapshotInvalid for an unknown scheme."""
        self.root = root
        self._wall_s = wall_s
        try:
            self._store, self._top = fsspec.core.url_to_fs(root.text)
        except ImportError as exc:
            raise DependencyMissing(f"{root}: {exc}") from exc
        except ValueError as exc:
            raise SnapshotInvalid(f"{root}: {exc}") from exc

    # --- reading ---

    def where(self, model: str, version: str) -> str:
        return f"{self.root}/{model}/{version}"

    def locate(self, model: str, version: str) -> Snapshot:
        """The snapshot of that name, its manifest checked, its files not read.

        Raises: SnapshotInvalid with the place and what to do, StoreFailed.
        """
        where = self.where(model, version)
        try:
            manifest = parse(self._read(self._key(model, version, FILE_NAME)).decode())
        except FileNotFoundError:
            hint = f"import it: sluicegate models import SOURCE --model {model}"
            hint += f" --version {version} --root {self.root}"
            raise SnapshotInvalid(f"{where}: no snapshot here; {hint}") from None
        except (ManifestInvalid, UnicodeDecodeError) as exc:
            raise SnapshotInvalid(
                f"{where}/{FILE_NAME}: {exc}; remove the version and import it again"
            ) from exc
        if (manifest.model, manifest.version) != (model, version):
            raise SnapshotInvalid(f"{where}: says {manifest.model} {manifest.version}")
        return Snapshot(Path(where), manifest)

    def holds(self, model: str, version: str) -> bool:
        with _asking(self.where(model, version)):
            return bool(self._store.exists(self._key(model, version, FILE_NAME)))

    def list(self) -> tuple[Snapshot | Unreadable, ...]:
        """Everything that has a manifest, by model and version."""
        with _asking(str(self.root)):
            keys = self._store.glob(f"{self._top}/*/*/{FILE_NAME}")
        found: list[Snapshot | Unreadable] = []
        for model, version in sorted(tuple(key.split("/")[-3:-1]) for key in keys):
            try:
                found.append(self.locate(model, version))
            except SnapshotInvalid as exc:
                found.append(Unreadable(model, version, str(exc)))
        return tuple(found)

    def verify(self, snapshot: Snapshot, on_bytes: OnBytes) -> None:
        """Read every byte of it.

        Raises: SnapshotInvalid naming the first file that is missing or changed, StoreFailed.
        """
        manifest = snapshot.manifest
        where = self.where(manifest.model, manifest.version)
        for entry in manifest.files:
            digest = hashlib.sha256()
            try:
                with _asking(where), self._store.open(self._place(manifest, entry), "rb") as opened:
                    while chunk := opened.read(_CHUNK_BYTES):
                        digest.update(chunk)
                        on_bytes(len(chunk))
            except FileNotFoundError:
                raise SnapshotInvalid(f"{where}: {entry.name} is missing") from None
            if digest.hexdigest() != entry.sha256:
                raise SnapshotInvalid(
                    f"{where}: {entry.name} has sha256 {digest.hexdigest()}, not {entry.sha256}; "
                    "remove the version and import it again"
                )

    def download(self, manifest: Manifest, entry: FileEntry, file: Path, on_bytes: OnBytes) -> None:
        """Raises: SnapshotInvalid when it is missing, StoreFailed. The content is not checked."""
        where = self.where(manifest.model, manifest.version)
        try:
            with _asking(where):
                key = self._place(manifest, entry)
                self._store.get_file(key, str(file), callback=_Told(on_bytes))
        except FileNotFoundError:
            raise SnapshotInvalid(f"{where}: {entry.name} is missing") from None

    # --- changing ---

    def free_bytes(self) -> int:
        """Where a snapshot is put together before it is sent; a store has no end."""
        return shutil.disk_usage(tempfile.gettempdir()).free

    def write(
        self,
        model: str,
        version: str,
        fill: Callable[[Path], None],
        describe: Callable[[tuple[FileEntry, ...]], Manifest],
        steps: Steps = silent,
    ) -> Snapshot:
        """The snapshot whose files `fill` puts into the folder it is given.

        Raises: AlreadyExists, StoreFailed, OSError; what was sent by then can be seen by nobody.
        """
        with tempfile.TemporaryDirectory(prefix="sluicegate-") as scratch:
            made = Repository(Path(scratch)).write(model, version, fill, describe, steps)
            self._send(made, steps)
        return self.locate(model, version)

    def _send(self, made: Snapshot, steps: Steps) -> None:
        manifest = made.manifest
        where = self.where(manifest.model, manifest.version)
        total = sum(entry.bytes for entry in manifest.files)
        with steps(f"upload to {self.root}", total) as on_bytes, _asking(where):
            for entry in manifest.files:
                key = self._key(manifest.model, manifest.version, entry.sha256, entry.name)
                self._store.makedirs(key.rpartition("/")[0], exist_ok=True)
                self._store.put_file(str(made.folder / entry.name), key, callback=_Told(on_bytes))
        key = self._key(manifest.model, manifest.version, FILE_NAME)
        try:
            with _asking(where):
                self._store.pipe_file(key, render(manifest).encode(), mode="create")
        except FileExistsError as exc:
            raise AlreadyExists(self.locate(manifest.model, manifest.version)) from exc

    def remove(self, model: str, version: str) -> None:
        """The version is gone.

        Raises: SnapshotInvalid when there is none, SnapshotInUse while an instance says so.
        """
        where = self.where(model, version)
        if not self.holds(model, version):
            raise SnapshotInvalid(f"{where}: no snapshot here")
        holders = self._holders(model, version)
        if holders:
            raise SnapshotInUse(
                f"{model} {version} is in use by {', '.join(holders)}: drain and stop them first"
            )
        with _asking(where):
            self._store.rm_file(self._key(model, version, FILE_NAME))  # from here on nobody sees it
            self._store.rm(self._key(model, version), recursive=True)

    # --- leases ---

    def lease(self, model: str, version: str, holder: str, span_s: float) -> None:
        """For `span_s` from now it is not removed. Raises: StoreFailed."""
        until = f"{self._wall_s() + span_s:.0f}"
        with _asking(self.where(model, version)):
            self._store.pipe_file(self._key(model, version, _LEASES, holder), until.encode())

    def release(self, model: str, version: str, holder: str) -> None:
        """Raises: StoreFailed."""
        with suppress(FileNotFoundError), _asking(self.where(model, version)):
            self._store.rm_file(self._key(model, version, _LEASES, holder))

    def _holders(self, model: str, version: str) -> tuple[str, ...]:
        with _asking(self.where(model, version)):
            keys = self._store.glob(self._key(model, version, _LEASES, "*"))
        return tuple(sorted(key.rpartition("/")[2] for key in keys if self._counts(key)))

    def _counts(self, key: str) -> bool:
        try:
            return float(self._read(key)) > self._wall_s()
        except FileNotFoundError:  # released just now
            return False
        except ValueError:
            return True  # nobody knows: rather too long than too short

    # --- inside ---

    def _key(self, model: str, version: str, *rest: str) -> str:
        for what, name in (("model", model), ("version", version)):
            if not is_name(name):
                raise SnapshotInvalid(f"{what}: must be {NAME_RULE}, not {name!r}")
        return "/".join((self._top, model, version, *rest))

    def _place(self, manifest: Manifest, entry: FileEntry) -> str:
        sent = self._key(manifest.model, manifest.version, entry.sha256, entry.name)
        if self._store.exists(sent):
            return sent
        return self._key(manifest.model, manifest.version, entry.name)

    def _read(self, key: str) -> bytes:
        with _asking(f"{self.root}"):
            content: bytes = self._store.cat_file(key)
        return content


def fetch(
    remote: RemoteRepository, local: Repository, model: str, version: str, steps: Steps
) -> Snapshot:
    """The remote snapshot in the local repository, fetched unless it is there.

    Raises: SnapshotInvalid, StoreFailed; with a store that does not answer what is here will do,
    because versions never change.
    """
    here = local.locate(model, version) if local.holds(model, version) else None
    try:
        there = remote.locate(model, version)
    except StoreFailed:
        if here is None:
            raise
        return here
    if here is None:
        here = _fetched(remote, local, there.manifest, steps)
    if here.manifest != there.manifest:
        raise SnapshotInvalid(
            f"{here.folder}: is another {model} {version} than that of {remote.root}: remove one"
        )
    return here


def _fetched(
    remote: RemoteRepository, local: Repository, manifest: Manifest, steps: Steps
) -> Snapshot:
    where = remote.where(manifest.model, manifest.version)

    def fill(folder: Path) -> None:
        with steps("fetching", sum(entry.bytes for entry in manifest.files)) as on_bytes:
            for entry in manifest.files:
                remote.download(manifest, entry, folder / entry.name, on_bytes)

    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        changed = set(files) - set(manifest.files)
        if changed:
            names = ", ".join(sorted(entry.name for entry in changed))
            raise SnapshotInvalid(f"{where}: {names} came with another sha256 than its manifest's")
        return manifest

    try:
        return local.write(manifest.model, manifest.version, fill, describe)
    except AlreadyExists as exc:  # a neighbour fetched it meanwhile
        return exc.snapshot
    except OSError as exc:
        raise StoreFailed(f"{local.root}: {exc.strerror or exc}") from exc


class _Told(Callback):  # type: ignore[misc]  # fsspec has no types
    """Passes on how many bytes were moved."""

    def __init__(self, on_bytes: OnBytes) -> None:
        super().__init__()
        self._on_bytes = on_bytes

    def relative_update(self, inc: int = 1) -> None:
        self._on_bytes(inc)

    def branched(self, path_1: Any, path_2: Any, **kwargs: Any) -> "_Told":
        return self


@contextmanager
def _asking(where: str) -> Iterator[None]:
    """The seam to fsspec: what is not about a file that is there, or not, is StoreFailed."""
    try:
        yield
    except (InstanceError, FileNotFoundError, FileExistsError):
        raise
    except Exception as exc:
        # A house rule broken (no broad except): each store comes with errors of its own, of
        # packages that are not known here.
        raise StoreFailed(f"{where}: {str(exc) or type(exc).__name__}") from exc
