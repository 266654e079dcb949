"""Where intent is kept: documents by kind and key, written all or nothing.

Floor 3, the seam.
Kinds: counters, weights, drains, instances, slots, retained, history. What a document holds belongs
to whoever writes it; a store only promises that a write that returned survives anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

Documents = dict[str, dict[str, dict[str, Any]]]  # kind: key: document


UNREADABLE: Final = "unreadable"  # kind of what is no document: kind and key as key, reason in it


class StoreUnusable(Exception):
    """It cannot be opened as it is: corrupted, of a newer version, not writable. Never overwritten.

    The message is a sentence that names the file and says what to do.
    """


class StoreFailed(Exception):
    """A write did not happen; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Put:
    kind: str
    key: str
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    kind: str
    key: str


Change = Put | Remove


class Store(Protocol):
    async def read(self) -> Documents:
        """Everything that is kept."""

    async def write(self, changes: Sequence[Change]) -> None:
        """All of the changes, durably, or none.

        Raises: StoreFailed.
        """

    async def close(self) -> None: ...
