from dataclasses import replace

import pytest

from gateway.config import INSTANCES_MAX
from gateway.control import (
    AddInstance,
    Ask,
    CancelLease,
    Denied,
    DrainInstance,
    Receipt,
    RemoveInstance,
    ResetInstanceWeight,
    ResetWeights,
    SetInstanceWeight,
    SetWeights,
    StartInstance,
    StopInstance,
    UndrainInstance,
)
from gateway.fleet.asks import plan
from gateway.fleet.commands import Answer, CallResume, Command, Tell, Write
from gateway.fleet.drain import Phase
from gateway.fleet.events import Asked, SlotEmptied, SlotSent, StopAsked
from gateway.fleet.registry import Origin
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import Cut
from gateway.records import Intent
from gateway.store.base import Put, Remove
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    LAUNCHED,
    STATICS,
    begun,
    both_ready,
    observed,
    only,
    play,
    targets,
)


def ask(
    fleet: FleetSnapshot,
    *asks: Ask,
    dry_run: bool = False,
    revision: int | None = None,
    now: float = 10.0,
) -> tuple[FleetSnapshot, list[Command]]:
    events = [Asked(i, one, dry_run, revision, now) for i, one in enumerate(asks, start=1)]
    return play(fleet, *events)


def changes(commands: list[Command]) -> tuple[str, ...]:
    receipt = answer(commands)
    assert isinstance(receipt, Receipt)
    return receipt.changes


def answer(commands: list[Command]) -> Receipt | Denied:
    (found,) = only(Answer, commands)
    assert isinstance(found.value, Receipt | Denied)
    return found.value


# --- store, then act -----------------------------------------------------------------------------


def test_nothing_has_changed_until_the_store_has_it() -> None:
    event = Asked(1, SetWeights("m", {"1": 5.0}), False, None, 10.0)
    fleet, commands = play(both_ready(), event, keep=False)
    assert fleet.weights("m")["1"].weight == 100.0
    (write,) = only(Write, commands)
    kinds = {change.kind for change in write.changes}
    assert kinds == {"weights", "changes", "counters"}
    fleet, commands = play(fleet, write.then)
    assert fleet.weights("m")["1"].weight == 5.0


def test_the_receipt_names_the_generation_whose_table_contains_the_change() -> None:
    fleet, commands = ask(both_ready(), SetWeights("m", {"1": 5.0}))
    receipt = answer(commands)
    assert receipt == Receipt(fleet.generation, 1, ("weight of m version 1: 100 to 5",))
    assert fleet.table is not None
    assert fleet.table.generation == fleet.generation
    assert fleet.table.routes[0].versions[0].weight == 5.0


def test_asks_are_carried_out_one_after_the_other() -> None:
    first, second = SetWeights("m", {"1": 5.0}), SetWeights("m", {"1": 6.0})
    events = [Asked(1, first, False, None, 1.0), Asked(2, second, False, None, 1.0)]
    fleet, commands = play(both_ready(), *events, keep=False)
    assert len(only(Write, commands)) == 1
    fleet, commands = play(fleet, only(Write, commands)[0].then)
    assert fleet.weights("m")["1"].weight == 6.0
    assert fleet.revision == 2


def test_a_dry_run_says_everything_and_changes_nothing() -> None:
    before = both_ready()
    fleet, commands = ask(before, DrainInstance("a", None, False, False), dry_run=True)
    receipt = answer(commands)
    assert isinstance(receipt, Receipt)
    assert receipt.changes == ("a is drained for at most 30 s and held out",)
    assert only(Write, commands) == []
    assert (fleet.drains, fleet.revision) == ({}, 0)


