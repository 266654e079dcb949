"""A model on its way into the repository, whatever it was read from.

Floor 1, pure.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backends.errors import InstanceError
from backends.snapshots.transformer import Transformer

_CHECKSUM: Final = " sha256:"


class ImportFailed(InstanceError):
    """Nothing was kept."""


@dataclass(frozen=True, slots=True)
class Source:
    """Everything a snapshot holds; the weights are read one tensor at a time."""

    origin: str  # see `origin_text`
    shape: Transformer
    tokenizer_json: str
    chat_template: str | None
    bos: int | None
    eos: tuple[int, ...]  # the first is the tokenizer's own, which chat templates call eos_token
    sampling: Mapping[str, Any]  # defaults that the source asks for
    read: Callable[[str], NDArray[np.float32]]  # by Hugging Face tensor name


def origin_text(kind: str, name: str, sha256: str) -> str:
    """What a snapshot was made from, as its manifest says it; never a path of this machine."""
    return f"{kind} {name}{_CHECKSUM}{sha256}"


def same_content(origin_a: str, origin_b: str) -> bool:
    """Whether both were made from the same bytes, under whatever name."""
    return origin_a.rpartition(_CHECKSUM)[2] == origin_b.rpartition(_CHECKSUM)[2]


def some(problems: Sequence[str]) -> str:
    """The first few in one sentence: a foreign layout differs in every layer."""
    shown = "; ".join(problems[:5])
    return shown if len(problems) <= 5 else f"{shown}; and {len(problems) - 5} more"
