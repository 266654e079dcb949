"""Documents of the store, read with care: what cannot be read is left out and named.

Floor 1, pure.   Flow: store -> [reading] -> durable, folds
A document of another version, or of a bug, must not keep the gateway down; and nobody may be left
to believe that it is in force.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from gateway.store.base import UNREADABLE, Documents

Document = dict[str, Any]
T = TypeVar("T")


class Reading:
    """The documents of one start; `unread`: a sentence for each that could not be read."""

    __slots__ = ("_documents", "unread")

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self.unread: list[str] = [
            f"{place} in the store cannot be read: {document['reason']}; left out"
            for place, document in documents.get(UNREADABLE, {}).items()
        ]

    def each(self, kind: str, read: Callable[[str, Document], T]) -> dict[str, T]:
        """What `read` makes of each document of the kind, by key."""
        found = {}
        for key, document in self._documents.get(kind, {}).items():
            try:
                found[key] = read(key, document)
            # Whatever a document of another version, or of a bug, can lead to when it is read.
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as exc:
                text = f"{kind} {key!a} in the store cannot be read: {exc!r}; left out"
                self.unread.append(text)
        return found