def test_what_is_so_already_moves_neither_revision_nor_generation() -> None:
    before = both_ready()
    fleet, commands = ask(before, SetWeights("m", {"1": 100.0}))
    assert isinstance(answer(commands), Receipt)
    assert (fleet.revision, fleet.generation) == (0, before.generation)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (SetWeights("x", {"1": 1.0}), "unknown_model"),
        (SetWeights("m", {"9": 1.0}), "invalid"),
        (SetWeights("m", {"1": -1.0}), "invalid"),
        (SetWeights("m", {"1": float("nan")}), "invalid"),
        (SetWeights("m", {"1": float("inf")}), "invalid"),
        (ResetWeights("x"), "unknown_model"),
        (SetInstanceWeight("x", 1.0), "unknown_instance"),
        (SetInstanceWeight("a", -1.0), "invalid"),
        (DrainInstance("x", None, False, False), "unknown_instance"),
        (DrainInstance("a", -1.0, False, False), "invalid"),
        (UndrainInstance("x"), "unknown_instance"),
        (StopInstance("x", False), "unknown_instance"),
        (StopInstance("a", False, -1.0), "invalid"),
        (StartInstance("x"), "unknown_instance"),
        (StartInstance("a"), "conflict"),
        (AddInstance("a", "m", "1", "h:1", "h:2"), "conflict"),
        (AddInstance("n", "x", "1", "h:1", "h:2"), "unknown_model"),
        (AddInstance("n", "m", "1", "h", "h:2"), "invalid"),
        (AddInstance("n", "m", "1", "h:1", "h:99999"), "invalid"),
        (AddInstance("n", "m", "1:2", "h:1", "h:2"), "invalid"),
        (AddInstance("a b", "m", "1", "h:1", "h:2"), "invalid"),
        (RemoveInstance("x"), "unknown_instance"),
        (RemoveInstance("a"), "from_file"),
    ],
    ids=str,
)
def test_a_refusal_has_a_code_and_nothing_has_changed(asked: Ask, code: str) -> None:
    before = both_ready()
    fleet, commands = ask(before, asked)
    denied = answer(commands)
    assert isinstance(denied, Denied)
    assert denied.code == code
    assert (fleet.instances, fleet.revision, fleet.asks) == (before.instances, 0, ())


def test_a_closing_gateway_changes_nothing_any_more() -> None:
    fleet, _ = play(both_ready(), StopAsked(1, 5.0))
    _, commands = ask(fleet, SetWeights("m", {"1": 5.0}))
    denied = answer(commands)
    assert isinstance(denied, Denied)
    assert denied.code == "closing"


# --- weights -------------------------------------------------------------------------------------


def test_a_reset_gives_the_files_weights_back() -> None:
    fleet, _ = ask(both_ready(), SetWeights("m", {"1": 5.0}))
    fleet, commands = ask(fleet, ResetWeights("m"))
    assert fleet.weights("m")["1"].weight == 100.0
    assert any(Remove("weights", "m") in write.changes for write in only(Write, commands))


def test_an_instance_of_weight_zero_is_in_no_table() -> None:
    fleet, _ = ask(both_ready(), SetInstanceWeight("a", 0.0))
    assert targets(fleet) == ["b"]
    fleet, _ = ask(fleet, SetInstanceWeight("a", 1.0))
    assert targets(fleet) == ["a", "b"]


# --- drains --------------------------------------------------------------------------------------


def test_a_drain_is_out_of_the_table_its_receipt_names() -> None:
    fleet, commands = ask(both_ready(), DrainInstance("a", 5.0, False, False))
    receipt = answer(commands)
    assert isinstance(receipt, Receipt)
    assert receipt.generation == fleet.generation
    assert targets(fleet) == ["b"]
    assert fleet.drains["a"].deadline == 15.0
    assert fleet.instances["a"].intent is Intent.DRAIN


def test_a_second_drain_keeps_the_first_deadline_and_a_stop_is_added_to_it() -> None:
    fleet, _ = ask(both_ready(), DrainInstance("a", 5.0, False, False))
    fleet, _ = ask(fleet, DrainInstance("a", 500.0, False, False), now=12.0)
    assert fleet.drains["a"].deadline == 15.0
    fleet, _ = ask(fleet, DrainInstance("a", 500.0, True, False), now=13.0)
    assert (fleet.drains["a"].deadline, fleet.drains["a"].stop) == (15.0, True)


def test_a_stop_has_its_own_grace_and_a_forced_one_has_none() -> None:
    fleet, _ = ask(both_ready(), StopInstance("a", False, 5.0))
    assert (fleet.drains["a"].deadline, fleet.drains["a"].reclaim) == (15.0, False)
    fleet, _ = ask(both_ready(), StopInstance("a", False))
    assert fleet.drains["a"].deadline == 40.0
    fleet, _ = ask(both_ready(), StopInstance("a", True))
    assert (fleet.drains["a"].deadline, fleet.drains["a"].reclaim) == (10.0, True)


