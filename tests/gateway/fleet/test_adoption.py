from dataclasses import replace

import pytest

from gateway.config import ConfigInvalid, Problem, parse
from gateway.control import (
    AddInstance,
    Denied,
    DrainInstance,
    Receipt,
    SetInstanceWeight,
    SetWeights,
)
from gateway.controlplane import views
from gateway.fleet import adoption
from gateway.fleet.commands import Answer, Command, KeepText, Unfollow, Write
from gateway.fleet.events import Asked, ChildrenSeen, Deregistered, Registered, SettingsRead, Ticked
from gateway.fleet.instances import FORGET_S
from gateway.fleet.registry import Origin
from gateway.fleet.restore import Life, restore
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Health, Intent
from gateway.store.base import Remove
from tests.gateway.fleet.builders import (
    LAYOUT,
    STATICS,
    both_ready,
    kept,
    observed,
    only,
    play,
    status,
    targets,
)
from tests.gateway.fleet.test_restore import lived

C = """
[[instance]]
id = "c"
model = "m"
version = "1"
http = "127.0.0.1:1003"
grpc = "127.0.0.1:2003"
"""
WITHOUT_B = STATICS[: STATICS.index('[[instance]]\nid = "b"')]


def read(text: str, now: float = 5.0, dry_run: bool = False) -> SettingsRead:
    try:
        settings, problems = parse(text), ()
    except ConfigInvalid as exc:
        return SettingsRead(1, "test", dry_run, None, text, None, exc.problems, now)
    return SettingsRead(1, "test", dry_run, None, text, settings, problems, now)


def reload(
    fleet: FleetSnapshot, text: str, now: float = 5.0
) -> tuple[FleetSnapshot, list[Command]]:
    return play(fleet, read(text, now))


def value(commands: list[Command]) -> object:
    return only(Answer, commands)[0].value


def test_a_file_with_problems_changes_nothing_and_all_are_told() -> None:
    before = both_ready()
    fleet, commands = reload(before, STATICS.replace('"1" = 100', '"1" = -1') + "[nonsense]\n")
    denied = value(commands)
    assert isinstance(denied, Denied)
    assert len(denied.problems) == 2
    assert (fleet.settings, fleet.instances) == (before.settings, before.instances)


def test_what_cannot_change_live_is_named() -> None:
    with pytest.raises(Denied) as denied:
        adoption.plan(both_ready(), read("[gateway]\nworkers = 7\n" + STATICS))
    assert denied.value.problems[0].path == "gateway.workers"
    assert isinstance(denied.value.problems[0], Problem)


def test_a_reload_that_says_the_same_is_no_change() -> None:
    fleet, commands = reload(both_ready(), STATICS + "# a comment\n")
    assert isinstance(value(commands), Receipt)
    assert fleet.revision == 0


def test_a_dry_run_says_what_would_change() -> None:
    fleet, commands = play(both_ready(), read(STATICS + C, dry_run=True))
    receipt = value(commands)
    assert isinstance(receipt, Receipt)
    assert any("instance.c" in change for change in receipt.changes)
    assert "c" not in fleet.instances


def test_an_instance_is_added_without_touching_others() -> None:
    before = both_ready()
    fleet, commands = reload(before, STATICS + C)
    assert targets(fleet) == ["a", "b"]
    assert fleet.instances["a"] is not None
    assert fleet.instances["a"].opinion == before.instances["a"].opinion
    fleet, _ = play(fleet, observed("c", now=6.0))
    assert targets(fleet) == ["a", "b", "c"]
    assert only(KeepText, commands) == [KeepText(STATICS + C)]


def test_an_instance_taken_out_is_drained_not_dropped() -> None:
    fleet, _ = reload(both_ready(), WITHOUT_B)
    assert targets(fleet) == ["a"]
    assert fleet.instances["b"].retired
    assert fleet.drains["b"].ended is None


def test_added_again_it_is_taken_back() -> None:
    fleet, _ = reload(both_ready(), WITHOUT_B)
    fleet, _ = reload(fleet, STATICS, now=6.0)
    assert fleet.instances["b"].intent is Intent.ACTIVE
    assert targets(fleet) == ["a", "b"]


