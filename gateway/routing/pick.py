"""Choose the version, then the instance, that answers one request.

Floor 1, pure but for a route's place in its sequence and a version's turns, which come in.
Flow: match -> [pick] -> dial
The version is drawn by a low-discrepancy sequence: shares hold over any hundred requests, not only
on average. A full version is never relieved by another: that would bend the very split that a
canary is judged on. No policy looks at all targets unless all that it looked at are full.
"""

from bisect import bisect_left, bisect_right
from random import Random
from typing import Final

from gateway.routing.compiled import (
    LEAST_LOADED,
    RANDOM,
    ROUND_ROBIN,
    CompiledRoute,
    CompiledTarget,
    CompiledVersion,
)

# The step whose multiples spread most evenly on a circle; Knuth, TAOCP 3, section 6.4.
GOLDEN: Final = 0.6180339887498949
SPREAD: Final = 0x9E3779B97F4A7C15  # the same step in 64 bits: neighbours go far apart
UINT64: Final = 0xFFFFFFFFFFFFFFFF
BOUNDED_LOAD: Final = 1.25  # of the mean; Mirrokni, Thorup, Zadimoghaddam, 2016, and HAProxy's use
FEW: Final = 16  # targets that may be looked at one by one: some microseconds
POINTS_TRIED: Final = 32  # on a ring: where four of five have too much, a key in 1,000 goes on

NO_KEY: Final = -1  # one below it is of a prompt, one above of a session: compiled.prefix_key
NONE_TRIED: Final[frozenset[int]] = frozenset()


class Loads:
    """Who can say what an instance holds. The ledger can."""

    __slots__ = ()

    def in_flight(self, slot: int) -> int:
        """Leases on the slot, over all workers."""
        raise NotImplementedError

    def held(self, slot: int) -> int:
        """Of them, this worker's own."""
        raise NotImplementedError


def draw_version(route: CompiledRoute, key: int) -> CompiledVersion | None:
    """The version of the next request; None when weight reaches none.

    A session's key takes the sequence's place: it stays with its version, and a ramp moves keys one
    way. A prompt's does not: one that all requests begin with would turn shares into all or none.
    Cost: an addition and a bisection; nothing for a single version.
    """
    shares = route.shares
    if len(shares) <= 1:
        return shares[0] if shares else None
    if key >= 0:
        # Not the key itself: where instances are picked by it too, those of a small share would
        # only get the keys of a small arc of their ring.
        return route.share_at((key * SPREAD & UINT64) / 18446744073709551616.0)  # 2**64
    place = route.place
    position = place.position + GOLDEN
    if position >= 1.0:
        position -= 1.0
    place.position = position
    return route.share_at(position)


def pick(
    version: CompiledVersion, loads: Loads, rng: Random, key: int, tried: frozenset[int]
) -> CompiledTarget | None:
    """The target of the next request, by the version's policy; None when no one has room that was
    not tried."""
    if len(version.targets) == 1:
        only = version.targets[0]
        return only if _takes(only, loads, tried) else None
    policy = version.policy
    if policy == LEAST_LOADED:
        return least_loaded(version, loads, rng, tried)
    if policy == ROUND_ROBIN:
        return round_robin(version, loads, tried)
    if policy == RANDOM:
        return at_random(version, loads, rng, tried)
    return affine(version, loads, rng, key, tried)


# --- policies ------------------------------------------------------------------------------------


def least_loaded(
    version: CompiledVersion, loads: Loads, rng: Random, tried: frozenset[int]
) -> CompiledTarget | None:
    """The less loaded, for its weight and limit, of two targets drawn by weight.

    Cost: two draws, two reads; one of each where the first holds nothing.
    Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001.
    """
    targets = version.targets
    # As `_draw`, without a call where all weigh the same.
    at = int(rng.random() * len(targets)) if version.even else _draw(version, rng)
    first = targets[at]
    load = loads.in_flight(first.slot)
    if load:
        second = targets[_draw_other(version, rng, at)]
        other = loads.in_flight(second.slot)
        if other * first.capacity < load * second.capacity:
            first, load = second, other
    if load < first.limit and first.slot not in tried:
        return first
    return _least_of_all(version, loads, tried)


