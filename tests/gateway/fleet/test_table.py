from dataclasses import replace

from gateway.control import DrainInstance, SetWeights
from gateway.fleet.commands import Tell
from gateway.fleet.events import Asked, ChildExited, LaunchOrdered, Registered, Ticked
from gateway.fleet.registry import hashed
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.table import UNKNOWN_S, build, names, ready_in_s, same, standing, standings
from gateway.messages import Note
from gateway.records import Health, Policy
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    STATICS,
    begun,
    both_ready,
    fresh,
    observed,
    only,
    play,
    status,
    targets,
)
from tests.gateway.fleet.launching import A, running


def test_only_admissible_instances_are_in_it_and_everybody_stands_somewhere() -> None:
    fleet, _ = play(begun(), observed("a"), observed("b", State.INITIALIZING))
    assert targets(fleet) == ["a"]
    assert [(one.instance, one.state) for one in standings(fleet, 1.0)["m"]] == [
        ("a", "READY"),
        ("b", "INITIALIZING"),
    ]


def test_a_target_carries_its_slot_incarnation_address_and_limit() -> None:
    table = both_ready().table
    assert table is not None
    first = table.routes[0].versions[0].targets[0]
    assert (first.instance, first.incarnation, first.host, first.port) == (
        "a",
        "a1",
        "127.0.0.1",
        1001,
    )
    assert (first.slot, first.limit, first.ready_since_ns) == (0, 4, 1_000_000_000)
    assert names(table, 0)
    assert not names(table, 7)


def test_a_version_of_weight_zero_keeps_its_targets_for_pins() -> None:
    fleet, _ = play(both_ready(), Asked(1, SetWeights("m", {"1": 0.0}), False, None, 2.0))
    assert fleet.table is not None
    (version,) = fleet.table.routes[0].versions
    assert version.weight == 0.0
    assert len(version.targets) == 2


def test_a_model_without_instances_keeps_its_route() -> None:
    fleet = begun()
    assert fleet.table is not None
    assert [route.model for route in fleet.table.routes] == ["m"]
    assert targets(fleet) == []


def test_standings_alone_make_no_new_table() -> None:
    fleet, _ = play(begun(), observed("a", State.INITIALIZING, progress=10.0))
    first = build(fleet, 1, 1.0)
    fleet, _ = play(fleet, observed("a", State.INITIALIZING, now=2.0, sequence=2, progress=60.0))
    second = build(fleet, 2, 2.0)
    assert first != second
    assert same(first, second)
    assert not same(None, second)


def test_a_reading_that_changes_nothing_publishes_nothing() -> None:
    fleet = both_ready()
    after, commands = play(fleet, observed("a", now=5.0, progress_total=7, sequence=2))
    assert after.generation == fleet.generation
    assert commands == []


def test_ready_in_s_comes_from_the_load_that_was_measured() -> None:
    fleet, _ = play(begun(), observed("b", State.INITIALIZING, now=1.0))
    fleet, _ = play(fleet, observed("b", now=41.0, sequence=2))
    assert fleet.load_s == {("m", "1"): 40.0}
    fleet, _ = play(fleet, observed("a", State.INITIALIZING, now=50.0))
    assert ready_in_s(fleet, fleet.instances["a"], 60.0) == 30.0
    assert ready_in_s(fleet, fleet.instances["b"], 60.0) == 0.0


def test_without_a_measured_load_progress_is_extended_and_early_nobody_knows() -> None:
    fleet, _ = play(begun(), observed("a", State.INITIALIZING, now=1.0, progress=25.0))
    assert ready_in_s(fleet, fleet.instances["a"], 11.0) == 30.0
    fleet, _ = play(begun(), observed("a", State.INITIALIZING, now=1.0, progress=0.5))
    assert ready_in_s(fleet, fleet.instances["a"], 11.0) == UNKNOWN_S


def test_the_reason_says_what_keeps_it_out() -> None:
    fleet = both_ready()
    seen = fleet.instances["a"]
    sick = replace(seen, opinion=replace(seen.opinion, health=Health.SUSPECT, reason="refused"))
    weights = fleet.weights("m")
    assert standing(fleet, sick, 1.0, weights).reason == "refused"
    wrong, _ = play(begun(), observed("a", model="other"))
    assert "not m version 1" in standing(wrong, wrong.instances["a"], 1.0, weights).reason


def test_a_route_says_what_the_file_says_of_its_model() -> None:
    keys = {
        "policy": '"affinity"',
        "queue_max": "7",
        "queue_timeout_s": "8.0",
        "replayable": "true",
        "canary_fallback": "true",
        "pinnable": "true",
        "slow_start_s": "9.0",
    }
    written = "".join(f"{key} = {value}\n" for key, value in keys.items())
    model = 'name = "m"\n'
    fleet = fresh(STATICS.replace(model, model + written))
    (route,) = build(fleet, 1, 1.0).routes
    for key in keys:
        said = getattr(fleet.settings.model[0], key)
        assert getattr(route, key) == (Policy(said) if key == "policy" else said)


def test_an_estimate_counts_from_the_start_of_the_process_and_not_from_its_last_life() -> None:
    """It was READY, died, and its new process has not registered yet: loads take 11 s here."""
    fleet = running()
    assert fleet.load_s == {("m", "1"): 11.0}
    fleet, _ = play(fleet, ChildExited(A, 5, -9, 100.0))
    assert stands(fleet, 100.0) == ("STOPPED", "backing_off", 0.0, 12.0)
    fleet, _ = play(fleet, Ticked(101.0), LaunchOrdered(A, hashed("t"), 101.0))
    assert stands(fleet, 104.0) == ("", "starting", 0.0, 8.0)
    loading = status(A, State.INITIALIZING, incarnation="new", progress=40.0)
    fleet, _ = play(fleet, Registered(1, loading, "t", 0.0, 0, 105.0))
    assert stands(fleet, 106.0) == ("INITIALIZING", "loading_model", 40.0, 6.0)


def stands(fleet: FleetSnapshot, now: float) -> tuple[str, str, float, float]:
    one = standing(fleet, fleet.instances[A], now, fleet.weights("m"))
    return one.state, one.phase, one.progress, one.ready_in_s


def test_workers_are_told_at_once_what_a_death_and_a_start_do_to_the_estimates() -> None:
    fleet = running()
    for event in (ChildExited(A, 5, -9, 100.0), LaunchOrdered(A, hashed("t"), 100.1)):
        fleet, commands = play(fleet, event)
        assert any(isinstance(one.message, Note) for one in only(Tell, commands))


def test_nobody_waits_for_an_instance_that_is_held_out() -> None:
    fleet, _ = play(
        begun(), observed("b", State.INITIALIZING, now=1.0), observed("b", now=41.0, sequence=2)
    )
    fleet, _ = play(fleet, observed("a", State.INITIALIZING, now=50.0))
    fleet, _ = play(fleet, Asked(1, DrainInstance("a", None, False, True), False, None, 51.0))
    assert standing(fleet, fleet.instances["a"], 60.0, fleet.weights("m")).ready_in_s == UNKNOWN_S
