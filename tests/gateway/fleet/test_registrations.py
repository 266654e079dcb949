"""Instances that register themselves: taken in, kept while they beat, let go."""

import os
from dataclasses import replace

import pytest

from gateway.config import INSTANCES_MAX
from gateway.control import DrainInstance, SetInstanceWeight
from gateway.fleet.commands import (
    Answer,
    BeatAnswer,
    Follow,
    PollNow,
    RegisterAnswer,
    Unfollow,
    WakeAt,
)
from gateway.fleet.events import (
    Asked,
    Beaten,
    Deregistered,
    Registered,
    SlotEmptied,
    SlotSent,
    Source,
    Ticked,
)
from gateway.fleet.registry import Origin
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Health, Intent, Outcome
from gateway.state.ledger import Ledger
from gateway.state.shared import Segment, create
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
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
from tests.gateway.fleet.registering import answered, refused, register, registered


def test_a_registration_is_answered_polled_and_kept() -> None:
    fleet, commands = play(begun(), register())
    assert only(Answer, commands) == [Answer(5, RegisterAnswer("", 30.0, 10.0))]
    assert only(Follow, commands) == [Follow("r", status("r").grpc)]
    assert only(PollNow, commands) == [PollNow("r")]
    assert fleet.instances["r"].origin is Origin.REGISTERED


def test_the_name_of_a_live_instance_elsewhere_is_taken() -> None:
    away = register(2.0, incarnation="r2", grpc="127.0.0.1:9")
    fleet, commands = play(registered(), away)
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, RegisterAnswer)
    assert "taken by a live instance" in answer.value.refusal
    assert fleet.instances["r"].incarnation == "r1"


def test_the_incarnation_of_a_live_instance_gives_nobody_its_name_or_its_requests() -> None:
    before = registered()
    away = {"grpc": "127.0.0.1:9", "http": "127.0.0.1:8", "sequence": 99}
    fleet, commands = play(before, register(2.0, **away))
    assert refused(commands).code == "ALREADY_EXISTS"
    assert fleet.instances == before.instances
    fleet, order = beat(fleet, 2.0, **away)
    assert order == "REGISTER"
    assert fleet.instances == before.instances


def test_addresses_move_only_with_a_reading_that_is_accepted() -> None:
    fleet, _ = play(registered(), answered("r", 2.0, sequence=9))
    fleet, _ = play(fleet, Ticked(fleet.instances["r"].expires_at))
    before = fleet.instances["r"]
    away = {"grpc": "127.0.0.1:9", "http": "127.0.0.1:8"}
    fleet, commands = play(fleet, register(50.0, sequence=1, **away))
    assert refused(commands).code == "ALREADY_EXISTS"
    assert fleet.instances["r"] == before
    fleet, _ = play(fleet, register(50.0, sequence=10, **away))
    assert fleet.instances["r"].grpc == "127.0.0.1:9"


@pytest.mark.parametrize(("key", "text"), [("model", "no model x"), ("version", "no version x")])
def test_what_the_config_does_not_know_cannot_register(key: str, text: str) -> None:
    fleet, commands = play(begun(), register(1.0, **{key: "x"}))
    assert refused(commands).code == "NOT_FOUND"
    assert text in refused(commands).refusal
    assert "r" not in fleet.instances
    fleet, commands = play(registered(), register(2.0, incarnation="r2", **{key: "x"}))
    assert refused(commands).code == "NOT_FOUND"
    assert fleet.instances["r"].incarnation == "r1"


def test_a_registration_that_comes_after_its_instance_has_ended_leaves_nothing_behind() -> None:
    """It stood in the fleet as lost, until an operator removed it."""
    fleet, commands = play(begun(), register(1.0, state=State.STOPPED))
    assert only(Answer, commands)[0].value == RegisterAnswer("", 30.0, 10.0)
    assert "r" not in fleet.instances


def test_a_flood_of_names_ends_at_the_cap_and_those_that_are_known_may_still_register() -> None:
    fleet = registered()
    one = fleet.instances["r"]
    many = {f"r{i}": replace(one, name=f"r{i}") for i in range(INSTANCES_MAX)}
    fleet = replace(fleet, instances={"r": one} | dict(list(many.items())[1:]))
    fleet, commands = play(fleet, register(2.0, instance_id="s"), keep=False)
    assert refused(commands).code == "RESOURCE_EXHAUSTED"
    assert len(fleet.instances) == INSTANCES_MAX
    _, commands = play(fleet, register(2.0), keep=False)
    assert only(Answer, commands)[0].value == RegisterAnswer("", 30.0, 10.0)


