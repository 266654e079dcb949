"""Which slot of the segment belongs to which incarnation of which instance.

Floor 1, pure.   Flow: registry -> [slots] -> table
A slot counts one incarnation: a restart at the same address starts clean, and an old stream that
ends late settles on the old counters. A slot is given out again only after every
worker acknowledged a table without it, it is empty, and its counters have been folded into the
retained bases of its version, so that a Prometheus counter never goes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

NO_SLOT: Final = -1
QUIET_S: Final = 10.0  # a request is counted just after its lease: far longer than that gap


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose counters a slot holds."""

    instance: str
    incarnation: str
    model: str
    version: str
    kept: bool = False  # the store has it: only then may it stand in a table
    left_at: float | None = None  # when its incarnation was over; None: it lives
    left_generation: int = 0  # the first table that cannot name it


@dataclass(frozen=True, slots=True)
class SlotBook:
    slots_max: int
    sections_max: int
    holders: Mapping[int, Holder] = field(default_factory=dict)
    sections: Mapping[str, int] = field(default_factory=dict)  # model: section; 0 is nobody's
    last: int = NO_SLOT  # given out last: the next search begins behind it, so reuse is late


def allocate(book: SlotBook, holder: Holder) -> tuple[SlotBook, int]:
    """A slot for a new incarnation; NO_SLOT when all are held."""
    for offset in range(1, book.slots_max + 1):
        slot = (book.last + offset) % book.slots_max
        if slot not in book.holders:
            return replace(book, holders={**book.holders, slot: holder}, last=slot), slot
    return book, NO_SLOT


def kept(book: SlotBook, slot: int) -> SlotBook:
    """The store has the slot's document."""
    holder = replace(book.holders[slot], kept=True)
    return replace(book, holders={**book.holders, slot: holder})


def leave(book: SlotBook, slot: int, generation: int, now: float) -> SlotBook:
    """The incarnation is over; tables from `generation` on do not name the slot."""
    holder = book.holders.get(slot)
    if holder is None or holder.left_at is not None:
        return book
    gone = replace(holder, left_at=now, left_generation=generation)
    return replace(book, holders={**book.holders, slot: gone})


def foldable(book: SlotBook, served: int, now: float) -> tuple[int, ...]:
    """Slots that may be folded now, if they are empty. `served`: by every worker."""
    return tuple(
        slot
        for slot, holder in book.holders.items()
        if holder.left_at is not None
        and holder.left_generation <= served
        and now >= holder.left_at + QUIET_S
    )


def release(book: SlotBook, slot: int) -> SlotBook:
    """The slot has been folded: it may be given out again."""
    return replace(book, holders={one: who for one, who in book.holders.items() if one != slot})


def section_of(book: SlotBook, model: str) -> tuple[SlotBook, int]:
    """The model's section; a new one for a new model, 0 when none is left."""
    if model in book.sections:
        return book, book.sections[model]
    free = set(range(1, book.sections_max)) - set(book.sections.values())
    if not free:
        return book, 0
    section = min(free)
    return replace(book, sections={**book.sections, model: section}), section
