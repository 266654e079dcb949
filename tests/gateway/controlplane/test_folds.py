import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.controlplane.folds import Folds
from gateway.fleet.slots import Holder
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Outcome
from gateway.state.ledger import Ledger
from gateway.state.shared import (
    ACCEPTED,
    SLOT_CELLS,
    Layout,
    Segment,
    create,
    histogram_cell,
)
from gateway.store.base import Change, Documents, Fenced, Put, Remove, StoreFailed
from tests.gateway.fleet.builders import both_ready


class FakeStore:
    def __init__(self) -> None:
        self.written: list[Change] = []
        self.broken = False

    async def read(self) -> Documents:
        return {}

    async def write(self, changes: Sequence[Change]) -> None:
        await asyncio.sleep(0)  # as in a thread: others go on meanwhile
        if self.broken:
            raise StoreFailed("disk full")
        self.written += changes

    async def reclaim(self, changes: Sequence[Change]) -> None:
        await self.write(changes)

    async def claim(self) -> None:
        if self.broken:
            raise Fenced("somebody else writes")

    async def settled(self) -> None: ...

    async def close(self) -> None: ...


class Bench:
    def __init__(self, fd: int) -> None:
        self.segment = Segment(fd)
        self.ledger = Ledger(self.segment, 0)
        self.store = FakeStore()
        self.fleet: FleetSnapshot = both_ready()
        self.folds = Folds(self.segment, self.store, 5, lambda: self.fleet)

    def served(self, slot: int) -> None:
        self.ledger.reread()  # as with the table that names the slot
        lease = self.ledger.open(slot, 1, 1, b"", 0)
        self.ledger.received(lease, 10)
        self.ledger.settle(lease, Outcome.SERVED, 0, 0)


@pytest.fixture
def bench() -> Iterator[Bench]:
    fd = create(Layout(rows=2, slots=8, sections=4, leases=8))
    yield Bench(fd)
    os.close(fd)


async def test_a_folded_slot_counts_in_its_version_and_not_in_the_segment(bench: Bench) -> None:
    bench.served(3)
    assert await bench.folds.fold(3, "m", "1")
    assert bench.folds.retained["m", "1"][ACCEPTED] == 1
    assert bench.segment.slot_totals(3)[ACCEPTED] == 0
    bench.served(3)
    assert await bench.folds.fold(3, "m", "1")
    assert bench.folds.retained["m", "1"][ACCEPTED] == 2


async def test_base_and_release_are_one_write(bench: Bench) -> None:
    bench.served(3)
    await bench.folds.fold(3, "m", "1")
    put, remove = bench.store.written
    assert isinstance(put, Put)
    assert remove == Remove("slots", "3")
    again = Folds(bench.segment, bench.store, 5, lambda: bench.fleet)
    again.restore({"retained": {put.key: put.document}})
    assert again.retained == bench.folds.retained
    other = Folds(bench.segment, bench.store, 6, lambda: bench.fleet)
    other.restore({"retained": {put.key: put.document}})
    assert other.retained == {}


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"segment": 5, "model": "m", "version": "1", "cells": [1, 2]},
        {"segment": 5, "model": "m", "version": "1", "cells": None},
        {"segment": 5, "model": "m", "version": "1", "cells": ["x"] * SLOT_CELLS},
    ],
)
async def test_a_base_that_cannot_be_read_is_left_out_and_told_and_the_rest_stands(
    broken: dict[str, object], bench: Bench
) -> None:
    """It once kept control from starting."""
    bench.served(3)
    await bench.folds.fold(3, "m", "2")
    put = bench.store.written[0]
    assert isinstance(put, Put)
    again = Folds(bench.segment, bench.store, 5, lambda: bench.fleet)
    (told,) = again.restore({"retained": {"m:1": broken, put.key: put.document}})
    assert "'m:1'" in told
    assert again.retained == bench.folds.retained


async def test_a_slot_that_is_held_or_cannot_be_written_is_left_for_later(bench: Bench) -> None:
    lease = bench.ledger.open(3, 1, 1, b"", 0)
    assert not await bench.folds.fold(3, "m", "1")
    bench.ledger.settle(lease, Outcome.SERVED, 0, 0)
    bench.store.broken = True
    assert not await bench.folds.fold(3, "m", "1")
    assert bench.segment.slot_totals(3)[ACCEPTED] == 1


