"""Two control planes, one gateway: neither decides what the other would not know."""

from dataclasses import replace

from gateway.config import parse
from gateway.control import DrainInstance, SetInstanceWeight
from gateway.fleet.closing import CUT_S
from gateway.fleet.commands import (
    Answer,
    CallDrain,
    ClaimStore,
    CloseFront,
    Command,
    Launch,
    OpenFront,
    ReclaimStore,
    RegisterAnswer,
    SettleWrites,
    StartWorker,
    Supervise,
    Tell,
    Write,
)
from gateway.fleet.drain import Drain, Phase
from gateway.fleet.durable import drain_change, instance_document
from gateway.fleet.events import (
    Asked,
    BeatsWentStale,
    ChildExited,
    ChildrenSeen,
    ChildStarted,
    IntentKept,
    LeasesCut,
    Registered,
    ReloadAsked,
    RowSettled,
    SettingsRead,
    SlotEmptied,
    SlotKept,
    SlotSent,
    StopAsked,
    Ticked,
    WorkerLinked,
)
from gateway.fleet.handing import (
    ClaimFailed,
    CutAsked,
    FreezeAsked,
    GivenAway,
    HeldElsewhere,
    StoreClaimed,
    Thawed,
    TookOver,
    WritesSettled,
)
from gateway.fleet.registry import Origin, Seen
from gateway.fleet.restore import Life, restore
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import (
    Accept,
    Close,
    Cut,
    CutHeld,
    Exit,
    Frozen,
    Kill,
    LostRequest,
    Publish,
    Serving,
)
from gateway.store.base import Documents, Put
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    LAUNCHED,
    LAYOUT,
    STATICS,
    begun,
    both_ready,
    observed,
    only,
    play,
    status,
    targets,
    texts,
)

LOST = LostRequest(0xAB, "", 0, "streaming", 2.0, 10)


def orders(commands: list[Command]) -> list[object]:
    return [one.message for one in only(Supervise, commands)]


def frozen(fleet: FleetSnapshot | None = None) -> FleetSnapshot:
    fleet, commands = play(fleet or both_ready(), FreezeAsked(10.0))
    assert only(SettleWrites, commands) == [SettleWrites()]
    return fleet


def documents() -> Documents:
    """What `both_ready` has left in the store of its own segment."""
    kept: Documents = {}
    _, commands = play(begun(), observed("a"), observed("b"))
    for write in only(Write, commands):
        for change in write.changes:
            assert isinstance(change, Put)
            kept.setdefault(change.kind, {})[change.key] = change.document
    assert len(kept["slots"]) == 2
    return kept


def standing_by(keep: bool = True) -> FleetSnapshot:
    """A successor that has started its worker and heard of nobody yet."""
    life = Life(LAYOUT, 2, 0, 0.0, 0.0, stands_by=True)
    fleet = restore(parse(STATICS), documents(), life)
    fleet, commands = play(fleet, ChildrenSeen({}, 1, frozenset(), 0.0), keep=keep)
    assert only(StartWorker, commands) == [StartWorker(0, 0, 1, waits=True)]
    return play(fleet, WorkerLinked(0, 0, 88, 0, 0.1, waits=True), keep=keep)[0]


def successor() -> FleetSnapshot:
    """One that has taken over, from a predecessor that has said nothing yet."""
    events = (observed("a"), observed("b"), StoreClaimed(2.0), TookOver(3.0))
    return play(standing_by(), *events)[0]


# --- the predecessor -----------------------------------------------------------------------------


def test_between_offer_and_commit_changes_and_registrations_are_refused_and_come_again() -> None:
    asked = Asked(7, SetInstanceWeight("a", 2.0), False, None, 11.0)
    fleet, commands = play(frozen(), asked)
    (answer,) = only(Answer, commands)
    assert getattr(answer.value, "code", "") == "handing_over"
    assert only(Write, commands) == []
    registered = Registered(8, status("a"), "", 0.0, 0, 11.0)
    fleet, commands = play(fleet, registered)
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, RegisterAnswer)
    assert answer.value.code == "UNAVAILABLE"
    fleet, commands = play(fleet, Thawed(12.0), replace(asked, now=13.0))
    assert fleet.weight_of(fleet.instances["a"]) == 2.0


