"""What webhooks are told: durable facts, each with an id and a place, and how far a hook has come.

Floor 1, pure.   Flow: fleet, cursor -> [notes] -> webhooks
Only what the store keeps is told: transitions of rollouts, changes of intent, ends of drains. So
what is still to be told is a function of the fleet and of the cursor, and a control that begins
anew goes on where the last one was. The cursor counts per rollout, because two can run at once.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from math import inf
from typing import Any

from gateway.config_tables import Webhook
from gateway.fleet.reading import Document
from gateway.fleet.rollout import Rollout
from gateway.fleet.snapshot import FleetSnapshot
from gateway.store.base import Put

KIND = "webhooks"  # in the store
ROLLOUT = "rollout"


@dataclass(frozen=True, slots=True)
class Cursor:
    """What one hook has been told, or was given up for it."""

    history: int = 0  # id of the last entry
    rollouts: Mapping[str, int] = field(default_factory=dict)  # transitions, by rollout


@dataclass(frozen=True, slots=True)
class Note:
    id: str  # the same each time that it is sent: who receives it twice knows
    kind: str
    subject: str
    at: float  # wall clock
    text: str  # a sentence
    fields: Mapping[str, Any]
    after: Cursor  # of a hook that has been told this one

    def document(self) -> Document:
        return {
            "id": self.id,
            "kind": self.kind,
            "subject": self.subject,
            "at": self.at,
            "text": self.text,
            "fields": dict(self.fields),
        }


def now_told(fleet: FleetSnapshot) -> Cursor:
    """Of a hook that begins: it is told what happens from now on."""
    counts = {one.id: len(one.transitions) for many in fleet.rollouts.values() for one in many}
    held = _held(fleet)
    last = max((entry.id for entry in fleet.history if entry.id < held), default=0)
    return Cursor(last, counts)


def upcoming(fleet: FleetSnapshot, hook: Webhook, cursor: Cursor) -> Note | None:
    """What the hook is to be told next, oldest first."""
    sources = [_changes(fleet, hook, cursor)]
    if ROLLOUT in hook.events:
        for many in fleet.rollouts.values():
            sources += [_transitions(fleet, one, cursor) for one in many]
    return next(merge(*sources, key=lambda note: note.at), None)


def _transitions(fleet: FleetSnapshot, one: Rollout, cursor: Cursor) -> Iterator[Note]:
    for number in range(cursor.rollouts.get(one.id, 0), len(one.transitions)):
        told = one.transitions[number]
        kept = {key: count for key, count in cursor.rollouts.items() if _known(fleet, key)}
        yield Note(
            id=f"rollout:{one.id}:{number + 1}",
            kind=ROLLOUT,
            subject=one.model,
            at=told.at,
            text=f"rollout {one.id} of version {one.version}: {told.phase.value}: {told.reason}",
            fields={
                "rollout": one.id,
                "model": one.model,
                "version": one.version,
                "stable": one.stable,
                "phase": told.phase.value,
                "step": told.step,
                "weight": one.steps[told.step - 1].weight if told.step else 0.0,
                "reason": told.reason,
                "by": told.by,
            },
            after=Cursor(cursor.history, {**kept, one.id: number + 1}),
        )


def _known(fleet: FleetSnapshot, rollout: str) -> bool:
    model = rollout.rpartition("/")[0]
    return any(one.id == rollout for one in fleet.rollouts.get(model, ()))


def _held(fleet: FleetSnapshot) -> float:
    """The number of the change that is being stored, beyond which nothing is told yet: no cursor
    goes past an entry that is still to come."""
    return fleet.drafted.id if fleet.drafted is not None else inf


def _changes(fleet: FleetSnapshot, hook: Webhook, cursor: Cursor) -> Iterator[Note]:
    """What operators have changed, and ends of drains. Rollouts tell more of themselves."""
    held = _held(fleet)
    for entry in fleet.history:
        if cursor.history < entry.id < held and entry.kind in hook.events and entry.kind != ROLLOUT:
            yield Note(
                id=f"change:{entry.id}",
                kind=entry.kind,
                subject=entry.subject,
                at=entry.at,
                text=entry.text,
                fields={"by": entry.by, "revision": entry.revision},
                after=Cursor(entry.id, cursor.rollouts),
            )


def signature(secret: bytes, at: int, body: bytes) -> str:
    """For who shares the secret: that we have sent this body, and when."""
    code = hmac.new(secret, b"%d.%b" % (at, body), hashlib.sha256).hexdigest()
    return f"t={at},v1={code}"


# --- kept ----------------------------------------------------------------------------------------


def cursor_change(hook: str, cursor: Cursor) -> Put:
    return Put(KIND, hook, {"history": cursor.history, "rollouts": dict(cursor.rollouts)})


def cursor_of(document: Document) -> Cursor:
    """Raises: ValueError and its like when it is none."""
    rollouts = {str(key): int(count) for key, count in document["rollouts"].items()}
    return Cursor(int(document["history"]), rollouts)
