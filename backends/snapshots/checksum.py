"""SHA-256 of files and of sets of files.

Floor 3, I/O.
"""

import hashlib
from pathlib import Path
from typing import Final

from backends.snapshots.steps import OnBytes

_CHUNK_BYTES: Final = 4 << 20  # long enough to hash without the GIL, short enough to show progress


def file_sha256(file: Path, on_bytes: OnBytes) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK_BYTES):
            digest.update(chunk)
            on_bytes(len(chunk))
    return digest.hexdigest()
