"""The table as requests meet it says what the records say."""

from collections import Counter

from hypothesis import given, settings

from gateway.records import Policy, RouteTable
from gateway.routing.compiled import CompiledTable, Ring
from tests.gateway.plain import route, table, target, version
from tests.gateway.tables import tables


@settings(max_examples=60, deadline=None)
@given(tables())
def test_exactly_the_reachable_targets_are_owned(records: RouteTable) -> None:
    built = CompiledTable(records, None, 1)
    last = {one.model: one for one in records.routes}
    reachable = {
        target.slot
        for one in last.values()
        for version in one.versions
        if not version.blocked
        for target in version.targets
        if target.weight > 0
    }
    assert reachable >= set(built.owners)
    for plan in built.routes.values():
        assert plan.bounds == sorted(plan.bounds)
        assert len(plan.bounds) == max(len(plan.shares) - 1, 0)


def test_counts_of_held_leases_outlive_a_table() -> None:
    old = CompiledTable(table(1, route(version(target(1, 1)))), None, 1)
    old.routes["m"].shares[0].tally.held = 3
    new = CompiledTable(table(2, route(version(target(1, 1)))), old, 1)
    assert new.routes["m"].shares[0].tally.held == 3


def test_a_target_of_weight_0_is_out_of_reach() -> None:
    built = CompiledTable(table(1, route(version(target(1, 1, weight=0), target(2, 1)))), None, 1)
    assert set(built.owners) == {2}


def keyed(*names: int, weight: float = 1.0, old: CompiledTable | None = None) -> CompiledTable:
    targets = [target(slot, 1, weight=weight) for slot in names]
    return CompiledTable(table(1, route(version(*targets), policy=Policy.AFFINITY)), old, 1)


def test_a_ring_is_made_again_only_when_its_instances_change() -> None:
    old = keyed(1, 2, 3)
    ring = old.routes["m"].shares[0].ring
    assert keyed(1, 2, 3, old=old).routes["m"].shares[0].ring is ring
    assert keyed(1, 2, old=old).routes["m"].shares[0].ring is not ring
    assert keyed(1, 2, 3, weight=2.0, old=old).routes["m"].shares[0].ring.hashes == ring.hashes


def test_points_on_a_ring_are_shares_by_weight() -> None:
    ring = Ring([("a", 1.0), ("b", 3.0), ("c", 0.001)])
    assert ring.hashes == sorted(set(ring.hashes))
    counts = Counter(ring.owners)
    assert (counts[0], counts[1], counts[2]) == (48, 144, 1)


def test_what_is_counted_of_a_version_that_is_gone_goes_with_its_last_lease() -> None:
    old = CompiledTable(table(1, route(version(target(1, 1)), version(name="2"))), None, 1)
    old.routes["m"].shares[0].tally.held = 1
    kept = CompiledTable(table(2), old, 1)
    assert list(kept.tallies) == [("m", "1")]
    kept.tallies["m", "1"].held = 0
    assert CompiledTable(table(3), kept, 1).tallies == {}
