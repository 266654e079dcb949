"""Whose word counts of an instance that has registered."""

from dataclasses import replace

import pytest

from gateway.config import parse
from gateway.fleet.commands import (
    Answer,
    BeatAnswer,
    Confirm,
    Count,
    PollNow,
    RegisterAnswer,
    Write,
)
from gateway.fleet.events import (
    Beaten,
    Deregistered,
    Registered,
    SettingsRead,
)
from gateway.fleet.registry import Origin, hashed
from gateway.fleet.snapshot import FleetSnapshot
from gateway.store.base import Put
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    GRPC,
    STATICS,
    begun,
    both_ready,
    fresh,
    only,
    play,
    status,
    targets,
    texts,
)
from tests.gateway.fleet.registering import answered, refused, register, registered

MINE, GUESS = hashed("mine"), hashed("guess")


def guarded() -> FleetSnapshot:
    """r is routed, and has registered with a secret."""
    fleet, _ = play(begun(), replace(register(), lease=MINE), answered("r"))
    assert targets(fleet) == ["r"]
    return fleet


@pytest.mark.parametrize("lease", [GUESS, ""], ids=["another", "none"])
def test_who_does_not_know_the_secret_cannot_beat_or_say_farewell_or_register_for_it(
    lease: str,
) -> None:
    """An incarnation, an id and an address are shown by the admin API to whoever asks."""
    before = guarded()
    forged = status("r", State.DRAINING, sequence=1 << 60)
    fleet, commands = play(before, Beaten(6, forged, 0, 0, 2.0, lease))
    assert only(Answer, commands) == [Answer(6, BeatAnswer("REGISTER", 0.0, 10.0))]
    assert only(Count, commands) == [Count("heartbeats", "unknown")]
    assert fleet.instances == before.instances
    fleet, commands = play(before, Deregistered("r", "r1", "gone", 2.0, lease))
    assert texts(commands) == ["farewell refused: r has registered with another lease_token"]
    assert fleet.instances == before.instances
    fleet, commands = play(before, Registered(5, forged, "", 0.0, 0, 2.0, lease))
    assert refused(commands).code == "ALREADY_EXISTS"
    assert fleet.instances == before.instances


def test_who_knows_the_secret_speaks_for_it_also_when_an_answer_was_lost() -> None:
    again = replace(register(2.0, sequence=2), lease=MINE)
    fleet, commands = play(guarded(), again)
    assert only(Answer, commands) == [Answer(5, RegisterAnswer("", 30.0, 10.0))]
    fleet, _ = play(fleet, Beaten(6, status("r", sequence=3, active_requests=4), 0, 0, 3.0, MINE))
    assert fleet.instances["r"].active_requests == 4
    fleet, _ = play(fleet, Deregistered("r", "r1", "gone", 4.0, MINE))
    assert targets(fleet) == []


def test_the_secret_is_kept_for_the_next_control_as_a_hash() -> None:
    fleet, commands = play(begun(), replace(register(), lease=MINE))
    changes = [change for one in only(Write, commands) for change in one.changes]
    put = [one for one in changes if isinstance(one, Put) and one.kind == "instances"][-1]
    again = fresh(documents={"instances": {"r": put.document}})
    assert again.instances["r"].lease == fleet.instances["r"].lease == MINE
    del put.document["lease"]  # of before there were any
    assert fresh(documents={"instances": {"r": put.document}}).instances["r"].lease == ""


def test_a_restart_in_place_is_asked_at_its_address_before_it_is_believed() -> None:
    before = guarded()
    claim = register(2.0, incarnation="r2")
    fleet, commands = play(before, claim, keep=False)
    assert only(Confirm, commands) == [Confirm(claim)]
    assert only(Answer, commands) == []
    assert fleet.instances == before.instances
    fleet, commands = play(fleet, replace(claim, doubt="r is not found there"), keep=False)
    assert refused(commands).code == "UNAVAILABLE"
    assert fleet.instances == before.instances
    fleet, commands = play(fleet, replace(claim, asked=True), answered("r", 2.5, incarnation="r2"))
    assert only(Answer, commands) == [Answer(5, RegisterAnswer("", 30.0, 10.0))]
    assert fleet.instances["r"].incarnation == "r2"
    assert targets(fleet) == ["r"]


def test_a_static_instance_is_asked_and_never_believed_by_this_road() -> None:
    before = both_ready()
    forged = status("a", State.DRAINING, sequence=1 << 60, grpc=GRPC["a"])
    said = Registered(5, forged, "", 0.0, 0, 2.0)
    for event in (
        said,
        replace(said, status=replace(forged, incarnation="a2")),
        Beaten(6, forged, 0, 0, 2.0),
        Deregistered("a", "a1", "gone", 2.0),
    ):
        fleet, commands = play(before, event)
        assert fleet.instances == before.instances
        assert only(PollNow, commands) == [PollNow("a")]
    fleet, commands = play(before, Beaten(6, status("a", grpc=GRPC["a"]), 0, 0, 2.0))
    assert only(PollNow, commands) == []  # no news, and polls come anyway
    assert only(Count, commands) == [Count("heartbeats", "accepted")]


def test_a_registration_takes_no_static_name_and_a_reload_takes_no_registered_one() -> None:
    elsewhere = replace(register(2.0), status=status("a", grpc="127.0.0.1:9"))
    fleet, commands = play(both_ready(), elsewhere)
    assert refused(commands).code == "ALREADY_EXISTS"
    assert fleet.instances["a"].origin is Origin.CONFIG
    row = STATICS.replace('id = "b"', 'id = "r"')
    read = SettingsRead(0, "test", False, None, row, parse(row), (), 3.0)
    fleet, commands = play(registered(), read)
    assert any("r of config.toml is taken" in text for text in texts(commands))
    assert fleet.instances["r"].origin is Origin.REGISTERED
    assert targets(fleet) == ["r"]


def test_a_farewell_is_the_last_word_of_its_incarnation() -> None:
    fleet, _ = play(guarded(), Deregistered("r", "r1", "stopped", 2.0, MINE))
    fleet, commands = play(fleet, replace(register(3.0, sequence=9), lease=MINE))
    assert refused(commands).code == "ALREADY_EXISTS"
    _, commands = play(fleet, Beaten(6, status("r", sequence=9), 0, 0, 3.0, MINE))
    assert only(Answer, commands)[0].value == BeatAnswer("REGISTER", 0.0, 10.0)