def test_what_was_being_stored_is_true_before_the_offer_is_made() -> None:
    asked = Asked(7, SetInstanceWeight("a", 2.0), False, None, 10.0)
    fleet, _ = play(both_ready(), asked, keep=False)
    fleet, commands = play(fleet, FreezeAsked(10.1), keep=False)
    assert only(SettleWrites, commands) == []
    fleet, commands = play(fleet, IntentKept(7, 10.2))
    assert fleet.weight_of(fleet.instances["a"]) == 2.0
    assert only(SettleWrites, commands) == [SettleWrites()]
    _, commands = play(fleet, WritesSettled(10.3))
    assert orders(commands) == [Frozen()]


def test_a_launch_that_was_ordered_is_seen_before_the_offer_is_made() -> None:
    """Its launch token is in the store only after that: the successor could not let it in."""
    fleet = begun(LAUNCHED)
    assert fleet.launches["m-1-0"].pid == -1  # ordered, and not heard of
    fleet, commands = play(fleet, FreezeAsked(2.0))
    assert only(SettleWrites, commands) == []
    fleet, commands = play(fleet, ChildStarted("instance.m-1-0", 99, 2.1))
    assert only(SettleWrites, commands) == [SettleWrites()]
    fleet, commands = play(fleet, ChildExited("instance.m-1-0", 99, 1, 2.2), Ticked(500.0))
    assert only(Launch, commands) == []  # nothing is started meanwhile
    _, commands = play(fleet, Thawed(501.0))
    assert [one.name for one in only(Launch, commands)] == ["m-1-0"]


def test_a_drain_whose_deadline_passes_while_frozen_waits_and_no_tick_spins() -> None:
    drain = Asked(7, DrainInstance("a", 5.0, False, False), False, None, 6.0)
    fleet = frozen(play(both_ready(), drain)[0])
    fleet, commands = play(fleet, Ticked(20.0))
    assert [one.message for one in only(Tell, commands) if isinstance(one.message, Cut)] == []
    assert fleet.armed > 20.0
    _, commands = play(fleet, Thawed(21.0))
    assert fleet.drains["a"].phase.value != "done"


def test_a_failed_successor_s_claim_of_the_store_is_taken_back_with_our_slots() -> None:
    fleet, commands = play(frozen(), Thawed(12.0))
    (reclaim,) = only(ReclaimStore, commands)
    kept = {(put.kind, put.key): put.document for put in reclaim.changes if isinstance(put, Put)}
    assert {document["instance"] for (kind, _), document in kept.items() if "instance" in document}
    slots = [document for (kind, _), document in kept.items() if kind == "slots"]
    assert {document["segment"] for document in slots} == {fleet.segment}
    assert not fleet.still


def test_a_question_of_a_successor_that_has_gone_is_not_answered() -> None:
    fleet, _ = play(frozen(), Thawed(12.0))
    _, commands = play(fleet, WritesSettled(12.1))
    assert Frozen() not in orders(commands)


def test_after_the_commit_workers_finish_and_no_instance_is_touched() -> None:
    fleet, _ = play(begun(LAUNCHED), ChildStarted("instance.m-1-0", 99, 2.1))
    fleet, commands = play(frozen(fleet), GivenAway(12.0))
    assert only(Tell, commands)[-1] == Tell(0, Close(30.0))
    assert only(CloseFront, commands) == [CloseFront()]
    assert not fleet.serving
    fleet, commands = play(fleet, StopAsked(1, 13.0))  # a service manager ends the old one
    assert only(Tell, commands) == []
    assert fleet.closing is not None
    assert fleet.closing.step == "workers"
    fleet, commands = play(fleet, ChildExited("worker0.0", 77, 0, 20.0), RowSettled(0, (), 20.1))
    assert orders(commands) == [Exit(0)]
    assert only(StartWorker, commands) == []


def test_a_second_signal_after_the_commit_cuts_what_is_left() -> None:
    fleet, _ = play(frozen(), GivenAway(12.0), StopAsked(1, 13.0))
    fleet, commands = play(fleet, StopAsked(2, 14.0))
    assert only(Tell, commands) == [Tell(0, Close(0.0))]
    _, commands = play(fleet, Ticked(14.0 + CUT_S))
    assert orders(commands) == [Kill("worker0.0", 9)]


