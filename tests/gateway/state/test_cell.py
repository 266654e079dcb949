"""The table in force."""

import pytest

from gateway.errors import GatewayError
from gateway.records import InstanceName, Standing, VersionName
from gateway.state.cell import Cell
from tests.gateway.plain import route, table, target, version


def test_generations_only_grow() -> None:
    cell = Cell()
    plain = route(version(target(1, 1)))
    assert cell.publish(table(5, plain), 1)
    assert not cell.publish(table(4, plain), 1)
    assert cell.generation == 5
    assert cell.publish(table(5, plain), 1)  # a new control says it again


def test_without_a_table_requests_are_refused_and_not_lost() -> None:
    with pytest.raises(GatewayError) as caught:
        Cell().read()
    assert caught.value.refusal.code == "no_ready_instance"


def test_a_note_changes_standings_and_nothing_else() -> None:
    cell = Cell()
    cell.note({"m": ()})  # before any table: lost, as notes may be
    cell.publish(table(1, route(version(target(1, 1)))), 1)
    newer = Standing(InstanceName("i"), VersionName("1"), "READY", "serving", 100, "", 0)
    cell.note({"m": (newer,), "unknown": ()})
    plan = cell.read().routes["m"]
    assert plan.standings == (newer,)
    assert plan.shares[0].targets[0].slot == 1
