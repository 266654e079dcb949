"""Where intent is kept: documents by kind and key, written all or nothing.

Floor 3, the seam.
Kinds: counters, weights, replicas, rollouts, watches (what was counted of them), drains, instances,
slots, retained, history (of loads), changes (of intent), webhooks (how far each was told). What a
document holds belongs to whoever writes it; a store only promises that a write that returned
survives anything.
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


class Fenced(StoreFailed):
    """Somebody else has claimed the store since: it has one writer, and that is the last one."""


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

    async def reclaim(self, changes: Sequence[Change]) -> None:
        """Be the writer again, whoever claimed it meanwhile, and write the changes.

        Raises: StoreFailed.
        """

    async def claim(self) -> None:
        """Become the writer, with all that was written so far, or change nothing at all. Only a
        store that was opened to stand by has something to do.

        Raises: StoreFailed; Fenced when somebody else has claimed it since it was read.
        """

    async def settled(self) -> None:
        """Returns when every write that was begun has ended."""

    async def close(self) -> None: ...