async def test_two_slots_of_a_version_are_not_folded_at_once(bench: Bench) -> None:
    """Once they were: both added to the same base, and what one of them had counted was gone."""
    bench.served(3)
    bench.served(4)
    folds = bench.folds
    first, second = await asyncio.gather(folds.fold(3, "m", "1"), folds.fold(4, "m", "1"))
    assert (first, second) == (True, False)
    assert await folds.fold(4, "m", "1")  # asked again
    assert folds.retained["m", "1"][ACCEPTED] == 2


def test_a_sample_is_that_of_the_current_incarnation(bench: Bench) -> None:
    slot = bench.fleet.instances["b"].slot
    bench.served(slot)
    bench.ledger.open(slot, 1, 2, b"", 0)
    assert bench.folds.sample("b") == (10, 1)
    assert bench.folds.sample("a") == (0, 0)
    assert bench.folds.sample("nobody") == (0, 0)


def test_free_slots_are_cleared_at_the_start(bench: Bench) -> None:
    bench.served(0)
    bench.served(7)
    bench.folds.clear_free(frozenset(bench.fleet.book.holders))
    assert bench.segment.slot_totals(0)[ACCEPTED] == 1
    assert bench.segment.slot_totals(7)[ACCEPTED] == 0


# --- what the analysis of a rollout reads ---

STEPS = st.one_of(
    st.tuples(
        st.sampled_from([3, 4, 5]),  # slots: two of version 1, one of version 2
        st.sampled_from([Outcome.SERVED, Outcome.RESET, Outcome.CUT, Outcome.CLIENT_GONE]),
        st.booleans(),  # drawn by weight
    ),
    st.sampled_from(["fold 3", "fold 4", "fold 5", "another control"]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, max_size=30))
async def test_drawn_counts_only_grow_over_folds_and_restarts_of_control(
    steps: list[tuple[int, Outcome, bool] | str],
) -> None:
    fd = create(Layout(rows=2, slots=8, sections=4, leases=8))
    bench = Bench(fd)
    versions = {3: "1", 4: "1", 5: "2"}
    holders = {slot: Holder(f"i{slot}", "life", "m", name) for slot, name in versions.items()}
    bench.fleet = replace(bench.fleet, book=replace(bench.fleet.book, holders=holders))
    served, failed = Counter[str](), Counter[str]()
    documents: dict[str, dict[str, Any]] = {}
    for step in steps:
        match step:
            case (slot, outcome, drawn):
                bench.ledger.reread()
                lease = bench.ledger.open(slot, 1, 1, b"", 0, drawn=drawn)
                bench.ledger.settle(lease, outcome, 5_000_000, 0, 2_000_000)
                served[versions[slot]] += drawn and outcome is Outcome.SERVED
                failed[versions[slot]] += drawn and outcome is Outcome.RESET
            case "another control":
                puts = [one for one in bench.store.written if isinstance(one, Put)]
                documents |= {put.key: put.document for put in puts}
                bench.folds = Folds(bench.segment, bench.store, 5, lambda: bench.fleet)
                assert not bench.folds.restore({"retained": documents})
            case str(fold):
                slot = int(fold[-1])
                assert await bench.folds.fold(slot, "m", versions[slot])
        for version in ("1", "2"):
            found = bench.folds.drawn("m", version)
            assert (found.served, found.failed) == (served[version], failed[version])
            assert sum(found.latency) == found.latency[histogram_cell(5000)] == served[version]
            begun = found.ttft[histogram_cell(2000)]
            assert sum(found.ttft) == begun >= served[version] + failed[version]
    os.close(fd)


def test_a_window_is_the_difference_of_two(bench: Bench) -> None:
    slot = bench.fleet.instances["a"].slot
    holder = bench.fleet.book.holders[slot]
    bench.served(slot)
    base = bench.folds.drawn(holder.model, holder.version)
    assert (base.served, sum(base.latency)) == (1, 1)
    bench.served(slot)
    bench.served(slot)
    window = bench.folds.drawn(holder.model, holder.version) - base
    assert (window.served, window.failed, sum(window.latency)) == (2, 0, 2)
    assert bench.folds.drawn("nobody", "1") == base - base
