"""The snapshot that a control process begins with: what the last one left in the store.

Floor 1, pure.   Flow: store -> [restore] -> snapshot
It goes on where the last one was. A document that cannot be read is left out and named: it must not
keep the gateway down. The first table waits for every instance that may stand in the last one.
"""

from dataclasses import dataclass, replace
from math import inf

from gateway.config import NAME, Settings, is_address
from gateway.fleet import rollout_documents
from gateway.fleet.drain import ENDED, Drain, Lost, Phase
from gateway.fleet.durable import CREATED, OF_INSTANCE
from gateway.fleet.history import HISTORY_MAX, KIND, entry
from gateway.fleet.launches import desired
from gateway.fleet.reading import Document, Reading
from gateway.fleet.registry import Origin, Seen, listed
from gateway.fleet.rollout_documents import overrides
from gateway.fleet.slots import NO_SLOT, Holder, SlotBook, leave
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import LostRequest
from gateway.state.shared import Layout
from gateway.store.base import Documents


@dataclass(frozen=True, slots=True)
class Life:
    """What a control process is born into."""

    layout: Layout
    segment: int  # its identity
    served: int  # the highest generation that a worker serves
    now: float
    wall: float  # wall clock at loop time 0
    stands_by: bool = (
        False  # a predecessor runs: its slots are not ours, whoever has one is waited for
    )


def restore(settings: Settings, documents: Documents, life: Life) -> FleetSnapshot:
    """The fleet as the store, the file and the segment know it."""
    reading = Reading(documents)
    counters = reading.each("counters", lambda _, document: int(document["value"]))
    generation = max(counters.get("generation", 0), life.served)
    entries = reading.each(KIND, lambda _, document: entry(document)).values()
    history = tuple(sorted(entries, key=lambda one: one.id))[-HISTORY_MAX:]
    fleet = FleetSnapshot(
        settings=settings,
        book=_book(reading, life),
        segment=life.segment,
        rows=life.layout.rows,
        load_s=_loads(reading),
        created_s={
            key.removeprefix(CREATED): seconds
            for key, seconds in counters.items()
            if key.startswith(CREATED)
        },
        generation=generation,
        ceiling=generation,
        revision=counters.get("revision", 0),
        wall=life.wall,
        stands_by=life.stands_by,
        history=history,
        entries=history[-1].id if history else 0,
    )
    fleet = _with_instances(fleet, reading, documents, life.now)
    fleet = _with_intent(fleet, reading, life.now)
    return replace(fleet, unread=tuple(reading.unread))


def _with_instances(
    fleet: FleetSnapshot, reading: Reading, documents: Documents, now: float
) -> FleetSnapshot:
    """Those of the file and those of the store, on the slots of their incarnations."""
    known = {row.id: listed(row) for row in fleet.settings.instance} | _kept(
        fleet.settings, reading, now
    )
    instances = {name: _with_slot(seen, fleet.book, documents) for name, seen in known.items()}
    routed: set[str] = set()
    if fleet.stands_by:
        routed, instances = _of_predecessor(reading, instances)
    book, living = fleet.book, {seen.slot for seen in instances.values()}
    for slot in book.holders.keys() - living:  # its incarnation ended while nobody looked
        book = leave(book, slot, fleet.generation + 1, now)
    awaited = frozenset(name for name, seen in instances.items() if seen.slot != NO_SLOT)
    awaited |= routed
    return replace(fleet, book=book, instances=instances, awaited=awaited)


def _of_predecessor(
    reading: Reading, instances: dict[str, Seen]
) -> tuple[set[str], dict[str, Seen]]:
    """Who stands in its table, as far as slots say; and since when they are READY."""
    routed, found = set(), dict(instances)
    slots = reading.each("slots", lambda _, one: one if "instance" in one else None)
    for one in slots.values():
        seen = instances.get(one["instance"]) if one is not None else None
        if one is None or seen is None or not seen.grpc:
            continue
        if seen.incarnation in {one["incarnation"], ""}:
            routed.add(seen.name)
        if seen.incarnation == one["incarnation"]:
            found[seen.name] = replace(seen, ready_since=float(one["ready_since"]))
    return routed, found


