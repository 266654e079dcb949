from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.config import parse
from gateway.control import (
    Ask,
    DrainInstance,
    LostView,
    Reload,
    RemoveInstance,
    StopInstance,
    UndrainInstance,
)
from gateway.controlplane.views import drain
from gateway.fleet.commands import (
    CallDrain,
    CallResume,
    CallStop,
    Command,
    Record,
    Tell,
    Write,
)
from gateway.fleet.drain import REMOVED, RETIRED, Phase
from gateway.fleet.drains import facts, farewell
from gateway.fleet.durable import drain_change
from gateway.fleet.events import (
    Asked,
    IntentKept,
    LeasesCut,
    PollFailed,
    RowSettled,
    SettingsRead,
    SlotEmptied,
    SlotSent,
    Ticked,
)
from gateway.fleet.registry import Origin
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import Heard, LostRequest
from gateway.records import Health, Intent
from gateway.state.shared import Segment
from gateway.store.base import Put, Remove
from sluicegate.v1.states import Phase as InstancePhase
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    GRPC,
    STATICS,
    begun,
    both_ready,
    observed,
    only,
    play,
    texts,
)


def unheard(fleet: FleetSnapshot, name: str, now: float = 2.0) -> FleetSnapshot:
    """The fleet after as many polls of it have failed as it takes."""
    for second in range(3):
        failed = PollFailed(name, GRPC[name], "connection refused", False, 0, 0, now + second)
        fleet, _ = play(fleet, failed)
    assert fleet.instances[name].opinion.health is Health.UNHEALTHY
    return fleet


def test_a_drain_of_an_instance_that_nobody_reaches_is_done_when_no_worker_holds_it() -> None:
    fleet = unheard(both_ready(), "a")
    fleet, _ = play(fleet, Asked(1, DrainInstance("a", 600.0, False, False), False, None, 10.0))
    token = fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 10.1))
    assert fleet.drains["a"].phase is Phase.WAITING
    fleet, _ = play(fleet, SlotEmptied(0, token, 10.2))
    assert (fleet.drains["a"].phase, fleet.drains["a"].ended) == (Phase.DONE, 10.2)


@pytest.mark.parametrize("lost", [(), (LostRequest(1, "", 0, "streaming", 3.0, 7),)])
def test_a_drain_is_kept_as_cut_only_when_something_was_lost(lost: tuple[LostRequest, ...]) -> None:
    ask = DrainInstance("a", 5.0, False, False)
    fleet, _ = play(both_ready(), Asked(1, ask, False, None, 10.0))
    token = fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 10.1), Ticked(15.0))
    assert fleet.drains["a"].phase is Phase.CUTTING
    fleet, commands = play(fleet, LeasesCut(0, token, lost, 15.1))
    assert fleet.drains["a"].phase is (Phase.CUT if lost else Phase.DONE)
    *_, put = [
        change
        for one in only(Write, commands)
        for change in one.changes
        if isinstance(change, Put) and change.kind == "drains"
    ]
    assert (put.document["ended"], put.document["was_cut"]) == (True, bool(lost))


NO_SEGMENT: Segment = None  # type: ignore[assignment]  # an ended drain holds nothing there


def documents(commands: Sequence[Command]) -> list[dict[str, Any]]:
    """What was written of drains, in order."""
    return [
        change.document
        for one in only(Write, commands)
        for change in one.changes
        if isinstance(change, Put) and change.kind == "drains"
    ]


def drained(fleet: FleetSnapshot, now: float = 10.0, **keys: bool) -> FleetSnapshot:
    """`a` in WAITING: its worker sends nothing to it any more."""
    ask = DrainInstance("a", 60.0, keys.get("stop", False), False)
    fleet, _ = play(fleet, Asked(1, ask, False, None, now))
    fleet, _ = play(fleet, SlotSent(0, fleet.drains["a"].token, now))
    assert fleet.drains["a"].phase is Phase.WAITING
    return fleet


def over(fleet: FleetSnapshot, now: float = 11.0) -> FleetSnapshot:
    """The same, to its end."""
    fleet, _ = play(fleet, SlotEmptied(0, fleet.drains["a"].token, now))
    fleet, _ = play(fleet, observed("a", State.DRAINING, now=now, sequence=2))
    return fleet


