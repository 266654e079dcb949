"""What the store holds: documents to records and back.

Floor 1, pure.   Flow: store -> [durable] -> snapshot; snapshot -> [durable] -> store
A control process that starts reads everything and goes on where the last one was. Deadlines are
kept as wall time with the remaining seconds beside: the smaller counts, and never more than the
grace, so neither a long pause nor a clock step stretches a drain (appendix D.20).
"""

from dataclasses import replace
from math import inf
from typing import Any, Final

from gateway.config import Settings
from gateway.fleet.drain import ENDED, Drain, Phase
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.slots import NO_SLOT, Holder, SlotBook, leave
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.weights import Override, Overrides
from gateway.records import Intent
from gateway.state.shared import Layout
from gateway.store.base import Documents, Put

GENERATIONS: Final = 1000  # reserved at once: one write for many tables
OF_INSTANCE: Final = "instance:"  # keys of kind `weights`; no model's name has a colon

Document = dict[str, Any]


# --- records to documents ------------------------------------------------------------------------


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
    rows = {name: {"weight": one.weight, "over": one.over} for name, one in overrides.items()}
    return Put("weights", key, rows)


def drain_change(drain: Drain, wall: float, now: float) -> Put:
    """`wall`: wall clock at loop time 0."""
    document = {
        "stop": drain.stop,
        "reclaim": drain.reclaim,
        "reason": drain.reason,
        "ended": drain.phase in ENDED,
        "was_cut": drain.was_cut,
        "began": wall + drain.began,
        "grace_s": max(0.0, drain.deadline - drain.began),
        "deadline": wall + drain.deadline,
        "remaining_s": max(0.0, drain.deadline - now),
    }
    return Put("drains", drain.name, document)


def counter_change(name: str, value: int) -> Put:
    return Put("counters", name, {"value": value})


def load_change(model: str, version: str, seconds: float) -> Put:
    return Put("history", f"load:{model}:{version}", {"seconds": seconds})


# --- documents to a snapshot ---------------------------------------------------------------------


def restore(
    settings: Settings,
    documents: Documents,
    layout: Layout,
    segment: int,
    generation_min: int,
    now: float,
    wall: float,
) -> FleetSnapshot:
    """The snapshot that a control process begins with.

    generation_min: the highest generation that a worker serves. wall: wall clock at loop time 0.
    The first table waits for every instance that may stand in the last one (appendix D.1).
    """
    counters = documents.get("counters", {})
    ceiling = counters.get("generation", {}).get("value", 0)
    instances = _statics(settings) | _kept(settings, documents.get("instances", {}), now)
    book = _book(documents.get("slots", {}), layout, segment)
    instances = {name: _with_slot(seen, book, documents) for name, seen in instances.items()}
    living = {seen.slot for seen in instances.values()}
    for slot in book.holders.keys() - living:  # its incarnation ended while nobody looked
        book = leave(book, slot, max(ceiling, generation_min) + 1, now)
    weights = {
        key: {name: Override(row["weight"], row["over"]) for name, row in rows.items()}
        for key, rows in documents.get("weights", {}).items()
    }
    launched = {
        f"{model.name}-{version}-{ordinal}"
        for model in settings.model
        for version, count in model.replicas.items()
        for ordinal in range(count)
    }
    drains = {
        name: _drain(name, document, instances.get(name), now, wall)
        for name, document in documents.get("drains", {}).items()
        if name in instances or document["stop"] or name in launched
    }
    for name, drain in drains.items():
        if name in instances:
            intent = Intent.STOP if drain.stop else Intent.DRAIN
            instances[name] = replace(instances[name], intent=intent)
    return FleetSnapshot(
        settings=settings,
        book=book,
        segment=segment,
        rows=layout.rows,
        instances=instances,
        overrides={key: one for key, one in weights.items() if not key.startswith(OF_INSTANCE)},
        instance_overrides={
            key.removeprefix(OF_INSTANCE): one
            for key, rows in weights.items()
            if key.startswith(OF_INSTANCE)
            for one in rows.values()
        },
        drains=drains,
        load_s=_loads(documents.get("history", {})),
        generation=max(ceiling, generation_min),
        ceiling=max(ceiling, generation_min),
        revision=counters.get("revision", {}).get("value", 0),
        awaited=frozenset(name for name, seen in instances.items() if seen.slot != NO_SLOT),
        tokens=len(drains),
        wall=wall,
    )


def _statics(settings: Settings) -> dict[str, Seen]:
    return {
        row.id: Seen(
            name=row.id,
            model=row.model,
            version=row.version,
            origin=Origin.CONFIG,
            http=row.http,
            grpc=row.grpc,
            weight=row.weight,
            limit=row.limit,
        )
        for row in settings.instance
    }


def _kept(settings: Settings, documents: dict[str, Document], now: float) -> dict[str, Seen]:
    """Registered, launched, added by API, and retired ones; the file's own words stand above."""
    named = {row.id for row in settings.instance}
    found = {}
    for name, document in documents.items():
        origin = Origin(document["origin"])
        if name in named:
            continue
        leased = origin in {Origin.REGISTERED, Origin.LAUNCHED}
        found[name] = Seen(
            name=name,
            model=document["model"],
            version=document["version"],
            origin=origin,
            http=document["http"],
            grpc=document["grpc"],
            weight=document["weight"],
            limit=document["limit"],
            token=document["token"],
            incarnation=document["incarnation"],
            superseded=tuple(document["superseded"]),
            retired=document["retired"],
            began=now,
            since=now,
            expires_at=now + settings.registry.ttl_s if leased else inf,
        )
    return found


def _book(documents: dict[str, Document], layout: Layout, segment: int) -> SlotBook:
    """The slots of this segment; those of an earlier one counted in memory that is gone."""
    holders, sections = {}, {}
    for key, document in documents.items():
        if document["segment"] != segment:
            continue
        if key.startswith("section:"):
            sections[key.removeprefix("section:")] = document["section"]
        else:
            holders[int(key)] = Holder(
                document["instance"],
                document["incarnation"],
                document["model"],
                document["version"],
                kept=True,
            )
    last = max(holders, default=NO_SLOT)
    return SlotBook(layout.slots, layout.sections, holders, sections, last)


def _with_slot(seen: Seen, book: SlotBook, documents: Documents) -> Seen:
    for slot, holder in book.holders.items():
        if holder.instance == seen.name and seen.incarnation in {holder.incarnation, ""}:
            document = documents["slots"][str(slot)]
            return replace(
                seen,
                slot=slot,
                incarnation=holder.incarnation,
                ready_since=document["ready_since"],
            )
    return seen


def _drain(name: str, document: Document, seen: Seen | None, now: float, wall: float) -> Drain:
    """A drain that was running begins again: every step of it is idempotent."""
    left = min(document["remaining_s"], document["deadline"] - wall - now, document["grace_s"])
    phase = Phase.PUBLISHING
    if document["ended"]:
        phase = Phase.CUT if document["was_cut"] else Phase.DONE
    return Drain(
        name=name,
        slot=seen.slot if seen else NO_SLOT,
        token=0,  # given when it begins to speak to workers
        began=document["began"] - wall,
        deadline=now + max(0.0, left),
        stop=document["stop"],
        reclaim=document["reclaim"],
        reason=document["reason"],
        phase=phase,
        was_cut=document["was_cut"],
        ended=now if document["ended"] else None,
    )


def _loads(documents: dict[str, Document]) -> dict[tuple[str, str], float]:
    found = {}
    for key, document in documents.items():
        if key.startswith("load:"):
            _, model, version = key.split(":")
            found[model, version] = document["seconds"]
    return found