def test_the_file_never_lifts_an_operators_drain() -> None:
    ask = DrainInstance("b", None, False, False)
    fleet, _ = play(both_ready(), Asked(9, ask, False, None, 2.0))
    fleet, _ = reload(fleet, WITHOUT_B)
    fleet, _ = reload(fleet, STATICS, now=6.0)
    assert fleet.instances["b"].intent is Intent.DRAIN
    assert targets(fleet) == ["a"]


def test_an_override_stands_until_its_own_value_changes() -> None:
    fleet, _ = play(both_ready(), Asked(9, SetWeights("m", {"1": 7.0}), False, None, 2.0))
    fleet, _ = reload(fleet, STATICS + C)
    assert fleet.weights("m")["1"].weight == 7.0
    fleet, _ = reload(fleet, STATICS.replace('"1" = 100', '"1" = 90'))
    assert fleet.weights("m")["1"].weight == 90.0
    assert fleet.overrides == {}


def test_another_address_behind_the_same_name_is_not_believed_before_it_answers() -> None:
    moved = STATICS.replace("127.0.0.1:1002", "127.0.0.1:1009").replace(":2002", ":2009")
    fleet, commands = reload(both_ready(), moved)
    assert only(Unfollow, commands) == [Unfollow("b")]
    assert fleet.instances["b"].opinion.health is Health.UNKNOWN
    assert targets(fleet) == ["a"]


def test_the_same_process_at_a_corrected_address_is_taken_again() -> None:
    moved = STATICS.replace("127.0.0.1:1002", "127.0.0.1:1009")
    fleet, _ = reload(both_ready(), moved)
    assert targets(fleet) == ["a"]
    fleet, _ = play(fleet, observed("b", now=6.0))
    assert targets(fleet) == ["a", "b"]
    assert fleet.instances["b"].http == "127.0.0.1:1009"


def test_a_new_model_has_a_section_of_its_own() -> None:
    more = STATICS + '[[model]]\nname = "n"\nweights = { "1" = 1 }\n'
    fleet, _ = reload(both_ready(), more)
    assert fleet.table is not None
    assert [route.section for route in fleet.table.routes] == [1, 2]


def test_a_name_that_somebody_else_has_is_left_to_him_and_said() -> None:
    from dataclasses import replace

    fleet = both_ready()
    other = replace(fleet.instances["a"], name="c", origin=Origin.REGISTERED)
    fleet = replace(fleet, instances={**fleet.instances, "c": other})
    fleet, _ = reload(fleet, STATICS + C)
    assert fleet.instances["c"].origin is Origin.REGISTERED


def test_what_is_wrong_with_the_file_is_known_until_a_good_one_is_read() -> None:
    bad = STATICS.replace('"1" = 100', '"1" = -1')
    tried, _ = play(both_ready(), read(bad, dry_run=True))
    assert tried.refused == ()
    fleet, _ = reload(both_ready(), bad)
    (problem,) = fleet.refused
    assert problem.startswith("model")
    fixed, _ = reload(both_ready(), "[gateway]\nworkers = 7\n" + STATICS)
    assert fixed.refused[0].startswith("gateway.workers: ")
    tried, _ = play(fleet, read(STATICS, dry_run=True))
    assert tried.refused == (problem,)
    assert reload(fleet, STATICS)[0].refused == ()  # what is in force already
    assert reload(fleet, STATICS + C)[0].refused == ()


def test_a_reload_refused_for_what_is_not_the_files_fault_says_nothing_of_the_file() -> None:
    moved = replace(read(STATICS + C), revision=99)
    assert play(both_ready(), moved)[0].refused == ()


def test_a_model_of_a_new_file_is_dated_then_and_the_others_keep_their_dates() -> None:
    before = both_ready()
    assert set(before.created_s) == {"m"}
    added = STATICS + '[[model]]\nname = "n"\nweights = { "1" = 1 }\n'
    fleet, _ = reload(before, added, now=50.0)
    assert fleet.created_s == {"m": before.created_s["m"], "n": 50}


