"""Documents of a store, as tests keep them."""

from collections.abc import Iterable

from gateway.store.base import Change, Documents, Put


def apply(documents: Documents, changes: Iterable[Change]) -> None:
    for change in changes:
        kind = documents.setdefault(change.kind, {})
        if isinstance(change, Put):
            kind[change.key] = change.document
        else:
            kind.pop(change.key, None)