def test_a_stop_of_the_last_routable_says_how_it_is_meant() -> None:
    """Not --force of its own: that would cut what it holds."""
    fleet, _ = ask(both_ready(), DrainInstance("b", 0.0, False, False))
    _, commands = ask(fleet, StopInstance("a", False))
    denied = answer(commands)
    assert isinstance(denied, Denied)
    assert denied.code == "last_routable"
    assert "drain it with --stop --force" in denied.message


def test_undrain_resumes_and_the_former_weight_is_back() -> None:
    fleet, _ = ask(both_ready(), SetInstanceWeight("a", 3.0))
    fleet, _ = ask(fleet, DrainInstance("a", 5.0, False, False))
    fleet, commands = ask(fleet, UndrainInstance("a"))
    assert only(CallResume, commands) == [CallResume("a", "127.0.0.1:2001")]
    assert targets(fleet) == ["a", "b"]
    assert fleet.weight_of(fleet.instances["a"]) == 3.0


def test_undraining_what_is_not_drained_is_not_a_change() -> None:
    assert plan(both_ready(), UndrainInstance("a"), 1.0).changes == ()


def test_the_last_routable_instance_needs_force() -> None:
    fleet, _ = ask(both_ready(), DrainInstance("a", 5.0, False, False))
    with pytest.raises(Denied, match="last routable"):
        plan(fleet, DrainInstance("b", 5.0, False, False), 10.0)
    assert plan(fleet, DrainInstance("b", 5.0, False, True), 10.0).changes


# --- instances and leases ------------------------------------------------------------------------


def test_no_more_instances_are_added_than_are_kept() -> None:
    fleet = both_ready()
    one = fleet.instances["a"]
    many = {f"n{i}": replace(one, name=f"n{i}") for i in range(INSTANCES_MAX - 2)}
    full = replace(fleet, instances={**fleet.instances, **many})
    with pytest.raises(Denied, match="1000 instances"):
        plan(full, AddInstance("n", "m", "1", "h:1", "h:2"), 1.0)


def test_an_added_instance_is_kept_polled_and_removed_by_a_drain() -> None:
    add = AddInstance("n", "m", "1", "127.0.0.1:1003", "127.0.0.1:2003")
    fleet, commands = ask(both_ready(), add)
    kept = [change for write in only(Write, commands) for change in write.changes]
    assert any(isinstance(one, Put) and one.key == "n" for one in kept)
    assert plan(fleet, add, 11.0).changes == ()
    fleet, _ = play(fleet, observed("n", now=11.0))
    fleet, _ = ask(fleet, RemoveInstance("n"), now=12.0)
    assert fleet.instances["n"].retired
    assert fleet.drains["n"].ended is None
    with pytest.raises(Denied, match="n is being removed: add it when it has left"):
        plan(fleet, add, 12.1)  # "there already" would be said of one that is gone in a moment


def test_a_launched_instance_is_taken_out_of_the_file_not_removed() -> None:
    with pytest.raises(Denied, match="comes from replicas"):
        plan(begun(LAUNCHED), RemoveInstance("m-1-0"), 1.0)


def test_a_cancelled_lease_is_cut_by_every_worker() -> None:
    _, commands = ask(both_ready(), CancelLease("00000000000000ff"))
    (tell,) = [one for one in only(Tell, commands) if isinstance(one.message, Cut)]
    assert isinstance(tell.message, Cut)
    assert tell.message.requests == (255,)


# --- the last one of a model ---------------------------------------------------------------------

DARK = "no instance of m is routable any more: requests get 503"


def test_weights_that_leave_a_model_without_any_instance_are_set_with_a_warning() -> None:
    fleet, commands = ask(both_ready(), SetWeights("m", {"1": 0.0}))
    assert changes(commands) == ("weight of m version 1: 100 to 0", DARK)
    assert not any(fleet.routable(seen) for seen in fleet.instances.values())
    fleet, commands = ask(fleet, SetWeights("m", {"1": 0.5}))
    assert DARK not in changes(commands)
    _, commands = ask(both_ready(), SetWeights("m", {"1": 0.0}), dry_run=True)
    assert DARK in changes(commands)  # said before it is done