def test_a_cut_that_the_successor_asks_for_is_carried_out_and_named() -> None:
    fleet, _ = play(frozen(), GivenAway(12.0))
    slot = fleet.instances["a"].slot
    fleet, commands = play(fleet, CutAsked("a", 13.0))
    (tell,) = only(Tell, commands)
    assert isinstance(tell.message, Cut)
    assert tell.message.slots == (slot,)
    lost = replace(LOST, slot=slot)
    _, commands = play(fleet, LeasesCut(0, tell.message.token, (lost,), 13.1))
    assert any(text.startswith("request 00000000000000ab lost on a") for text in texts(commands))


# --- the successor -------------------------------------------------------------------------------


def test_the_first_table_of_a_successor_has_everybody_who_stood_in_the_last_one() -> None:
    fleet = standing_by()
    assert fleet.awaited == {"a", "b"}
    fleet, commands = play(fleet, observed("a"))
    assert only(Tell, commands) == []
    fleet, commands = play(fleet, observed("b"), keep=False)
    slots = [one.then for one in only(Write, commands) if isinstance(one.then, SlotKept)]
    assert only(Tell, commands) == []  # and until the store has its slot
    fleet, commands = play(fleet, *slots)
    assert [type(one.message) for one in only(Tell, commands)] == [Publish]
    assert targets(fleet) == ["a", "b"]
    assert only(ClaimStore, commands) == [ClaimStore()]
    assert orders(commands) == []  # the commit comes when the store is ours


def test_who_was_ready_before_is_no_beginner_to_the_successor() -> None:
    seen = Seen("r", "m", "1", Origin.REGISTERED, grpc="127.0.0.1:2114", incarnation="r1")
    slot = {"instance": "r", "incarnation": "r1", "model": "m", "version": "1"}
    kept: Documents = {
        "instances": {"r": instance_document(seen)},
        "slots": {"3": {**slot, "ready_since": 5.0, "segment": 1}},
    }
    fleet = restore(parse(STATICS), kept, Life(LAYOUT, 2, 0, 40.0, 0.0, stands_by=True))
    fleet, _ = play(fleet, ChildrenSeen({}, 1, frozenset(), 40.0), observed("r", now=50.0))
    assert fleet.instances["r"].ready_since == 5.0


def test_a_claim_commits_and_a_claim_that_fails_ends_the_successor() -> None:
    fleet, _ = play(standing_by(), observed("a"), observed("b"))
    assert orders(play(fleet, StoreClaimed(2.0))[1]) == [Serving()]
    assert orders(play(fleet, ClaimFailed("another gateway writes", 2.0))[1]) == [Exit(1)]


def test_nobody_accepts_and_nothing_is_decided_before_the_predecessor_lets_go() -> None:
    fleet, commands = play(standing_by(), observed("a"), observed("b"), StoreClaimed(2.0))
    assert not any(isinstance(one.message, Accept) for one in only(Tell, commands))
    fleet, commands = play(fleet, WorkerLinked(0, 0, 88, 1, 2.5, waits=True))
    assert not any(isinstance(one.message, Accept) for one in only(Tell, commands))
    fleet, commands = play(fleet, TookOver(3.0))
    assert Tell(0, Accept(0)) in only(Tell, commands)
    assert only(OpenFront, commands) == [OpenFront()]
    asked = Asked(7, SetInstanceWeight("a", 2.0), False, None, 4.0)
    assert play(fleet, asked)[0].weight_of(fleet.instances["a"]) == 2.0
    assert not fleet.still


def test_nobody_stands_in_for_a_paused_worker_of_a_successor_that_stands_by() -> None:
    life = Life(LAYOUT, 2, 0, 0.0, 0.0, stands_by=True)
    links = (WorkerLinked(0, 0, 88, 0, 0.1, waits=True), WorkerLinked(1, 1, 89, 0, 0.1, waits=True))
    fleet, _ = play(
        restore(parse(STATICS), documents(), life), ChildrenSeen({}, 2, frozenset(), 0.0), *links
    )
    _, commands = play(fleet, BeatsWentStale(frozenset({0}), 1.0))
    assert not any(isinstance(one.message, Accept) for one in only(Tell, commands))


