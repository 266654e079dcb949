"""The table as requests meet it says what the records say."""

from hypothesis import given, settings

from gateway.records import RouteTable
from gateway.routing.compiled import CompiledTable
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