def at_random(
    version: CompiledVersion, loads: Loads, rng: Random, tried: frozenset[int]
) -> CompiledTarget | None:
    """A target drawn by weight, whatever it holds; when full, the least loaded."""
    target = version.targets[_draw(version, rng)]
    return target if _takes(target, loads, tried) else _least_of_all(version, loads, tried)


def round_robin(
    version: CompiledVersion, loads: Loads, tried: frozenset[int]
) -> CompiledTarget | None:
    """The target whose turn comes first; one with twice the weight comes twice as often.

    Cost: O(log n), and as much again for one that could not take a request before.
    """
    turns, targets = version.turns, version.targets
    aside = turns.aside
    if aside:
        # One of them may have room again: who gave a lease back just now, or each in its turn.
        freed = version.freed
        if freed is not None and freed.index in aside:
            turns.come_back(freed.index)
        if aside:
            turns.come_back(turns.longest_aside())
    index = turns.next()
    while index >= 0 and not _takes(targets[index], loads, tried):
        turns.leave()
        index = turns.next()
    if index < 0:
        index = _aside_with_room(version, loads, tried)
        if index < 0:
            return None
        turns.come_back(index)  # into a line where nobody is left
    chosen = targets[index]
    turns.serve(1.0 / chosen.share)
    return chosen


def _aside_with_room(version: CompiledVersion, loads: Loads, tried: frozenset[int]) -> int:
    """Saturated: O(n), as in `_least_of_all`. The index; -1 for nobody."""
    for index in version.turns.aside:
        if _takes(version.targets[index], loads, tried):
            return index
    return -1


def affine(
    version: CompiledVersion, loads: Loads, rng: Random, key: int, tried: frozenset[int]
) -> CompiledTarget | None:
    """The target that the key belongs to, or its neighbour on the ring when that has too much:
    more of this worker's leases than its share and a quarter.

    Cost: O(log points), and a step for each point passed over, POINTS_TRIED at most.
    """
    if key < 0:
        if key == NO_KEY:
            return least_loaded(version, loads, rng, tried)
        key = ~key
    ring = version.ring
    points = len(ring.hashes)
    at = bisect_left(ring.hashes, key)
    fair = (version.tally.held + 1) * BOUNDED_LOAD / version.total
    for _ in range(POINTS_TRIED):
        if at >= points:
            at = 0
        target = version.targets[ring.owners[at]]
        if loads.held(target.slot) < fair * target.share and _takes(target, loads, tried):
            return target
        at += 1
    return least_loaded(version, loads, rng, tried)


# --- targets -------------------------------------------------------------------------------------


def _takes(target: CompiledTarget, loads: Loads, tried: frozenset[int]) -> bool:
    return loads.in_flight(target.slot) < target.limit and target.slot not in tried


def _draw(version: CompiledVersion, rng: Random) -> int:
    """The index of a target, by weight."""
    count = len(version.targets)
    if version.even:
        return int(rng.random() * count)  # half of randrange's cost; bias below 2**-44
    at = bisect_right(version.bounds, rng.random() * version.total)
    return min(at, count - 1)  # the product may round up to the total


def _draw_other(version: CompiledVersion, rng: Random, first: int) -> int:
    """Another one where all weigh the same; a second draw otherwise, which may be the first."""
    if not version.even:
        return _draw(version, rng)
    at = int(rng.random() * (len(version.targets) - 1))
    return at + 1 if at >= first else at


def _least_of_all(
    version: CompiledVersion, loads: Loads, tried: frozenset[int]
) -> CompiledTarget | None:
    """Saturated: of many, the one that was given back last, if it has room. Else looking at
    everyone is O(n), but the alternative is refusing a request."""
    freed = version.freed
    if freed is not None and len(version.targets) > FEW and _takes(freed, loads, tried):
        return freed
    best: CompiledTarget | None = None
    least = 0.0
    for target in version.targets:
        held = loads.in_flight(target.slot)
        if held >= target.limit or target.slot in tried:
            continue
        load = held / target.capacity
        if best is None or load < least:
            best, least = target, load
    return best
