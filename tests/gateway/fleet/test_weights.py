from hypothesis import given
from hypothesis import strategies as st

from gateway.control import SetInstanceWeight, SetWeights
from gateway.fleet.commands import Write
from gateway.fleet.durable import overrides_change
from gateway.fleet.events import Asked, ChildrenSeen, Deregistered
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.turn import Turn
from gateway.fleet.weights import NO_OVERRIDES, Override, in_force, override, surviving
from gateway.store.base import Remove
from tests.gateway.fleet.builders import both_ready, fresh, observed, only, play

VERSIONS = st.sampled_from(["1", "2", "3"])
WEIGHTS = st.dictionaries(VERSIONS, st.sampled_from([0.0, 5.0, 95.0, 100.0]))


def test_versions_left_out_get_zero_and_zero_stands_against_the_file() -> None:
    file = {"1": 100.0, "2": 50.0}
    chosen = override(file, NO_OVERRIDES, {"1": 7.0})
    assert {v: one.weight for v, one in in_force(file, chosen).items()} == {"1": 7.0, "2": 0.0}


def test_an_override_yields_exactly_when_its_own_file_value_changes() -> None:
    overrides = {"1": Override(7.0, 100.0), "2": Override(3.0, 50.0)}
    file = {"1": 90.0, "2": 50.0}
    assert surviving(file, overrides) == {"2": overrides["2"]}
    assert in_force(file, overrides)["1"].weight == 90.0
    assert in_force(file, overrides)["2"].weight == 3.0


@given(file=WEIGHTS, asked=WEIGHTS)
def test_what_was_asked_is_in_force_and_a_reset_gives_the_file_back(
    file: dict[str, float], asked: dict[str, float]
) -> None:
    chosen = override(file, NO_OVERRIDES, asked)
    found = in_force(file, chosen)
    assert {v: one.weight for v, one in found.items() if v in asked} == asked
    assert all(one.weight == 0.0 for v, one in found.items() if v not in asked)
    assert {v: one.weight for v, one in in_force(file, NO_OVERRIDES).items()} == file


@given(before=WEIGHTS, after=WEIGHTS, asked=WEIGHTS)
def test_a_reload_moves_only_versions_whose_file_value_changed(
    before: dict[str, float], after: dict[str, float], asked: dict[str, float]
) -> None:
    overrides = surviving(after, override(before, NO_OVERRIDES, asked))
    for version, one in in_force(after, overrides).items():
        if before.get(version) == after.get(version):
            assert one.weight == asked.get(version, 0.0)
        else:
            assert one.weight == after[version]


# --- of one instance -----------------------------------------------------------------------------


def weighed() -> FleetSnapshot:
    """b has the weight 7 of an operator."""
    ask = SetInstanceWeight("b", 7.0)
    fleet, _ = play(both_ready(), Asked(1, ask, False, None, 2.0))
    assert fleet.weight_of(fleet.instances["b"]) == 7.0
    return fleet


def test_an_instances_weight_stays_with_its_name_over_restarts_and_farewells() -> None:
    fleet, _ = play(weighed(), observed("b", now=3.0, incarnation="b2"))
    assert fleet.weight_of(fleet.instances["b"]) == 7.0
    fleet, _ = play(fleet, Deregistered("b", "b2", "stopped", 4.0))
    fleet, _ = play(fleet, observed("b", now=5.0, incarnation="b3"))
    assert fleet.weight_of(fleet.instances["b"]) == 7.0


def test_an_instances_weight_is_forgotten_with_it_and_not_met_by_the_next_of_its_name() -> None:
    turn = Turn(weighed(), 3.0)
    turn.forget("b", "taken out of config.toml")
    assert turn.fleet.instance_overrides == {}
    removed = [change for one in only(Write, turn.commands) for change in one.changes]
    assert Remove("weights", "instance:b") in removed


def test_a_weight_of_an_instance_that_left_while_nobody_looked_is_forgotten_at_the_start() -> None:
    row = {name: {"weight": 7.0, "over": 1.0} for name in ("a", "gone")}
    documents = {"weights": {f"instance:{name}": {name: one} for name, one in row.items()}}
    fleet = fresh(documents=documents)
    assert set(fleet.instance_overrides) == {"a", "gone"}
    fleet, commands = play(fleet, ChildrenSeen({}, 1, frozenset(), 0.0))
    assert set(fleet.instance_overrides) == {"a"}
    removed = [change for one in only(Write, commands) for change in one.changes]
    assert Remove("weights", "instance:gone") in removed


def test_a_weight_of_a_version_that_the_file_does_not_name_survives_a_restart() -> None:
    fleet, _ = play(both_ready(), Asked(1, SetWeights("m", {"1": 5.0}), False, None, 2.0))
    chosen = {**fleet.overrides["m"], "9": Override(3.0, None)}
    put = overrides_change("m", chosen)
    again = fresh(documents={"weights": {"m": put.document}})
    assert again.overrides["m"] == chosen
    assert again.unread == ()
