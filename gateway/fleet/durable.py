"""What the store holds: documents to records and back.

Floor 1, pure.   Flow: store -> [durable] -> snapshot; snapshot -> [durable] -> store
A control process that starts reads everything and goes on where the last one was. Deadlines are
kept as wall time with the remaining seconds beside: the smaller counts, and never more than the
grace, so neither a long pause nor a clock step stretches a drain.
"""

from dataclasses import replace
from math import inf
from typing import Final

from gateway.config import NAME, Settings, is_address
from gateway.fleet.drain import ENDED, Drain, Phase
from gateway.fleet.reading import Document, Reading
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.slots import NO_SLOT, Holder, SlotBook, leave
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.weights import Override, Overrides
from gateway.records import Intent
from gateway.state.shared import Layout
from gateway.store.base import Documents, Put

GENERATIONS: Final = 1000  # reserved at once: one write for many tables
CREATED: Final = "created:"  # keys of kind `counters`, with the model's name behind
OF_INSTANCE: Final = "instance:"  # keys of kind `weights`; no model's name has a colon


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


def created_change(model: str, created_s: int) -> Put:
    return counter_change(CREATED + model, created_s)


def load_change(model: str, version: str, seconds: float) -> Put:
    document = {"model": model, "version": version, "seconds": seconds}
    return Put("history", f"load:{model}:{version}", document)


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
    The first table waits for every instance that may stand in the last one.
    A document that cannot be read is left out and named: it must not keep the gateway down.
    """
    reading = Reading(documents)
    counters = reading.each("counters", lambda _, document: int(document["value"]))
    ceiling = counters.get("generation", 0)
    instances = _statics(settings) | _kept(settings, reading, now)
    book = _book(reading, layout, segment)
    instances = {name: _with_slot(seen, book, documents) for name, seen in instances.items()}
    living = {seen.slot for seen in instances.values()}
    for slot in book.holders.keys() - living:  # its incarnation ended while nobody looked
        book = leave(book, slot, max(ceiling, generation_min) + 1, now)
    weights = reading.each("weights", _overrides)
    launched = _launched(settings)
    found = reading.each(
        "drains", lambda name, document: _drain(name, document, instances.get(name), now, wall)
    )
    drains = {
        name: drain
        for name, drain in found.items()
        if name in instances or drain.stop or name in launched
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
        load_s=_loads(reading),
        created_s={
            key.removeprefix(CREATED): seconds
            for key, seconds in counters.items()
            if key.startswith(CREATED)
        },
        generation=max(ceiling, generation_min),
        ceiling=max(ceiling, generation_min),
        revision=counters.get("revision", 0),
        awaited=frozenset(name for name, seen in instances.items() if seen.slot != NO_SLOT),
        tokens=len(drains),
        wall=wall,
        unread=tuple(reading.unread),
    )


def _overrides(key: str, rows: Document) -> Overrides:
    return {
        name: Override(float(row["weight"]), None if row["over"] is None else float(row["over"]))
        for name, row in rows.items()
    }


def _launched(settings: Settings) -> set[str]:
    """Names of the instances that the launcher is to run."""
    return {
        f"{model.name}-{version}-{ordinal}"
        for model in settings.model
        for version, count in model.replicas.items()
        for ordinal in range(count)
    }


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


def _kept(settings: Settings, reading: Reading, now: float) -> dict[str, Seen]:
    """Registered, launched, added by API, and retired ones; the file's own words stand above."""
    named = {row.id for row in settings.instance}
    expires_at = now + settings.registry.ttl_s
    found = reading.each(
        "instances", lambda name, document: _instance(name, document, now, expires_at)
    )
    return {name: seen for name, seen in found.items() if name not in named}


def _instance(name: str, document: Document, now: float, expires_at: float) -> Seen:
    """Raises: ValueError and its like when it could do harm in a table or in a response head."""
    origin = Origin(document["origin"])
    for value in (name, document["model"], document["version"]):
        if not NAME.fullmatch(value):
            raise ValueError(f"{value!a} is no name")
    for value in (document["http"], document["grpc"]):
        if value and not is_address(value):
            raise ValueError(f"{value!a} is not host:port")
    if not 0 <= document["weight"] < inf:
        raise ValueError(f"its weight is {document['weight']}")
    leased = origin in {Origin.REGISTERED, Origin.LAUNCHED}
    return Seen(
        name=name,
        model=document["model"],
        version=document["version"],
        origin=origin,
        http=document["http"],
        grpc=document["grpc"],
        weight=document["weight"],
        limit=document["limit"],
        token=document["token"],
        device=document.get("device", ""),  # a document of an older version has none
        lease=document.get("lease", ""),  # none in a document of before there were any
        incarnation=document["incarnation"],
        superseded=tuple(document["superseded"]),
        retired=document["retired"],
        began=now,
        since=now,
        expires_at=expires_at if leased else inf,
    )


def _book(reading: Reading, layout: Layout, segment: int) -> SlotBook:
    """The slots of this segment; those of an earlier one counted in memory that is gone."""
    holders, sections = {}, {}
    for key, found in reading.each("slots", lambda key, one: _slot(key, one, segment)).items():
        if isinstance(found, Holder):
            holders[int(key)] = found
        elif found is not None:
            sections[key.removeprefix("section:")] = found
    last = max(holders, default=NO_SLOT)
    return SlotBook(layout.slots, layout.sections, holders, sections, last)


def _slot(key: str, document: Document, segment: int) -> Holder | int | None:
    """Who holds the slot, or the section's number; None: it is of another segment."""
    if document["segment"] != segment:
        return None
    if key.startswith("section:"):
        return int(document["section"])
    int(key)  # Raises: ValueError; any other key is no slot
    float(document["ready_since"])
    return Holder(
        document["instance"],
        document["incarnation"],
        document["model"],
        document["version"],
        kept=True,
    )


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


def _loads(reading: Reading) -> dict[tuple[str, str], float]:
    """From the bodies: a key cannot be taken apart, whatever its names are made of."""
    found = reading.each(
        "history", lambda key, one: (one["model"], one["version"], float(one["seconds"]))
    )
    return {(model, version): seconds for model, version, seconds in found.values()}