def _with_intent(fleet: FleetSnapshot, reading: Reading, now: float) -> FleetSnapshot:
    """What operators want: weights and drains."""
    weights = reading.each("weights", lambda _, document: overrides(document))
    sizes = reading.each("replicas", lambda _, document: overrides(document))
    rollouts = rollout_documents.rollouts(reading, now)
    fleet = replace(
        fleet,
        replica_overrides=sizes,
        rollouts=rollouts,
        watches=rollout_documents.watches(reading, rollouts),
    )
    drains = _drains(reading, fleet, now)
    wanted = {name: drains[name].intent for name in drains.keys() & fleet.instances.keys()}
    changed = {name: replace(fleet.instances[name], intent=one) for name, one in wanted.items()}
    return replace(
        fleet,
        overrides={key: one for key, one in weights.items() if not key.startswith(OF_INSTANCE)},
        instance_overrides={
            key.removeprefix(OF_INSTANCE): one
            for key, rows in weights.items()
            if key.startswith(OF_INSTANCE)
            for one in rows.values()
        },
        drains=drains,
        instances={**fleet.instances, **changed},
        tokens=len(drains),
    )


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


def _book(reading: Reading, life: Life) -> SlotBook:
    """The slots of this segment; those of an earlier one counted in memory that is gone."""
    holders, sections = {}, {}
    read = reading.each("slots", lambda key, document: _slot(key, document, life.segment))
    for key, found in read.items():
        if isinstance(found, Holder):
            holders[int(key)] = found
        elif found is not None:
            sections[key.removeprefix("section:")] = found
    last = max(holders, default=NO_SLOT)
    return SlotBook(life.layout.slots, life.layout.sections, holders, sections, last)


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


def _drains(reading: Reading, fleet: FleetSnapshot, now: float) -> dict[str, Drain]:
    """Those whose instance is there, or may come: one that was with stop ended with its own."""
    found = reading.each(
        "drains",
        lambda name, document: _drain(name, document, fleet.instances.get(name), now, fleet.wall),
    )
    launched = desired(fleet)
    return {
        name: drain
        for name, drain in found.items()
        if name in fleet.instances or drain.stop or drain.lasts or name in launched
    }


def _drain(name: str, document: Document, seen: Seen | None, now: float, wall: float) -> Drain:
    """A drain that was running begins again: every step of it is idempotent."""
    left = min(document["remaining_s"], document["deadline"] - wall - now, document["grace_s"])
    phase = Phase.PUBLISHING
    if document["ended"]:
        phase = Phase.CUT if document["was_cut"] else Phase.DONE
    if document.get("undrained"):  # this key and two more are younger than the others
        phase = Phase.UNDRAINED
    ended_at = document.get("ended_at")
    over = phase in ENDED
    return Drain(
        name=name,
        slot=seen.slot if seen else NO_SLOT,
        token=0,  # given when it begins to speak to workers
        began=document["began"] - wall,
        deadline=document["deadline"] - wall if over else now + max(0.0, left),
        stop=document["stop"],
        reclaim=document["reclaim"],
        reason=document["reason"],
        phase=phase,
        was_cut=document["was_cut"],
        ended=None if not over else now if ended_at is None else min(now, ended_at - wall),
        lost=tuple(_lost(one) for one in document.get("lost", ())),
    )


def _lost(document: Document) -> Lost:
    names = (document["cause"], document["instance"], document["model"], document["version"])
    return Lost(LostRequest(**document["request"]), *names)


def _loads(reading: Reading) -> dict[tuple[str, str], float]:
    """From the bodies: a key cannot be taken apart, whatever its names are made of."""
    found = reading.each(
        "history", lambda key, one: (one["model"], one["version"], float(one["seconds"]))
    )
    return {(model, version): seconds for model, version, seconds in found.values()}
