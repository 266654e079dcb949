"""Slots -> what the next step runs.

Floor 1, pure.
A prompt is prefilled in chunks, one chunk between two decode steps: a long prompt slows the
streams beside it, it never stalls them. The oldest unfinished prompt is prefilled first.
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


def plan(slots: Sequence[Occupied | None], after_prefill: bool) -> Step | None:
    """What to run now; `after_prefill` says that the step before this one was a prefill."""
    decoding = tuple(s for s, held in enumerate(slots) if held and not held.prompt_left)
    unfinished = [(held.order, s) for s, held in enumerate(slots) if held and held.prompt_left]
    if unfinished and not (after_prefill and decoding):
        return Prefill(min(unfinished)[1])
    return Decode(decoding) if decoding else None
