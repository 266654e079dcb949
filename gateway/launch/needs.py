"""How much device memory a snapshot needs: as instances measured it, else as its manifest computes.

Floor 3, I/O: reads files.
One number is taken out of files that instances check whole: a manifest that is missing or broken
is no reason to hold an instance back, because it says what is wrong far better.
"""

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any


def read_needs(
    root: Path, pairs: Collection[tuple[str, str]], kinds: Collection[str]
) -> dict[tuple[str, str], int]:
    """Bytes by (model, version); 0 where nothing says so.

    An instance leaves beside its snapshot what it was seen to hold, by kind of device; of the
    `kinds` that there are here the largest counts.
    """
    found = {}
    for model, version in pairs:
        seen = _read(root / model / f".measured-{version}.toml").get("bytes")
        by_kind = seen if isinstance(seen, dict) else {}
        needs = max((_bytes(by_kind.get(kind)) for kind in kinds), default=0)
        if not needs:
            manifest = _read(root / model / version / "manifest.toml")
            needs = _bytes(manifest.get("memory_needed_bytes"))
        found[model, version] = needs
    return found


def where(root: str, cache: str) -> Path:
    """The folder to look in; of a repository elsewhere, where instances keep what they fetched."""
    scheme, colon, rest = root.partition("://")
    if not colon:
        return Path(root)
    return Path(rest) if scheme in ("file", "local") else Path(cache) / "snapshots"


def absent(
    root: str, folder: Path, pairs: Collection[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """Those (model, version) of which a repository here has no snapshot; of one elsewhere nothing
    is said. `folder`: where() it is."""
    if "://" in root and not root.startswith(("file://", "local://")):
        return frozenset()
    return frozenset(
        (model, version)
        for model, version in pairs
        if not (folder / model / version / "manifest.toml").is_file()
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}


def _bytes(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and value > 0 else 0
