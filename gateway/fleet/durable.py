"""What the store holds: records to documents.

Floor 1, pure.   Flow: snapshot -> [durable] -> store
Deadlines are kept as wall time with the remaining seconds beside: a control that reads them takes
the smaller, so neither a long pause nor a clock step stretches a drain.
"""

from dataclasses import asdict
from typing import Final

from gateway.fleet.drain import ENDED, Drain, Phase
from gateway.fleet.reading import Document
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.rollout_documents import (
    ROLLOUTS,
    WATCHES,
    overrides_document,
    rollout_as_it_is,
)
from gateway.fleet.slots import SlotBook
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.weights import Overrides
from gateway.store.base import Change, Put, Remove

GENERATIONS: Final = 1000  # reserved at once: one write for many tables
CREATED: Final = "created:"  # keys of kind `counters`, with the model's name behind
OF_INSTANCE: Final = "instance:"  # keys of kind `weights`; no model's name has a colon


def instance_document(seen: Seen) -> Document:
    return {
        "model": seen.model,
        "version": seen.version,
        "origin": seen.origin.value,
        "http": seen.http,
        "grpc": seen.grpc,
        "weight": seen.weight,
        "limit": seen.limit,
        "token": seen.token,
        "device": seen.device,
        "lease": seen.lease,
        "incarnation": seen.incarnation,
        "superseded": list(seen.superseded),
        "retired": seen.retired,
    }


def slot_change(book: SlotBook, slot: int, segment: int, ready_since: float) -> Put:
    holder = book.holders[slot]
    document = {
        "instance": holder.instance,
        "incarnation": holder.incarnation,
        "model": holder.model,
        "version": holder.version,
        "ready_since": ready_since,
        "segment": segment,
    }
    return Put("slots", str(slot), document)


def section_change(model: str, section: int, segment: int) -> Put:
    return Put("slots", f"section:{model}", {"section": section, "segment": segment})


def overrides_change(key: str, overrides: Overrides) -> Put:
    return Put("weights", key, overrides_document(overrides))


def replicas_change(model: str, overrides: Overrides) -> Put:
    """Sizes of groups, over those of the file."""
    return Put("replicas", model, overrides_document(overrides))


def drain_change(drain: Drain, wall: float, now: float) -> Put:
    """`wall`: wall clock at loop time 0. An ended one is cut when something was lost by it."""
    document = {
        "stop": drain.stop,
        "reclaim": drain.reclaim,
        "reason": drain.reason,
        "ended": drain.phase in ENDED,
        "undrained": drain.phase is Phase.UNDRAINED,
        "was_cut": drain.phase is Phase.CUT if drain.phase in ENDED else drain.was_cut,
        "ended_at": None if drain.ended is None else wall + drain.ended,
        "lost": [asdict(one) for one in drain.lost],
        "began": wall + drain.began,
        "grace_s": max(0.0, drain.deadline - drain.began),
        "deadline": wall + drain.deadline,
        "remaining_s": max(0.0, drain.deadline - now),
    }
    return Put("drains", drain.name, document)


def as_it_is(fleet: FleetSnapshot, change: Change, now: float) -> Change:
    """What takes the change back in the store: the fleet has not followed it."""
    kind, key = change.kind, change.key
    put: Put | None = None
    if kind == "drains" and key in fleet.drains:
        put = drain_change(fleet.drains[key], fleet.wall, now)
    elif kind == "instances" and key in fleet.instances:
        seen = fleet.instances[key]
        if seen.origin is not Origin.CONFIG or seen.retired:
            put = Put(kind, key, instance_document(seen))
    elif kind == "weights" and key.startswith(OF_INSTANCE):
        name = key.removeprefix(OF_INSTANCE)
        if name in fleet.instance_overrides:
            put = overrides_change(key, {name: fleet.instance_overrides[name]})
    elif kind == "weights" and fleet.overrides.get(key):
        put = overrides_change(key, fleet.overrides[key])
    elif kind == "replicas" and fleet.replica_overrides.get(key):
        put = replicas_change(key, fleet.replica_overrides[key])
    elif kind in {ROLLOUTS, WATCHES}:
        put = rollout_as_it_is(kind, key, fleet.rollouts, fleet.watches)
    return put or Remove(kind, key)


def counter_change(name: str, value: int) -> Put:
    return Put("counters", name, {"value": value})


def created_change(model: str, created_s: int) -> Put:
    return counter_change(CREATED + model, created_s)


def load_change(model: str, version: str, seconds: float) -> Put:
    document = {"model": model, "version": version, "seconds": seconds}
    return Put("history", f"load:{model}:{version}", document)