def test_a_lost_request_keeps_its_names_whoever_has_its_slot_later() -> None:
    """They were once looked up when asked for: after the slot's release, a loss had no name."""
    fleet = drained(both_ready())
    slot, token = fleet.instances["a"].slot, fleet.drains["a"].token
    lost = LostRequest(255, "mine", slot, "waiting", 3.0, 7)
    fleet, commands = play(fleet, Ticked(70.0), LeasesCut(0, token, (lost,), 70.1))
    (named,) = fleet.drains["a"].lost
    assert (named.instance, named.model, named.version) == ("a", "m", "1")
    assert documents(commands)[0]["lost"][0]["instance"] == "a"  # before anything else can happen
    fleet = replace(fleet, book=replace(fleet.book, holders={}))
    (view,) = drain(fleet, fleet.drains["a"], NO_SEGMENT, 71.0).lost
    assert view == LostView(
        *("00000000000000ff", "mine", "m", "1", "a", "waiting", 3.0, 7, "drain deadline")
    )


@pytest.mark.parametrize("stop", [False, True])
def test_an_instance_that_has_not_heard_of_its_drain_is_told_with_the_next_poll(stop: bool) -> None:
    fleet = drained(both_ready(), stop=stop)
    for now in (12.0, 13.0):
        fleet, commands = play(fleet, observed("a", now=now, sequence=int(now)))
        (call,) = only(CallDrain, commands)
        assert call.grace_s == 70.0 - now
    _, commands = play(fleet, observed("a", State.DRAINING, now=14.0, sequence=14))
    assert only(CallDrain, commands) == []


def test_an_instance_that_has_not_heard_that_it_has_to_stop_is_told_with_the_next_poll() -> None:
    fleet = over(drained(both_ready(), stop=True))
    assert fleet.drains["a"].phase is Phase.STOPPING
    draining = observed("a", State.DRAINING, now=12.0, sequence=3)
    fleet, commands = play(fleet, draining)
    assert [call.name for call in only(CallStop, commands)] == ["a"]
    heard = observed("a", State.DRAINING, now=13.0, sequence=4, phase=InstancePhase.RELEASING)
    _, commands = play(fleet, heard)
    assert only(CallStop, commands) == []


@pytest.mark.parametrize("first", [DrainInstance("a", 60.0, False, False), None])
@pytest.mark.parametrize(
    "ask",
    [
        DrainInstance("a", 5.0, False, False),
        DrainInstance("a", 5.0, True, False),
        StopInstance("a", True),
        UndrainInstance("a"),
    ],
)
def test_what_is_stored_of_a_drain_is_what_is_done(first: Ask | None, ask: Ask) -> None:
    """The store once had a beginning of its own when a stop was added to a drain that ran."""
    fleet = both_ready()
    if first is not None:
        fleet, _ = play(fleet, Asked(1, first, False, None, 10.0))
    elif isinstance(ask, UndrainInstance):
        return
    fleet, commands = play(fleet, Asked(2, ask, False, None, 20.0))
    if stored := documents(commands):
        done = drain_change(fleet.drains["a"], 0.0, 20.0).document
        assert {**stored[0], "was_cut": False} == {**done, "was_cut": False}
    else:
        assert (first, ask) == (first, DrainInstance("a", 5.0, False, False))


# --- an operator's drain is of the id ------------------------------------------------------------


def reread(fleet: FleetSnapshot, text: str, now: float) -> FleetSnapshot:
    event = SettingsRead(0, "test", False, None, text, parse(text), (), now)
    fleet, _ = play(fleet, event)
    return fleet


def without_a(fleet: FleetSnapshot, now: float) -> FleetSnapshot:
    fleet = reread(fleet, STATICS.replace('id = "a"', 'id = "c"'), now)
    token = fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, now), SlotEmptied(0, token, now))
    fleet, _ = play(fleet, observed("a", State.DRAINING, now=now, sequence=int(now)))
    assert "a" not in fleet.instances
    return fleet


def test_a_held_out_instance_that_leaves_the_file_and_comes_back_is_still_held_out() -> None:
    fleet = without_a(over(drained(both_ready())), 20.0)
    assert fleet.drains["a"].intent is Intent.DRAIN
    fleet = reread(fleet, STATICS, 30.0)
    assert fleet.instances["a"].intent is Intent.DRAIN
    fleet, _ = play(fleet, Asked(9, UndrainInstance("a"), False, None, 31.0))
    assert fleet.instances["a"].intent is Intent.ACTIVE


def test_an_id_that_is_held_out_can_be_given_back_while_it_is_not_there() -> None:
    fleet = without_a(over(drained(both_ready())), 20.0)
    fleet, commands = play(fleet, Asked(9, UndrainInstance("a"), False, None, 21.0))
    assert "a" not in fleet.drains
    assert Remove("drains", "a") in only(Write, commands)[0].changes
    assert reread(fleet, STATICS, 30.0).instances["a"].intent is Intent.ACTIVE


