"""How much memory instances of a snapshot were seen to hold: kept beside it, never in it.

Floor 3, I/O.
A manifest computes what will be needed before anything has run; an instance that has become READY
knows better. Its word is in `<root>/<model>/.measured-<version>.toml`, which the gateway reads too,
and which only a holder of the snapshot writes, so it is never about another one of that name.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path


def place(folder: Path) -> Path:
    """Where it is kept for the snapshot in `folder`; no version can have this name."""
    return folder.parent / f".measured-{folder.name}.toml"


def read(folder: Path) -> dict[str, int]:
    """The most bytes that an instance was seen to hold, by kind of device; nothing unless seen."""
    try:
        table = tomllib.loads(place(folder).read_text("utf-8")).get("bytes")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}  # a note that is lost is written again by the next instance
    return {
        kind: held
        for kind, held in (table.items() if isinstance(table, dict) else ())
        if isinstance(held, int) and not isinstance(held, bool) and held > 0
    }


def keep(folder: Path, kind: str, held_bytes: int) -> None:
    """Note it, unless an instance was seen to hold more on that kind of device.

    Raises: OSError, where nobody may write.
    """
    known = read(folder)
    if held_bytes <= known.get(kind, 0):
        return
    note = place(folder)
    draft = note.with_name(f"{note.name}.{os.getpid()}")
    try:
        draft.write_text(_render({**known, kind: held_bytes}), "utf-8")
        draft.replace(note)
    finally:
        draft.unlink(missing_ok=True)


def _render(by_kind: Mapping[str, int]) -> str:
    lines = [
        "# The most memory that an instance held once it was loaded, by kind of device. It goes",
        "# before memory_needed_bytes of the manifest; remove this file to measure anew.",
        "[bytes]",
        *(f"{kind} = {held}" for kind, held in sorted(by_kind.items())),
    ]
    return "\n".join(lines) + "\n"
