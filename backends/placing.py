"""Which free slot each waiting prompt takes: the one that saves it most and loses others least.

Floor 1, pure.
A slot keeps its keys and values when its generation is over, until the slot is needed. A prompt
that begins with the same ids finds its first positions there, computed. What is lost of a slot is
what a later prompt might have found: the longer nobody came for it, the less it counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """What the cache of a free slot holds: keys and values of these ids, from position 0 on."""

    ids: tuple[int, ...] = ()
    since: int = 0  # admissions, of all slots, when it was left


@dataclass(frozen=True, slots=True)
class Place:
    slot: int
    reused: int  # first ids of the prompt that the slot's cache holds


NOTHING_KEPT = Kept()


def place(
    prompts: Sequence[tuple[int, ...]], free: Mapping[int, Kept], admissions: int
) -> tuple[Place, ...]:
    """A place for each of the first prompts, as many as there are free slots."""
    waiting = range(min(len(prompts), len(free)))
    reusable = {(i, slot): shared(prompts[i], free[slot].ids) for i in waiting for slot in free}
    places: dict[int, Place] = {}
    left = dict(free)
    while len(places) < len(waiting):
        # While a slot is empty, nothing is lost that is worth more than what is saved.
        is_room = any(not kept.ids for kept in left.values())
        worth = {
            (i, slot): _worth(reusable[i, slot], kept, 0 if is_room else admissions - kept.since)
            for i in waiting
            if i not in places
            for slot, kept in left.items()
        }
        # Who saves most chooses first: nobody takes a prefix from a neighbour who could use it.
        i, slot = max(worth, key=lambda pair: (worth[pair], -pair[0], -pair[1]))
        del left[slot]
        places[i] = Place(slot, reusable[i, slot])
    return tuple(places[i] for i in waiting)


def _worth(reused: int, kept: Kept, age: int) -> float:
    """Ids saved, less those lost; of what nobody came for while `age` others did, few will be.

    Squared, a thousand ids that nobody came for outlive a talk of a hundred by three admissions.
    """
    return reused - (len(kept.ids) - reused) / (1 + age) ** 2


def shared(prompt: tuple[int, ...], kept: tuple[int, ...]) -> int:
    """How many first ids of the prompt need no computing; its last one always does."""
    most = min(len(prompt) - 1, len(kept))
    if prompt[:most] == kept[:most]:
        return most
    return next(i for i in range(most) if prompt[i] != kept[i])
