"""Slots -> what the next step runs.

Floor 1, pure.
A prompt is prefilled in chunks, one small chunk between two decode steps: a long prompt slows the
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
    count: int  # ids of its prompt


@dataclass(frozen=True, slots=True)
class Decode:
    slots: tuple[int, ...]


Step = Prefill | Decode


def plan(
    slots: Sequence[Occupied | None], chunks: Sequence[int], after_prefill: bool
) -> Step | None:
    """What to run now; `after_prefill` says that the step before this one was a prefill.

    `chunks` are the sizes of prefills that the engine has, ascending.
    """
    decoding = tuple(s for s, held in enumerate(slots) if held and not held.prompt_left)
    unfinished = [(held.order, s) for s, held in enumerate(slots) if held and held.prompt_left]
    if not unfinished or (after_prefill and decoding):
        return Decode(decoding) if decoding else None
    _, slot = min(unfinished)
    oldest = slots[slot]
    assert oldest is not None
    # Beside streams the smallest chunk: they wait for no more than they must.
    size = chunks[0] if decoding else _fitting(oldest.prompt_left, chunks)
    return Prefill(slot, min(size, oldest.prompt_left))


def _fitting(left: int, chunks: Sequence[int]) -> int:
    """The largest that is more than half used: what is not used is computed too."""
    return max((size for size in chunks if size < 2 * left), default=chunks[0])