def own(text: str, weight: float) -> str:
    """The file with a weight for `a`."""
    return text.replace('id = "a"', f'id = "a"\nweight = {weight}')


def test_an_instances_run_time_weight_yields_when_its_own_value_changes_and_is_not_kept() -> None:
    """It once came back to life when the file went back to the value that it had overridden."""
    ask = SetInstanceWeight("a", 7.0)
    fleet, _ = play(both_ready(), Asked(1, ask, False, None, 5.0))
    fleet, _ = reload(fleet, STATICS.replace("100", "50"), 6.0)
    assert fleet.weight_of(fleet.instances["a"]) == 7.0
    fleet, commands = reload(fleet, own(STATICS, 2.0), 7.0)
    assert fleet.weight_of(fleet.instances["a"]) == 2.0
    assert Remove("weights", "instance:a") in only(Write, commands)[0].changes
    fleet, _ = reload(fleet, STATICS, 8.0)
    assert fleet.weight_of(fleet.instances["a"]) == 1.0


def test_what_the_file_overruled_while_no_gateway_ran_is_not_kept_for_later() -> None:
    _, documents = lived(SetWeights("m", {"1": 7.0}), SetInstanceWeight("a", 7.0))
    life = Life(LAYOUT, 2, 0, 20.0, 0.0)
    text = own(STATICS.replace("100", "50"), 2.0)
    fleet = restore(parse(text), documents, life)
    fleet, commands = play(fleet, ChildrenSeen({}, 1, frozenset(), 20.0))
    kept(commands, documents)
    assert documents["weights"] == {}
    assert (fleet.overrides, fleet.instance_overrides) == ({}, {})
    same = restore(parse(STATICS), lived(SetWeights("m", {"1": 7.0}))[1], life)
    same, _ = play(same, ChildrenSeen({}, 1, frozenset(), 20.0))
    assert same.weights("m")["1"].weight == 7.0


def test_a_dry_run_of_a_bad_file_is_told_to_who_tried_and_to_nobody_else() -> None:
    bad = STATICS + "[poll]\ntimout = 5\n"
    _, commands = play(both_ready(), read(bad, dry_run=True))
    assert isinstance(value(commands), Denied)
    assert [type(one) for one in commands] == [Answer]


def test_what_cannot_change_live_names_its_line() -> None:
    _, commands = reload(both_ready(), STATICS + "[gateway]\nworkers = 2\n")
    denied = value(commands)
    assert isinstance(denied, Denied)
    count = STATICS.count("\n") + 2
    assert [(one.path, one.line) for one in denied.problems] == [("gateway.workers", count)]


def test_an_instance_that_was_added_is_the_files_once_that_names_it() -> None:
    """As it would be after a restart, where the file's word stands above the store's."""
    added = AddInstance("c", "m", "1", "127.0.0.1:7", "127.0.0.1:8")
    fleet, commands = play(both_ready(), Asked(1, added, False, None, 2.0))
    fleet, commands = reload(fleet, STATICS + C)
    seen = fleet.instances["c"]
    assert (seen.origin, seen.http, seen.grpc) == (
        Origin.CONFIG,
        "127.0.0.1:1003",
        "127.0.0.1:2003",
    )
    assert Remove("instances", "c") in [one for w in only(Write, commands) for one in w.changes]
    fleet, _ = reload(fleet, STATICS, now=6.0)  # and leaves with it
    assert fleet.instances["c"].retired


def test_an_id_of_the_file_that_somebody_else_has_is_a_problem_until_he_has_left() -> None:
    taker = Registered(1, status("c"), "", 0.0, 0, 2.0)
    fleet, _ = play(both_ready(), taker)
    fleet, _ = reload(fleet, STATICS + C)
    (told,) = [one for one in views.problems(fleet) if "is taken" in one]
    assert told.startswith("c of config.toml is taken by one of origin registered: reload when")
    gone, _ = play(fleet, Deregistered("c", "c1", "", 7.0), Ticked(7.1 + FORGET_S))
    assert "c of config.toml is not there: reload" in views.problems(gone)
    gone, _ = reload(gone, STATICS + C, now=7.3 + FORGET_S)
    assert gone.instances["c"].origin is Origin.CONFIG