def test_one_that_only_the_file_took_out_comes_back_active() -> None:
    fleet = without_a(both_ready(), 20.0)
    assert "a" not in fleet.drains
    assert reread(fleet, STATICS, 30.0).instances["a"].intent is Intent.ACTIVE


def test_an_operators_drain_of_an_instance_that_leaves_the_file_is_not_lifted_by_its_return() -> (
    None
):
    fleet = reread(both_ready(), STATICS.replace('id = "a"', 'id = "c"'), 10.0)
    deadline = fleet.drains["a"].deadline
    fleet, _ = play(fleet, Asked(2, DrainInstance("a", 5.0, False, True), False, None, 11.0))
    assert fleet.drains["a"].deadline == deadline
    fleet = reread(fleet, STATICS, 12.0)
    assert (fleet.instances["a"].intent, fleet.instances["a"].retired) == (Intent.DRAIN, False)


def test_an_instance_that_an_operator_removes_takes_its_drain_along() -> None:
    fleet = over(drained(both_ready()))
    fleet = replace(
        fleet, instances={**fleet.instances, "a": replace(fleet.instances["a"], origin=Origin.API)}
    )
    fleet, _ = play(fleet, Asked(2, RemoveInstance("a"), False, None, 20.0))
    token = fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 20.0), SlotEmptied(0, token, 20.0))
    fleet, _ = play(fleet, observed("a", State.DRAINING, now=21.0, sequence=21))
    assert ("a" in fleet.instances, "a" in fleet.drains) == (False, False)


def test_an_instance_that_answers_is_not_silent() -> None:
    fleet, _ = play(
        both_ready(), Asked(1, DrainInstance("a", 600.0, False, False), False, None, 10.0)
    )
    assert not facts(fleet, fleet.drains["a"], 11.0).silent


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        (Origin.CONFIG, RETIRED),
        (Origin.LAUNCHED, RETIRED),
        (Origin.API, REMOVED),
        (Origin.REGISTERED, REMOVED),
    ],
)
def test_who_took_an_instance_out_is_told_by_its_origin(origin: Origin, why: str) -> None:
    assert farewell(replace(both_ready().instances["a"], origin=origin)) == why


def test_an_instance_deleted_through_the_api_is_not_said_to_be_out_of_the_file() -> None:
    fleet = both_ready()
    added = replace(fleet.instances["a"], origin=Origin.API)
    fleet = replace(fleet, instances={**fleet.instances, "a": added})
    fleet, commands = play(fleet, Asked(1, RemoveInstance("a"), False, None, 10.0))
    token = fleet.drains["a"].token
    assert fleet.drains["a"].reason == REMOVED
    fleet = unheard(fleet, "a", 11.0)
    fleet, more = play(fleet, SlotSent(0, token, 15.0), SlotEmptied(0, token, 15.1))
    assert "a" not in fleet.instances
    said = [str((one.text, one.fields)) for one in only(Record, [*commands, *more])]
    assert f"a forgotten: {REMOVED}" in "".join(said)
    assert RETIRED not in "".join(said)


def held_out(name: str = "a") -> FleetSnapshot:
    """The fleet after a drain without stop has ended."""
    fleet, _ = play(
        both_ready(), Asked(1, DrainInstance(name, 9.0, False, False), False, None, 9.0)
    )
    token = fleet.drains[name].token
    fleet, _ = play(
        fleet,
        SlotSent(0, token, 9.1),
        SlotEmptied(0, token, 9.2),
        observed(name, State.DRAINING, 9.3, sequence=2, reason="asked by an operator"),
    )
    assert fleet.drains[name].phase is Phase.DONE
    return fleet


def written(commands: Sequence[Command]) -> list[Put]:
    changes = (change for one in only(Write, commands) for change in one.changes)
    return [one for one in changes if isinstance(one, Put) and one.kind == "drains"]


def test_a_control_that_starts_after_an_undrain_sees_to_it_that_the_instance_resumes() -> None:
    """The store had forgotten the drain, the Resume was lost with control, and nobody gave the
    instance back any more."""
    _, commands = play(held_out(), Asked(2, UndrainInstance("a"), False, None, 10.0))
    (put,) = written(commands)
    fleet = begun(documents={"drains": {"a": put.document}})
    assert fleet.instances["a"].intent is Intent.ACTIVE
    draining = observed("a", State.DRAINING, 11.0, sequence=3, reason="asked by an operator")
    _, commands = play(fleet, draining)
    assert [one.name for one in only(CallResume, commands)] == ["a"]


