"""How much device memory a snapshot needs, by its manifest.

Floor 3, I/O: reads files.
One number is taken out of a file that the instance checks whole: a manifest that is missing or
broken is no reason to hold it back, because the instance says what is wrong far better.
"""

import tomllib
from collections.abc import Collection
from pathlib import Path


def read_needs(root: Path, pairs: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Bytes by (model, version); 0 where no manifest says so."""
    found = dict.fromkeys(pairs, 0)
    for model, version in pairs:
        try:
            manifest = tomllib.loads((root / model / version / "manifest.toml").read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
            continue
        needs = manifest.get("memory_needed_bytes")
        if isinstance(needs, int) and needs >= 0:
            found[model, version] = needs
    return found
