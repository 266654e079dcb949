"""What is looked at before the minutes of a load are spent, each with what to do about it.

Floor 3, I/O: looks at files and devices.
A check either returns the sentence of what it found, for those who watch, or raises the sentence of
what is missing. What is not known (an accelerator's memory) stops nobody.
"""

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from backends.errors import DependencyMissing, LoadFailed, SnapshotInvalid
from backends.settings import Settings
from backends.snapshots import measured
from backends.snapshots.manifest import LlmManifest
from backends.snapshots.repository import Snapshot
from backends.snapshots.transformer import HELD, memory_needed_bytes, read_config
from backends.status import Memory

MIB: Final = 2**20
GIB: Final = 2**30
SAID_MAX: Final = 300  # characters of somebody else's words
DEVICES: Final = Path("/dev")
NODES: Final = {"ascend": "davinci[0-9]*", "gpu": "nvidia[0-9]*"}  # what their drivers make
# How Python, the C++ library and MindSpore's allocators say it.
_NO_MEMORY: Final = re.compile(
    r"MemoryError|bad_alloc|out of memory|memory (is not|isn't|not) enough|cannot allocate memory"
    r"|alloc(ate|ating)? (device )?memory (failed|fail)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Needed:
    """Memory that a load takes, and who says so."""

    bytes: int
    source: str


def device(kind: str, folder: Path = DEVICES) -> str:
    """Raises: DependencyMissing where there is none of that kind."""
    node = NODES.get(kind)
    if node is None:
        return "device: the CPUs of this machine"
    found = sorted(folder.glob(node))
    if not found:
        raise DependencyMissing(
            f"device: no {kind} here ({folder / node} is not there): install its driver, hand the "
            "device into the container, or start it with --device-kind cpu"
        )
    return f"device: {found[0]}"


def cache(root: Path) -> str:
    """Raises: DependencyMissing if compiled graphs cannot be kept there."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise DependencyMissing(_no_cache(root, exc.strerror or str(exc))) from exc
    if not os.access(root, os.W_OK | os.X_OK):
        raise DependencyMissing(_no_cache(root, "this user may not write there"))
    return f"cache: {root}"


def memory(needed: Needed, there: Memory) -> str:
    """Raises: LoadFailed, worth another try, if it does not fit into what is free."""
    if not needed.bytes or not there.total_bytes:
        return f"memory: {_size(needed.bytes)} needed ({needed.source}), free memory is not known"
    words = f"{_size(needed.bytes)} needed ({needed.source}), {_free(there)}"
    if needed.bytes > there.free_bytes:
        raise LoadFailed(f"memory: {words}: {_ROOM}")
    return f"memory: {words}"


_ROOM: Final = (
    "end what else holds it, choose another device, or start it with fewer --slots or a shorter "
    "--max-seq-len"
)


def needed(snapshot: Snapshot, settings: Settings) -> Needed:
    """What this instance will take: as told, as seen of others like it, else as computed."""
    manifest = snapshot.manifest
    if settings.memory_gb:
        return Needed(int(settings.memory_gb * GIB), "as configured")
    if keeps_promise(snapshot, settings):
        seen = measured.read(snapshot.folder).get(settings.device_kind, 0)
        if seen:
            return Needed(seen, "as measured")
        # Older imports counted half of what is held for weights that are stored in halves.
        if getattr(manifest, "dtype", HELD) == HELD:
            return Needed(*_promised(snapshot))
    assert isinstance(manifest, LlmManifest), "only a text model can be started otherwise"
    with suppress(SnapshotInvalid, OSError, ValueError):
        shape = read_config(json.loads((snapshot.folder / "config.json").read_bytes()))
        slots = settings.slots or manifest.slots
        length = settings.max_seq_len or manifest.max_seq_len
        bytes_ = memory_needed_bytes(shape, slots, length)
        return Needed(bytes_, f"computed for {slots} slots of {length}")
    return Needed(*_promised(snapshot))  # what is wrong with it is said when it is read


def keeps_promise(snapshot: Snapshot, settings: Settings) -> bool:
    """Whether it is started with the slots and the length of its manifest (a graph has none)."""
    given = {"slots": settings.slots, "max_seq_len": settings.max_seq_len}
    return all(
        value in (None, getattr(snapshot.manifest, name, None)) for name, value in given.items()
    )


def told(failure: LoadFailed, needs: Needed, there: Memory, held_bytes: int) -> LoadFailed:
    """The failure; with the numbers and what to do, if the memory was too small."""
    if not _NO_MEMORY.search(str(failure)):
        return failure
    numbers = f"{_size(needs.bytes)} needed ({needs.source}), {_size(held_bytes)} held"
    numbers += f", {_free(there)}" if there.total_bytes else ""
    said = " ".join(str(failure).split())[:SAID_MAX]  # an allocator adds its call stack
    return LoadFailed(f"out of memory: {numbers}: {_ROOM} (it said: {said})")


def _promised(snapshot: Snapshot) -> tuple[int, str]:
    return snapshot.manifest.memory_needed_bytes, "by its manifest"


def _no_cache(root: Path, why: str) -> str:
    return f"cache: {root} cannot be written: {why}: make it so, or give another --cache-root"


def _free(there: Memory) -> str:
    name = f" on {there.name}" if there.name else ""
    return f"{_size(there.free_bytes)} of {_size(there.total_bytes)} free{name}"


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.0f} MiB"
