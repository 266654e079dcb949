"""Who changed what, and when: the changes of intent, and how each drain ended.

Floor 1, pure.   Flow: ask -> [history] -> the same write as the change itself -> admin
It survives everything that the intent survives, because both are one write. Bounded: the oldest
entry goes when a new one comes. Events tell of much more, but only of one control's life.
"""

from dataclasses import asdict, dataclass
from typing import Final

from gateway.control import (
    AddInstance,
    Ask,
    CancelLease,
    DrainInstance,
    Reload,
    RemoveInstance,
    ResetInstanceWeight,
    ResetWeights,
    SetInstanceWeight,
    SetWeights,
    StartInstance,
    StopInstance,
    UndrainInstance,
)
from gateway.fleet.reading import Document
from gateway.fleet.rollout import Move
from gateway.fleet.weights import Forget
from gateway.store.base import Change, Put, Remove

HISTORY_MAX: Final = 1000  # entries; an operator makes tens a day
KIND: Final = "changes"  # in the store


@dataclass(frozen=True, slots=True)
class Entry:
    id: int  # grows
    at: float  # wall clock
    by: str  # as the caller said, and from where; or what made the gateway do it
    kind: str  # weights, drain, instance, lease, config, rollout
    subject: str
    text: str
    revision: int  # of which it is part


def about(ask: Ask | Move | Forget) -> tuple[str, str]:
    """Kind and subject of what is asked for."""
    match ask:
        case SetWeights(model) | ResetWeights(model) | Forget(model):
            return "weights", model
        case AddInstance(name):
            return "instance", name
        case CancelLease(request):
            return "lease", request
        case Reload():
            return "config", "config.toml"
        case SetInstanceWeight(name) | ResetInstanceWeight(name):
            return "weights", name
        case DrainInstance(name) | UndrainInstance(name) | StopInstance(name):
            return "drain", name
        case StartInstance(name) | RemoveInstance(name):
            return "instance", name
    return "rollout", ask.model


def kept(history: tuple[Entry, ...], entry: Entry) -> tuple[Change, ...]:
    """What the store is to hold: the entry, and none that has become too old."""
    over = max(0, len(history) + 1 - HISTORY_MAX)
    return (
        Put(KIND, _key(entry.id), asdict(entry)),
        *(Remove(KIND, _key(old.id)) for old in history[:over]),
    )


def grown(history: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """By their numbers: one that was drafted before others may be kept after them."""
    return tuple(sorted((*history, entry), key=lambda one: one.id))[-HISTORY_MAX:]


def entry(document: Document) -> Entry:
    """Raises: ValueError and its like when it is none."""
    by, kind, subject, text = (str(document[key]) for key in ("by", "kind", "subject", "text"))
    number, revision = int(document["id"]), int(document["revision"])
    return Entry(number, float(document["at"]), by, kind, subject, text, revision)


def _key(number: int) -> str:
    return f"{number:015d}"  # so that the store's own order is theirs