def test_the_end_of_a_drain_is_not_written_over_an_undrain_that_is_being_stored() -> None:
    """The later write won: after a restart the instance was held out again."""
    fleet, _ = play(both_ready(), Asked(1, DrainInstance("a", 9.0, False, False), False, None, 9.0))
    token = fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 9.1), SlotEmptied(0, token, 9.2))
    fleet, _ = play(fleet, Asked(2, UndrainInstance("a"), False, None, 9.3), keep=False)
    fleet, commands = play(fleet, observed("a", State.DRAINING, 9.4, sequence=2), keep=False)
    assert fleet.drains["a"].phase is Phase.DONE
    assert written(commands) == []
    fleet, _ = play(fleet, IntentKept(2, 9.5))
    assert fleet.instances["a"].intent is Intent.ACTIVE


def test_one_that_was_taken_out_and_is_named_again_is_given_back_although_its_drain_is_gone() -> (
    None
):
    """No verb could: it was `not drained`, and went on refusing."""
    fleet = both_ready()
    _, commands = play(
        fleet, observed("a", State.DRAINING, 2.0, sequence=2, reason=f"{RETIRED}; x")
    )
    assert [one.name for one in only(CallResume, commands)] == ["a"]
    _, commands = play(fleet, observed("a", State.DRAINING, 2.0, sequence=2, reason="SIGTERM"))
    assert only(CallResume, commands) == []


def test_an_operators_drain_of_one_that_leaves_the_file_outlasts_its_return() -> None:
    """It was said to be drained already, and came back with the file."""
    fleet = both_ready()
    one = Asked(1, Reload(), False, None, 9.0)
    without = parse(STATICS[: STATICS.index('[[instance]]\nid = "b"')])
    read = SettingsRead(1, "w", False, None, "", without, (), 9.0)
    fleet, _ = play(fleet, one, read)
    assert fleet.drains["b"].reason == RETIRED
    fleet, _ = play(fleet, Asked(2, DrainInstance("b", None, False, True), False, None, 9.1))
    back = SettingsRead(3, "w", False, None, "", parse(STATICS), (), 9.2)
    fleet, _ = play(fleet, back)
    assert (fleet.instances["b"].retired, fleet.instances["b"].intent) == (False, Intent.DRAIN)


def test_a_request_that_an_older_control_had_cut_is_named_with_the_drain_and_once() -> None:
    ask = DrainInstance("a", 5.0, False, False)
    fleet, _ = play(both_ready(), Asked(1, ask, False, None, 10.0))
    slot, token = fleet.instances["a"].slot, fleet.drains["a"].token
    fleet, _ = play(fleet, SlotSent(0, token, 10.1), Ticked(15.0))
    lost = LostRequest(1, "", slot, "streaming", 3.0, 7)
    fleet, commands = play(fleet, LeasesCut(0, -1, (lost,), 15.1))
    assert "request 0000000000000001 lost on a: drain deadline" in texts(commands)
    assert Tell(0, Heard(-1)) in commands
    fleet, commands = play(fleet, LeasesCut(0, -1, (lost,), 15.2))
    assert texts(commands) == []


def test_a_loss_is_not_written_over_an_undrain_that_is_being_stored() -> None:
    fleet, _ = play(both_ready(), Asked(1, DrainInstance("a", 9.0, False, False), False, None, 9.0))
    fleet, _ = play(fleet, Asked(2, UndrainInstance("a"), False, None, 9.1), keep=False)
    lost = LostRequest(1, "", fleet.instances["a"].slot, "streaming", 3.0, 7)
    fleet, commands = play(fleet, RowSettled(1, (lost,), 9.2), keep=False)
    assert len(fleet.drains["a"].lost) == 1
    assert written(commands) == []


def test_an_operators_stop_of_one_that_leaves_the_file_outlasts_its_return() -> None:
    """The file's reason took the place of his, and the file's return lifted his stop."""
    stop = Asked(1, DrainInstance("b", 9.0, True, True), False, None, 9.0)
    without = parse(STATICS[: STATICS.index('[[instance]]\nid = "b"')])
    fleet, _ = play(both_ready(), stop, SettingsRead(0, "w", False, None, "", without, (), 9.1))
    assert fleet.instances["b"].retired
    fleet, _ = play(fleet, SettingsRead(0, "w", False, None, "", parse(STATICS), (), 9.2))
    assert (fleet.instances["b"].retired, fleet.instances["b"].intent) == (False, Intent.STOP)
