"""Snapshots as `sluicegate models` shows them.

Floor 3, I/O: reads what was measured beside a snapshot.
"""

from dataclasses import asdict
from typing import Any

from backends.snapshots import measured
from backends.snapshots.manifest import LlmManifest, Manifest, MindirManifest
from backends.snapshots.repository import Snapshot, Unreadable


def names(entry: Snapshot | Unreadable) -> tuple[str, str]:
    named = entry if isinstance(entry, Unreadable) else entry.manifest
    return named.model, named.version


def row(entry: Snapshot | Unreadable, where: str) -> dict[str, Any]:
    """All of it, for programs; `where` is its place in the repository."""
    if isinstance(entry, Unreadable):
        return asdict(entry)
    manifest = entry.manifest
    return {
        **asdict(manifest),
        "measured_bytes": measured.read(entry.folder),
        "digest": manifest.digest,
        "folder": where,
    }


def cells(entry: Snapshot | Unreadable) -> tuple[str, ...]:
    """Model, version, dtype, slots, size of the files and the memory that is reckoned with."""
    if isinstance(entry, Unreadable):
        return entry.model, entry.version, "unreadable", "-", "-", "-"
    manifest = entry.manifest
    return (
        manifest.model,
        manifest.version,
        *_kind(manifest),
        megabytes(files_bytes(manifest)),
        megabytes(max(measured.read(entry.folder).values(), default=manifest.memory_needed_bytes)),
    )


def _kind(manifest: Manifest) -> tuple[str, str]:
    """Of what it is made, and how many it serves at once."""
    match manifest:
        case LlmManifest():
            return manifest.dtype, f"{manifest.slots} x {manifest.max_seq_len}"
        case MindirManifest():
            datatypes = dict.fromkeys(spec.datatype for spec in manifest.inputs)
            return "/".join(datatypes), str(manifest.max_batch or 1)
    raise AssertionError(f"no such manifest: {manifest}")


def served(manifest: Manifest) -> str:
    match manifest:
        case LlmManifest():
            return f"{manifest.slots} slots of {manifest.max_seq_len}"
        case MindirManifest(max_batch=0):
            return "one request at a time"
        case MindirManifest():
            return f"batches of up to {manifest.max_batch}"
    raise AssertionError(f"no such manifest: {manifest}")


def files_bytes(manifest: Manifest) -> int:
    return sum(entry.bytes for entry in manifest.files)


def shown(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{key} {each}" for key, each in value.items()) or "-"


def megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