def test_an_instances_own_weight_warns_when_it_was_the_last() -> None:
    fleet, commands = ask(both_ready(), SetInstanceWeight("a", 0.0))
    assert changes(commands) == ("weight of a: 1 to 0",)
    fleet, commands = ask(fleet, SetInstanceWeight("b", 0.0))
    assert changes(commands) == ("weight of b: 1 to 0", DARK)


def test_back_to_a_file_that_gives_it_nothing_warns_too() -> None:
    off = STATICS.replace('{ "1" = 100 }', '{ "1" = 0 }')
    fleet, _ = play(begun(off), observed("a"))
    fleet, _ = ask(fleet, SetWeights("m", {"1": 5.0}))
    _, commands = ask(fleet, ResetWeights("m"))
    assert changes(commands) == ("weights of m: back to the file", DARK)


def test_a_warning_is_not_repeated_for_a_model_that_is_dark_already() -> None:
    fleet, _ = ask(both_ready(), SetInstanceWeight("a", 0.0), SetInstanceWeight("b", 0.0))
    _, commands = ask(fleet, SetWeights("m", {"1": 0.0}))
    assert changes(commands) == ("weight of m version 1: 100 to 0",)


def test_the_last_routable_instance_is_not_removed_until_it_was_drained() -> None:
    fleet, _ = play(begun(), observed("a"))
    added = replace(fleet.instances["a"], origin=Origin.API)
    fleet = replace(fleet, instances={**fleet.instances, "a": added})
    _, commands = ask(fleet, RemoveInstance("a"))
    denied = answer(commands)
    assert isinstance(denied, Denied)
    assert denied.code == "last_routable"
    fleet, commands = ask(fleet, DrainInstance("a", None, False, True), RemoveInstance("a"))
    assert fleet.instances["a"].retired


def test_the_weight_of_an_instance_has_a_way_back() -> None:
    fleet, _ = ask(both_ready(), SetInstanceWeight("a", 0.0))
    assert targets(fleet) == ["b"]
    _, dry = ask(fleet, ResetInstanceWeight("a"), dry_run=True)
    assert only(Write, dry) == []
    fleet, commands = ask(fleet, ResetInstanceWeight("a"))
    assert targets(fleet) == ["a", "b"]
    assert fleet.instance_overrides == {}
    assert Remove("weights", "instance:a") in only(Write, commands)[0].changes
    assert fleet.history[-1].text == "weight of a: 0 back to 1"
    _, commands = ask(fleet, ResetInstanceWeight("a"))
    assert only(Write, commands) == []


def test_an_instance_that_never_heard_of_its_undrain_can_be_told_again() -> None:
    """It was frozen for longer than orders are repeated, and drains on."""
    fleet, _ = ask(both_ready(), DrainInstance("a", None, False, True))
    fleet, _ = ask(fleet, UndrainInstance("a"), now=11.0)
    late = 11.0 + fleet.settings.drain.grace_s + 1
    fleet, commands = play(fleet, observed("a", State.DRAINING, now=late, sequence=9))
    assert only(CallResume, commands) == []
    _, commands = ask(fleet, UndrainInstance("a"), now=late, dry_run=True)
    assert only(CallResume, commands) == []
    fleet, commands = ask(fleet, UndrainInstance("a"), now=late)
    assert [one.name for one in only(CallResume, commands)] == ["a"]
    fleet, _ = play(fleet, observed("a", State.READY, now=late + 1, sequence=10))
    assert targets(fleet) == ["a", "b"]


def test_a_plain_drain_of_what_was_stopped_holds_it_out_when_it_comes_back() -> None:
    """It was said to be drained already, and served again with its next start."""
    ready = both_ready()
    fleet, _ = play(ready, Asked(1, StopInstance("a", False), False, None, 9.0))
    token = fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 9.1), SlotEmptied(0, token, 9.2))
    fleet, _ = play(fleet, observed("a", State.STOPPED, 9.3, sequence=9))
    assert (fleet.drains["a"].phase, fleet.drains["a"].stop) == (Phase.DONE, True)
    held, _ = play(fleet, Asked(2, DrainInstance("a", None, False, False), False, None, 9.4))
    again = observed("a", State.READY, 9.5, sequence=1, incarnation="anew")
    assert play(held, again)[0].instances["a"].intent is Intent.DRAIN
    assert play(fleet, again)[0].instances["a"].intent is Intent.ACTIVE
