"""How much device memory a snapshot needs: as instances measured it, else as its manifest computes.

Floor 3, I/O: reads files.
One number is taken out of files that instances check whole: a manifest that is missing or broken
is no reason to hold an instance back, because it says what is wrong far better.
"""

import json
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

HALVES: Final = ("float16", "bfloat16")  # weights that take twice their file once they are held
HELD_BYTES: Final = 4  # of a value in memory: float32, however it is stored
ALLOWANCE_BYTES: Final = 2_500_000_000  # beside weights and cache, as importers reckon it


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
            needs = _promised(root / model / version)
        found[model, version] = needs
    return found


def where(root: str, cache: str) -> Path:
    """The folder to look in; of a repository elsewhere, where instances keep what they fetched."""
    scheme, colon, rest = root.partition("://")
    if not colon:
        return Path(root)
    return Path(rest) if scheme in ("file", "local") else Path(cache) / "snapshots"


def elsewhere(root: str) -> bool:
    """Whether the repository is no folder of this machine."""
    return "://" in root and not root.startswith(("file://", "local://"))


def absent(
    root: str, folder: Path, pairs: Collection[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """Those (model, version) of which a repository here has no snapshot; of one elsewhere nothing
    is said. `folder`: where() it is."""
    if elsewhere(root):
        return frozenset()
    return frozenset(
        (model, version)
        for model, version in pairs
        if not (folder / model / version / "manifest.toml").is_file()
    )


def _promised(folder: Path) -> int:
    """What the manifest says, but never less than float32 takes.

    Manifests of early importers counted weights and cache as they are stored, and nothing tells
    them from later ones: what is stored in halves is computed again, and the larger counts.
    """
    manifest = _read(folder / "manifest.toml")
    said = _bytes(manifest.get("memory_needed_bytes"))
    if not said or manifest.get("dtype") not in HALVES:
        return said
    return max(said, 2 * _weights(manifest) + _cache(folder, manifest) + ALLOWANCE_BYTES)


def _weights(manifest: Mapping[str, Any]) -> int:
    files = manifest.get("files")
    return sum(
        _bytes(entry.get("bytes"))
        for entry in (files if isinstance(files, list) else ())
        if isinstance(entry, dict) and str(entry.get("name")).endswith(".safetensors")
    )


def _cache(folder: Path, manifest: Mapping[str, Any]) -> int:
    """Keys and values of every slot at full length; 0 where the config does not say."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return 0
    numbers = config if isinstance(config, dict) else {}
    size = 2 * HELD_BYTES  # a key and a value
    for key in ("num_hidden_layers", "num_key_value_heads", "head_dim"):
        size *= _bytes(numbers.get(key))
    return size * _bytes(manifest.get("slots")) * _bytes(manifest.get("max_seq_len"))


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}


def _bytes(value: Any) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and value > 0 else 0
