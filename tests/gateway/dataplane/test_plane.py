"""What connections share: numbers, limits, the table in force, and who is woken."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.plane import Plane
from gateway.records import Outcome
from gateway.state.settle import clear_slot
from gateway.state.shared import ACCEPTED, SENT_BYTES, SETTLED
from tests.gateway.dataplane.rig import NS, Rig
from tests.gateway.plain import BOUNDS, TIMEOUTS, route, table, target, version

FIRST_CARRY: Final = 0x100  # of the last two digits, which are the only ones that are looked up


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1)))))
    yield made
    made.close()


class Fixed(Random):
    """Chance at one of its ends."""

    def __init__(self, ones: bool) -> None:
        super().__init__(0)
        self._ones = ones

    def getrandbits(self, k: int, /) -> int:
        return (1 << k) - 1 if self._ones else 0


def plane_by(rng: Random, rig: Rig) -> Plane:
    loop: Any = rig.loop
    return Plane(loop, rig.ledger, rng, rig.clock, rig.suspected.append)


# --- numbers ---


@pytest.mark.parametrize("ones", [False, True])
async def test_numbers_are_positive_and_their_text_says_the_same(rig: Rig, ones: bool) -> None:
    """Over the border of four digits, for the least and the largest random part."""
    plane = plane_by(Fixed(ones), rig)
    numbers = []
    for _ in range(0x10000 + FIRST_CARRY + 2):
        numbers.append(plane.next_number())
        assert plane.number_text() == b"%016x" % numbers[-1]
    assert 0 < numbers[0] < numbers[-1] < 1 << 63
    assert all(after == before + 1 for before, after in pairwise(numbers))


@given(st.integers(0, 1 << 64), st.integers(1, 3 * FIRST_CARRY))
async def test_a_text_is_that_of_the_last_number(seed: int, count: int) -> None:
    rig = Rig(table(1, route(version(target(1, 1)))))
    plane = plane_by(Random(seed), rig)
    for _ in range(count):
        number = plane.next_number()
    assert plane.number_text() == plane.number_text() == b"%016x" % number
    rig.close()


async def test_two_workers_never_give_the_same_number(rig: Rig) -> None:
    planes = [plane_by(Random(seed), rig) for seed in range(20)]
    numbers = {plane.next_number() for plane in planes for _ in range(300)}
    assert len(numbers) == 20 * 300
    assert len({plane.trace for plane in planes}) == 20


@pytest.mark.parametrize("ones", [False, True])
async def test_the_first_half_of_a_trace_is_never_nothing(rig: Rig, ones: bool) -> None:
    """All zeros are no trace (W3C Trace Context 3.2.2.3)."""
    trace = plane_by(Fixed(ones), rig).trace
    assert len(trace) == 16
    assert int(trace, 16) > 0


# --- the table in force ---


@given(st.lists(st.integers(1, 9), min_size=1))
async def test_an_older_table_is_refused_and_changes_nothing(generations: list[int]) -> None:
    rig = Rig(table(0, route(version(target(1, 1)))))
    latest = 0
    for generation in generations:
        sizes = replace(BOUNDS, replay_max_bytes=generation)
        times = replace(TIMEOUTS, client_idle_s=generation)
        offered = table(generation, route(version(target(1, 1))), bounds=sizes, timeouts=times)
        assert rig.plane.publish(offered) == (generation >= latest)
        latest = max(latest, generation)
        assert rig.plane.cell.generation == latest
        assert rig.plane.replay_max_bytes == rig.plane.bounds.replay_max_bytes == latest
        assert rig.plane.client_idle_ns == rig.plane.timeouts.client_idle_s * NS == latest * NS
    rig.close()


@given(st.tuples(*[st.integers(1, 1 << 40)] * 3), st.floats(0, 1e6), st.floats(0, 1e6))
async def test_limits_are_those_of_the_table(
    sizes: tuple[int, int, int], client_idle_s: float, pool_idle_s: float
) -> None:
    head, replay, bodies = sizes
    bounds = replace(
        BOUNDS, head_max_bytes=head, replay_max_bytes=replay, route_body_total_bytes=bodies
    )
    times = replace(TIMEOUTS, client_idle_s=client_idle_s, pool_idle_s=pool_idle_s)
    rig = Rig(table(1, route(version(target(1, 1))), bounds=bounds, timeouts=times))
    plane = rig.plane
    assert (plane.head_max_bytes, plane.replay_max_bytes, plane.bodies_max_bytes) == sizes
    assert abs(plane.client_idle_ns - client_idle_s * NS) < 1
    assert abs(plane.pool.idle_ns - pool_idle_s * NS) < 1
    assert (plane.bounds, plane.timeouts) == (bounds, times)
    rig.close()


async def test_a_plane_without_a_table_has_room_for_nothing(rig: Rig) -> None:
    plane = plane_by(Random(1), rig)
    assert (plane.head_max_bytes, plane.replay_max_bytes, plane.bodies_max_bytes) == (0, 0, 0)
    assert plane.cell.table is None
    plane.freed(1)


# --- who is woken ---


class Waiting:
    """Has been woken so many times, and goes on waiting."""

    def __init__(self) -> None:
        self.times = 0

    def woken(self) -> bool:
        self.times += 1
        return False

    def reviewed(self) -> None:
        raise AssertionError("nobody published a table")


async def test_a_free_lease_wakes_the_first_who_waits_for_its_version_and_nobody_else(
    rig: Rig,
) -> None:
    plans = [
        route(
            version(target(2 * n, 1), name="1"),
            version(target(2 * n + 1, 1), name="2"),
            model=model,
        )
        for n, model in enumerate(("m", "k"))
    ]
    rig.publish(table(2, *plans))
    waiting = {(model, name): [Waiting(), Waiting()] for model in ("m", "k") for name in ("1", "2")}
    for key, queue in waiting.items():
        for waiter in queue:
            rig.plane.waitroom.enter(key, waiter)
    owned = {0: ("m", "1"), 1: ("m", "2"), 2: ("k", "1"), 3: ("k", "2")}
    expected = {key: [0, 0] for key in waiting}
    for slot in (0, 3, 3, 5, 1, 2):  # nobody owns 5
        rig.plane.freed(slot)
        if slot in owned:
            expected[owned[slot]][0] += 1
        assert {k: [w.times for w in queue] for k, queue in waiting.items()} == expected


async def test_what_was_freed_of_a_slot_that_left_the_table_wakes_nobody(rig: Rig) -> None:
    waiter = Waiting()
    rig.plane.waitroom.enter(("m", "1"), waiter)
    assert rig.plane.publish(table(2, route(version(target(2, 2)))))
    rig.plane.freed(1)
    assert waiter.times == 0
    rig.plane.freed(2)
    assert waiter.times == 1


# --- dials, time ---


async def test_a_dial_is_kept_until_it_ends(rig: Rig) -> None:
    go = asyncio.Event()

    async def dial() -> None:
        await go.wait()

    task = rig.plane.start(dial())
    other = rig.plane.start(dial())
    assert rig.plane.dials == {task, other}
    other.cancel()
    go.set()
    await asyncio.wait([task, other])
    assert rig.plane.dials == set()


async def test_now_is_the_time_that_was_read_last(rig: Rig) -> None:
    rig.now += 7
    assert rig.plane.now == rig.now - 7
    assert rig.plane.tick() == rig.plane.now == rig.now


async def test_a_new_table_counts_a_slot_that_was_begun_again_anew(rig: Rig) -> None:
    ledger = rig.ledger
    ledger.settle(ledger.open(1, 1, 1, b"", 0), Outcome.SERVED, 0, 3)
    clear_slot(rig.segment, 1)
    assert rig.plane.publish(table(2, route(version(target(1, 1)))))
    ledger.settle(ledger.open(1, 1, 1, b"", 0), Outcome.SERVED, 0, 4)
    totals = rig.segment.slot_totals(1)
    assert (totals[ACCEPTED], totals[SETTLED], totals[SENT_BYTES]) == (1, 1, 4)
