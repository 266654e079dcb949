"""Slots and queue -> what the next step runs.

Floor 1, pure.
A prompt is prefilled in chunks, one chunk between two decode steps: a long prompt slows the
streams beside it, it never stalls them. Free slots are taken first come, first served; the oldest
unfinished prompt is prefilled first.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Occupied:
    """A slot that holds a generation."""

    order: int  # of admission: lower came earlier
    prompt_left: int  # ids not prefilled yet; 0: it decodes


@dataclass(frozen=True, slots=True)
class Prefill:
    slot: int


@dataclass(frozen=True, slots=True)
class Decode:
    slots: tuple[int, ...]


Step = Prefill | Decode


@dataclass(frozen=True, slots=True)
class Plan:
    """`admitted[i]` is the slot that the i-th waiting generation takes; then `step` runs."""

    admitted: tuple[int, ...]
    step: Step | None  # None: there is nothing to do


def plan(slots: Sequence[Occupied | None], waiting: int, after_prefill: bool) -> Plan:
    """What to run now; `after_prefill` says that the step before this one was a prefill."""
    free = [slot for slot, held in enumerate(slots) if held is None]
    admitted = tuple(free[:waiting])
    decoding = tuple(s for s, held in enumerate(slots) if held and not held.prompt_left)
    unfinished = [(held.order, s) for s, held in enumerate(slots) if held and held.prompt_left]
    prefills = [slot for _, slot in sorted(unfinished)] + list(admitted)
    if prefills and not (after_prefill and decoding):
        return Plan(admitted, Prefill(prefills[0]))
    return Plan(admitted, Decode(decoding) if decoding else None)
