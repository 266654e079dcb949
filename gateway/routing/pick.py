"""Choose the version, then the instance, that answers one request.

Floor 1, pure but for the place in a sequence, which comes in.   Flow: match -> [pick] -> dial
The version is drawn by a low-discrepancy sequence: shares hold over any hundred requests, not only
on average. A full version is never relieved by another: that would bend the very split that a
canary is judged on.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container
from random import Random
from typing import Final

from gateway.records import Policy
from gateway.routing.compiled import CompiledRoute, CompiledTarget, CompiledVersion, Place

# The step whose multiples spread most evenly on a circle; Knuth, TAOCP 3, section 6.4.
GOLDEN: Final = 0.6180339887498949
BOUNDED_LOAD: Final = 1.25  # of the mean; Mirrokni, Thorup, Zadimoghaddam, 2016, and HAProxy's use

InFlight = Callable[[int], int]  # by slot
Policies = Callable[
    [CompiledVersion, Place, InFlight, Random, int, Container[int]], CompiledTarget | None
]

NO_KEY: Final = -1
NONE_TRIED: Final[frozenset[int]] = frozenset()


def draw_version(route: CompiledRoute, key: int) -> CompiledVersion | None:
    """The version of the next request; None when weight reaches none.

    A key takes the sequence's place: it stays with its version, and a ramp moves keys one way.
    Cost: an addition and a bisection.
    """
    if not route.shares:
        return None
    if key >= 0:
        return route.share_at(key / 18446744073709551616.0)  # 2**64
    place = route.place
    position = place.position + GOLDEN
    if position >= 1.0:
        position -= 1.0
    place.position = position
    return route.share_at(position)


def least_loaded(
    version: CompiledVersion,
    place: Place,
    in_flight: InFlight,
    rng: Random,
    key: int,
    tried: Container[int],
) -> CompiledTarget | None:
    """The less loaded, for its weight and limit, of two targets drawn by weight.

    Cost: two draws, two reads; all targets only when both draws are full or were tried.
    Source: Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001.
    """
    first = _draw(version, rng)
    second = _draw(version, rng)
    load = in_flight(first.slot)
    if second is not first:
        other = in_flight(second.slot)
        if other * first.capacity < load * second.capacity:
            first, load = second, other
    if load < first.limit and first.slot not in tried:
        return first
    return _least_of_all(version, in_flight, tried)


def at_random(
    version: CompiledVersion,
    place: Place,
    in_flight: InFlight,
    rng: Random,
    key: int,
    tried: Container[int],
) -> CompiledTarget | None:
    """A target drawn by weight, whatever it holds; when full, the least loaded."""
    target = _draw(version, rng)
    if in_flight(target.slot) < target.limit and target.slot not in tried:
        return target
    return _least_of_all(version, in_flight, tried)


def round_robin(
    version: CompiledVersion,
    place: Place,
    in_flight: InFlight,
    rng: Random,
    key: int,
    tried: Container[int],
) -> CompiledTarget | None:
    """The target whose turn comes first; one with twice the weight comes twice as often.

    Cost: O(n) over the version's targets.
    Source: Waldspurger, Weihl, Stride Scheduling, 1995.
    """
    turns = place.turns
    # A newcomer starts where the others are, not at 0: it would get everything for a while.
    start = min((turns[t.slot] for t in version.targets if t.slot in turns), default=0.0)
    chosen: CompiledTarget | None = None
    for target in version.targets:
        turn = turns.setdefault(target.slot, start)
        if target.slot in tried or in_flight(target.slot) >= target.limit:
            continue
        if chosen is None or turn < turns[chosen.slot]:
            chosen = target
    if chosen is not None:
        turns[chosen.slot] += 1.0 / chosen.weight
    return chosen


def affine(
    version: CompiledVersion,
    place: Place,
    in_flight: InFlight,
    rng: Random,
    key: int,
    tried: Container[int],
) -> CompiledTarget | None:
    """The target that the key belongs to, or its neighbour on the ring when that has too much.

    Cost: O(log points) and a step for each target passed over.
    """
    if key < 0:
        return least_loaded(version, place, in_flight, rng, key, tried)
    ring = version.ring
    at = bisect_left(ring, key)
    mean = (version.tally.held + 1) * BOUNDED_LOAD / version.total
    passed: set[int] = set()
    for step in range(len(ring)):
        target = version.ring_targets[(at + step) % len(ring)]
        slot = target.slot
        if slot in passed:
            continue
        held = in_flight(slot)
        if held < target.limit and slot not in tried and held < max(mean * target.weight, 1.0):
            return target
        passed.add(slot)
        if len(passed) == len(version.targets):
            break
    return _least_of_all(version, in_flight, tried)


# By the policy's name: a string knows its hash, an enum member computes it.
POLICIES: Final[dict[str, Policies]] = {
    Policy.LEAST_LOADED.value: least_loaded,
    Policy.ROUND_ROBIN.value: round_robin,
    Policy.RANDOM.value: at_random,
    Policy.AFFINITY.value: affine,
}


def _draw(version: CompiledVersion, rng: Random) -> CompiledTarget:
    targets = version.targets
    if version.even:
        return targets[int(rng.random() * len(targets))]  # half of randrange; bias below 2**-44
    at = bisect_right(version.bounds, rng.random() * version.total)
    return targets[min(at, len(targets) - 1)]  # the product may round up to the total


def _least_of_all(
    version: CompiledVersion, in_flight: InFlight, tried: Container[int]
) -> CompiledTarget | None:
    """Saturated: looking at everyone is O(n), but the alternative is refusing a request."""
    best: CompiledTarget | None = None
    least = 0.0
    for target in version.targets:
        held = in_flight(target.slot)
        if held >= target.limit or target.slot in tried:
            continue
        load = held / target.capacity
        if best is None or load < least:
            best, least = target, load
    return best
