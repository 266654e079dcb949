"""Each law can fail: what breaks it, and what does not."""

from dataclasses import replace

import pytest

from gateway.fleet import events as e
from gateway.fleet.status import Status
from gateway.records import RouteTable, Target
from sluicegate.v1.states import Phase, State
from tests.gateway.fleet.builders import both_ready
from tests.sim import laws
from tests.sim.known import Known
from tests.sim.laws import Broken, Promise


def table() -> RouteTable:
    found = both_ready().table
    assert found is not None
    return found


def slot() -> str:
    return str(next(iter(laws.targets(table()))).slot)


def test_a_table_may_not_name_what_is_known_bad() -> None:
    laws.table_names_only_what_is_known_good(table(), {})
    with pytest.raises(Broken, match="it said DRAINING"):
        laws.table_names_only_what_is_known_good(table(), {slot(): "it said DRAINING"})


def test_a_table_may_not_name_a_slot_that_the_store_has_not() -> None:
    kept = {str(one.slot): {"incarnation": one.incarnation} for one in laws.targets(table())}
    laws.slot_is_kept_before_a_table_names_it(table(), kept)
    with pytest.raises(Broken):
        laws.slot_is_kept_before_a_table_names_it(table(), {})
    with pytest.raises(Broken):
        laws.slot_is_kept_before_a_table_names_it(table(), {**kept, slot(): {"incarnation": "?"}})


def test_one_number_may_not_be_two_tables() -> None:
    published = {table().generation: table()}
    laws.a_generation_is_one_table(published, table())
    with pytest.raises(Broken):
        laws.a_generation_is_one_table(published, replace(table(), routes=()))


def test_numbers_may_not_go_back() -> None:
    laws.numbers_only_grow("the generation", 4, 4)
    with pytest.raises(Broken):
        laws.numbers_only_grow("the generation", 4, 3)


def test_a_request_may_not_open_on_what_has_been_known_bad_for_long() -> None:
    laws.nothing_opens_on_what_is_known_bad("x", None, 0.0, 99.0, 1.0)
    laws.nothing_opens_on_what_is_known_bad("x", 5.0, 0.0, 5.9, 1.0)
    laws.nothing_opens_on_what_is_known_bad("x", 5.0, 8.0, 8.9, 1.0)  # control was away till then
    with pytest.raises(Broken):
        laws.nothing_opens_on_what_is_known_bad("x", 5.0, 0.0, 6.1, 1.0)


def test_nothing_may_reach_what_we_drained() -> None:
    with pytest.raises(Broken):
        laws.nothing_reaches_what_we_drained("x", 1)


def test_accepted_is_settled_and_held_and_never_less() -> None:
    laws.conserved("here", 7, 5, 2)
    for wrong in ((7, 5, 1), (7, 5, 3), (5, 6, 0)):
        with pytest.raises(Broken):
            laws.conserved("here", *wrong)


def test_a_limit_holds_to_within_a_request_for_each_further_worker() -> None:
    laws.limit_holds("x", 5, 4, 2)
    with pytest.raises(Broken):
        laws.limit_holds("x", 6, 4, 2)


def test_a_request_may_not_end_twice() -> None:
    laws.answered_once(1, "", "served")
    with pytest.raises(Broken):
        laws.answered_once(1, "cut", "served")


def test_a_loss_may_not_go_unnamed_or_be_named_twice() -> None:
    laws.losses_are_named({1: "cut"}, {1, 2})
    laws.named_once(1, {2})
    with pytest.raises(Broken):
        laws.losses_are_named({1: "cut"}, {2})
    with pytest.raises(Broken):
        laws.named_once(1, {1})


def test_attempts_may_not_be_lost_or_counted_twice() -> None:
    laws.counts_never_go_back(("m", "1"), 3, 3)
    for wrong in (2, 4):
        with pytest.raises(Broken):
            laws.counts_never_go_back(("m", "1"), wrong, 3)


def test_a_drain_may_not_go_on_before_all_serve_a_table_without_it() -> None:
    laws.drain_waits_for_every_worker("x", [])
    with pytest.raises(Broken):
        laws.drain_waits_for_every_worker("x", [77])


def test_a_drain_may_not_be_over_while_something_is_held() -> None:
    laws.drain_ends_empty("x", 0)
    with pytest.raises(Broken):
        laws.drain_ends_empty("x", 1)


def test_a_drain_may_not_outlast_its_deadline() -> None:
    laws.drain_ends_in_time("x", "waiting", 10.0, 0.0, 17.0, 8.0)
    laws.drain_ends_in_time("x", "waiting", 10.0, 20.0, 27.0, 8.0)  # control was dead till then
    with pytest.raises(Broken):
        laws.drain_ends_in_time("x", "waiting", 10.0, 0.0, 18.5, 8.0)


def test_what_an_operator_was_told_may_not_become_untrue() -> None:
    laws.intent_is_kept([Promise("x is out", True)])
    with pytest.raises(Broken):
        laws.intent_is_kept([Promise("x is out", True), Promise("y is out", False)])


def test_two_may_not_load_on_one_device() -> None:
    laws.one_loads_at_a_time("d0", ["a"])
    with pytest.raises(Broken):
        laws.one_loads_at_a_time("d0", ["a", "b"])


def test_an_id_may_not_run_twice() -> None:
    laws.started_once("a", {"b"})
    with pytest.raises(Broken):
        laws.started_once("a", {"a"})


def test_quiet_may_not_leave_anything_open() -> None:
    laws.all_is_well([])
    with pytest.raises(Broken):
        laws.all_is_well(["m-1-0 is not routable"])


# --- what is known -------------------------------------------------------------------------------

TARGET = Target(3, "x", "x#1", "127.0.0.1", 1, 1.0, 4, 0)  # type: ignore[arg-type]


def status(sequence: int, state: State) -> Status:
    return Status(
        "x", "x#1", sequence, "m", "1", "127.0.0.1:1", "127.0.0.1:2", state, Phase.SERVING
    )


def heard(*events: e.Event) -> Known:
    known, fleet = Known(failures=2, successes=2), both_ready()
    for event in events:
        known.hear(fleet, event, lambda pid: "x#1")
    return known


def observed(sequence: int, state: State) -> e.Observed:
    said = status(sequence, state)
    return e.Observed("x", e.Source.POLL, "127.0.0.1:2", "", said, 0, 0, 1.0)


def test_the_newest_word_of_an_incarnation_counts() -> None:
    assert heard().against(TARGET) == "it was never heard of"
    assert heard(observed(4, State.READY)).against(TARGET) == ""
    late = heard(observed(5, State.DRAINING), observed(4, State.READY))
    assert late.against(TARGET) == "it said DRAINING"
    assert late.bad_since("x#1") == 1.0


def test_an_end_that_was_told_is_final() -> None:
    gone = e.ChildExited("instance.x", 7, -9, 2.0)
    known = heard(observed(4, State.READY), gone, observed(5, State.READY))
    assert known.against(TARGET) == "its end is known"