def test_one_that_stands_by_tells_no_instance_to_drain() -> None:
    """One that is held out and has come back is the predecessor's to tell."""
    kept = documents()
    drain = Drain("a", 0, 0, 0.0, 5.0, phase=Phase.DONE, reason="asked by an operator")
    change = drain_change(drain, 0.0, 1.0)
    kept["drains"] = {"a": change.document}
    life = Life(LAYOUT, 2, 0, 0.0, 0.0, stands_by=True)
    fleet, _ = play(restore(parse(STATICS), kept, life), ChildrenSeen({}, 1, frozenset(), 0.0))
    fleet, commands = play(fleet, WorkerLinked(0, 0, 88, 0, 0.1, waits=True), observed("a"))
    assert only(CallDrain, commands) == []
    fleet, _ = play(fleet, observed("b"), StoreClaimed(2.0), TookOver(3.0))
    _, commands = play(fleet, observed("a", now=4.0))
    assert [call.name for call in only(CallDrain, commands)] == ["a"]


def test_a_worker_that_was_away_at_the_commit_is_told_to_accept_when_it_comes_back() -> None:
    _, commands = play(successor(), WorkerLinked(0, 0, 88, 1, 5.0, waits=True))
    assert only(Tell, commands)[0] == Tell(0, Accept(0))
    _, commands = play(successor(), WorkerLinked(0, 0, 88, 1, 5.0))
    assert Tell(0, Accept(0)) not in only(Tell, commands)


def test_a_drain_waits_for_the_predecessor_and_has_it_cut_at_the_deadline() -> None:
    fleet, _ = play(successor(), HeldElsewhere({"a": 2}, False, 4.0))
    drain = Asked(7, DrainInstance("a", 5.0, False, False), False, None, 5.0)
    fleet, _ = play(fleet, drain)
    fleet = _emptied(fleet, 6.0)
    assert fleet.drains["a"].phase.value == "waiting"
    fleet, commands = play(fleet, Ticked(10.0))
    assert fleet.drains["a"].phase.value == "cutting"
    assert CutHeld("a") in orders(commands)
    (cut,) = [one.message for one in only(Tell, commands) if isinstance(one.message, Cut)]
    fleet, _ = play(fleet, LeasesCut(0, cut.token, (), 10.1))
    assert fleet.drains["a"].phase.value == "cutting"
    fleet, _ = play(fleet, HeldElsewhere({}, False, 10.2))
    assert fleet.drains["a"].phase.value == "done"


def test_a_predecessor_that_has_not_said_or_is_gone() -> None:
    drain = Asked(7, DrainInstance("a", 60.0, False, False), False, None, 5.0)
    fleet, _ = play(successor(), drain)
    fleet = _emptied(fleet, 6.0)
    assert fleet.drains["a"].phase.value == "waiting"  # it may hold something
    fleet, _ = play(fleet, HeldElsewhere({}, True, 7.0))
    assert fleet.drains["a"].phase.value == "done"


def _emptied(fleet: FleetSnapshot, now: float) -> FleetSnapshot:
    """Our own worker holds nothing on `a`, and `a` says that it drains."""
    token = fleet.drains["a"].token
    draining = observed("a", State.DRAINING, now=now, sequence=2)
    return play(fleet, SlotSent(0, token, now), SlotEmptied(0, token, now), draining)[0]


def test_limits_are_what_the_predecessor_leaves_of_them() -> None:
    fleet, _ = play(successor(), HeldElsewhere({}, False, 4.0), Ticked(10.0))
    whole = _limits(fleet)
    fleet, _ = play(fleet, HeldElsewhere({"a": 1}, False, 11.0), Ticked(20.0))
    assert _limits(fleet)["a"] == max(1, whole["a"] - 1) != whole["a"]
    assert _limits(fleet)["b"] == whole["b"]
    fleet, _ = play(fleet, HeldElsewhere({"a": 999}, False, 21.0), Ticked(30.0))
    assert _limits(fleet)["a"] == 1
    fleet, _ = play(fleet, HeldElsewhere({}, True, 31.0), Ticked(40.0))
    assert _limits(fleet) == whole


def _limits(fleet: FleetSnapshot) -> dict[str, int]:
    assert fleet.table is not None
    versions = (version for route in fleet.table.routes for version in route.versions)
    return {target.instance: target.limit for version in versions for target in version.targets}


def test_a_reload_while_frozen_is_refused_and_nothing_is_wrong_with_the_file() -> None:
    settings = parse(STATICS)
    fleet, _ = play(frozen(), ReloadAsked("SIGHUP", 11.0))
    read = SettingsRead(0, "SIGHUP", False, None, STATICS, settings, (), 11.1)
    fleet, commands = play(fleet, read)
    assert fleet.refused == ()
    assert only(Write, commands) == []
