"""Where a model repository is: a folder, or a place in an object store.

Floor 1, pure.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOCAL: Final = ("file", "local")


@dataclass(frozen=True, slots=True)
class Url:
    """Of a store that fsspec reaches, such as s3://bucket/models."""

    text: str

    def __str__(self) -> str:
        return self.text


Root = Path | Url


def read_root(text: str) -> Root:
    """A URL of this machine's files is a folder like any other."""
    scheme, colon, rest = text.partition("://")
    if not colon:
        return Path(text)
    return Path(rest) if scheme in LOCAL else Url(text.rstrip("/"))