def beat(fleet: FleetSnapshot, now: float, **fields: object) -> tuple[FleetSnapshot, str]:
    fleet, commands = play(fleet, Beaten(6, status("r", **fields), 0, 0, now))  # type: ignore[arg-type]
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, BeatAnswer)
    return fleet, answer.value.order


def test_a_beat_of_an_unknown_id_or_incarnation_is_told_to_register() -> None:
    assert beat(begun(), 1.0)[1] == "REGISTER"
    assert beat(registered(), 2.0, incarnation="r9")[1] == "REGISTER"
    assert beat(registered(), 2.0)[1] == "NONE"


def test_a_frozen_instance_is_lost_after_its_ttl_and_rejoins_as_itself() -> None:
    fleet = registered()
    assert "r" in targets(fleet)
    expires = fleet.instances["r"].expires_at
    fleet, _ = play(fleet, Ticked(expires - 0.1))
    assert fleet.instances["r"].opinion.health is Health.GOOD
    fleet, _ = play(fleet, Ticked(expires))
    assert fleet.instances["r"].opinion.health is Health.LOST
    assert "r" not in targets(fleet)
    fleet, _ = beat(fleet, expires + 1)
    assert "r" not in targets(fleet)  # its word alone does not prove that we can reach it
    fleet, _ = play(fleet, answered("r", expires + 2), answered("r", expires + 3))
    assert "r" in targets(fleet)
    assert fleet.instances["r"].incarnation == "r1"


def test_a_farewell_takes_it_off_at_once_and_the_name_is_free() -> None:
    fleet, commands = play(registered(), Deregistered("r", "r1", "stopped", 2.0))
    assert "r" not in targets(fleet)
    assert fleet.instances["r"].state is State.STOPPED
    assert only(Unfollow, commands) == [Unfollow("r")]
    away = register(3.0, incarnation="r2", grpc="127.0.0.1:9")
    fleet, _ = play(fleet, away)
    assert fleet.instances["r"].incarnation == "r2"


def test_the_name_of_one_that_went_in_error_is_free_too() -> None:
    """It is shown in ERROR, with its reason, until the next one comes."""
    failed = answered("r", 1.8, state=State.ERROR, reason="the device is gone")
    fleet, _ = play(registered(), failed, Deregistered("r", "r1", "stopped", 2.0))
    assert fleet.instances["r"].state is State.ERROR
    fleet, _ = play(fleet, register(3.0, incarnation="r2", grpc="127.0.0.1:9"))
    assert fleet.instances["r"].incarnation == "r2"


def test_a_farewell_of_an_old_incarnation_changes_nothing() -> None:
    fleet, _ = play(registered(), Deregistered("r", "r0", "stopped", 2.0))
    assert "r" in targets(fleet)


def test_the_same_address_twice_is_one_instance() -> None:
    fleet = registered()
    fleet, _ = play(fleet, register(2.0), register(3.0), answered("r", 3.5))
    again = register(4.0, incarnation="r2")
    fleet, _ = play(fleet, again)
    assert [name for name in fleet.instances if name == "r"] == ["r"]
    assert fleet.instances["r"].incarnation == "r2"
    assert targets(fleet).count("r") == 0  # polled first


OTHER = STATICS.replace('"1" = 100', '"1" = 100, "2" = 100')


def test_the_same_incarnation_under_another_version_counts_and_is_judged_anew() -> None:
    fleet, _ = play(begun(OTHER), register(), answered("r"))
    old = fleet.instances["r"]
    fleet, _ = play(fleet, register(2.0, version="2", sequence=2))
    assert targets(fleet) == []  # polled first
    fleet, _ = play(fleet, answered("r", 3.0, version="2", sequence=2))
    new = fleet.instances["r"]
    assert new.slot != old.slot
    holder = fleet.book.holders[new.slot]
    assert (holder.version, holder.incarnation) == ("2", old.incarnation)
    assert fleet.book.holders[old.slot].left_at == 2.0
    assert (old.ready_since, new.ready_since) == (1.0, 2.0)
    assert targets(fleet) == ["r"]


def test_an_old_word_of_another_version_moves_nothing() -> None:
    fleet, _ = play(begun(OTHER), register(sequence=5), answered("r", sequence=5))
    before = fleet.instances["r"]
    fleet, _ = play(fleet, register(2.0, version="2", sequence=4))
    assert fleet.instances["r"] == before


def test_the_first_labels_again_count_in_a_third_slot_while_the_first_is_not_folded() -> None:
    fleet, _ = play(begun(OTHER), register(), answered("r"))
    first = fleet.instances["r"].slot
    for sequence, version in ((2, "2"), (3, "1")):
        again = register(float(sequence), version=version, sequence=sequence)
        fleet, _ = play(fleet, again)
    slots = {slot: one.version for slot, one in fleet.book.holders.items()}
    assert slots == {first: "1", first + 1: "2", first + 2: "1"}
    assert fleet.instances["r"].slot == first + 2


def test_the_next_tick_is_that_of_the_first_registration_to_run_out() -> None:
    _, commands = play(begun(), register(7.0))
    assert WakeAt(37.0) in commands


def test_a_drain_with_stop_ends_with_its_incarnation_and_one_without_stays_with_the_name() -> None:
    for stop, intent in ((True, Intent.ACTIVE), (False, Intent.DRAIN)):
        ask = DrainInstance("r", 5.0, stop, force=True)
        fleet, _ = play(registered(), Asked(1, ask, False, None, 2.0))
        fleet, _ = play(fleet, SlotSent(0, 1, 2.1), SlotEmptied(0, 1, 2.1))
        fleet, _ = play(fleet, answered("r", 2.2, state=State.DRAINING, sequence=2))
        fleet, _ = play(fleet, Deregistered("r", "r1", "stopped", 3.0))
        assert fleet.drains["r"].ended is not None
        fleet, _ = play(fleet, register(4.0, incarnation="r2"))
        assert fleet.instances["r"].intent is intent


def test_a_stream_of_the_life_before_ends_on_its_own_counters() -> None:
    """Where a release went to a name and not to what was acquired, counts have gone below zero."""
    fd = create(LAYOUT)
    segment, ledger = Segment(fd), Ledger(Segment(fd), 0)
    fleet = registered()
    old = fleet.instances["r"].slot
    ledger.reread()
    stream = ledger.open(old, 1, 1, b"", 0)
    fleet, _ = play(fleet, Deregistered("r", "r1", "restarts", 2.0))
    fleet, _ = play(fleet, register(3.0, incarnation="r2"), answered("r", 3.5, incarnation="r2"))
    new = fleet.instances["r"].slot
    ledger.reread()
    request = ledger.open(new, 2, 1, b"", 0)
    assert (segment.in_flight(old), segment.in_flight(new)) == (1, 1)
    ledger.settle(stream, Outcome.SERVED, 0, 0)
    assert (segment.in_flight(old), segment.in_flight(new)) == (0, 1)
    ledger.settle(request, Outcome.SERVED, 0, 0)
    assert (segment.in_flight(old), segment.in_flight(new)) == (0, 0)
    os.close(fd)


def test_a_weight_that_an_instance_changed_itself_brings_no_older_one_back() -> None:
    """An operator's weight stands above the one it was registered with, and ends with that."""
    fleet = registered()
    fleet, _ = play(fleet, Asked(1, SetInstanceWeight("r", 0.0), False, None, 2.0))
    assert fleet.weight_of(fleet.instances["r"]) == 0.0
    fleet, _ = play(fleet, replace(register(3.0, sequence=3), weight=2.0))
    assert fleet.weight_of(fleet.instances["r"]) == 2.0
    assert fleet.instance_overrides == {}
    fleet, _ = play(fleet, replace(register(4.0, sequence=4), weight=1.0))
    assert fleet.weight_of(fleet.instances["r"]) == 1.0


def test_a_refusal_is_told_once_in_a_while_however_often_it_is_tried() -> None:
    fleet, told = begun(), 0
    for second in range(90):
        fleet, commands = play(fleet, register(1.0 + second, version="9"))
        (answer,) = only(Answer, commands)
        assert isinstance(answer.value, RegisterAnswer)
        assert answer.value.code == "NOT_FOUND"
        told += len(texts(commands))
    assert told == 2  # at once, and after a minute
    fleet, commands = play(fleet, register(91.0, model="q"))
    assert len(texts(commands)) == 1  # another reason is news


def test_a_flood_of_refusals_does_not_push_out_what_else_was_told() -> None:
    fleet, told = begun(), 0
    for number in range(500):
        refused_one = status(f"r{number}", version="9")
        fleet, commands = play(fleet, Registered(5, refused_one, "", 0.0, 0, 1.0))
        told += len(texts(commands))
    assert told == len(fleet.warned) == 100


def test_what_an_instance_says_again_and_again_is_told_once_in_a_while() -> None:
    """A stream may bring thousands a second: none of them is news after the first."""
    fleet, told = both_ready(), 0
    for _ in range(50):
        back = observed("a", State.INITIALIZING, now=2.0, source=Source.WATCH)
        fleet, commands = play(fleet, back)
        told += len(texts(commands))
    assert told == 1
