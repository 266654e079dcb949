from dataclasses import replace

import pytest

from gateway.config import parse
from gateway.control import (
    AddInstance,
    DrainInstance,
    SetInstanceWeight,
    SetWeights,
    UndrainInstance,
)
from gateway.fleet.commands import CallResume
from gateway.fleet.drain import RETIRED, Drain, Lost, Phase
from gateway.fleet.durable import GENERATIONS, drain_change, load_change
from gateway.fleet.events import Asked, ChildrenSeen, PollFailed, WorkerLinked
from gateway.fleet.restore import Life
from gateway.fleet.restore import restore as read_back
from gateway.fleet.slots import NO_SLOT
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import LostRequest
from gateway.records import Intent
from gateway.store.base import Documents
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    GRPC,
    LAYOUT,
    STATICS,
    fresh,
    kept,
    observed,
    only,
    play,
    targets,
    texts,
)


def lived(*asks: object) -> tuple[FleetSnapshot, Documents]:
    """A control plane that has served `a` and `b` and heard the asks, and its store."""
    events = [Asked(i, ask, False, None, 10.0) for i, ask in enumerate(asks, 1)]  # type: ignore[arg-type]
    fleet, commands = play(
        fresh(),
        ChildrenSeen({"worker0.0": 77}, 1, frozenset(), 0.0),
        WorkerLinked(0, 0, 77, 0, 0.0),
        observed("a"),
        observed("b"),
        *events,
    )
    return fleet, kept(commands)


def again(
    documents: Documents, now: float = 20.0, wall: float = 0.0, segment: int = 1
) -> FleetSnapshot:
    return read_back(parse(STATICS), documents, Life(LAYOUT, segment, 3, now, wall))


def started(documents: Documents, now: float = 20.0) -> FleetSnapshot:
    fleet, _ = play(
        again(documents, now),
        ChildrenSeen({"worker0.0": 77}, 1, frozenset(), now),
        WorkerLinked(0, 0, 77, 3, now),
    )
    return fleet


def test_intent_survives() -> None:
    before, documents = lived(
        SetWeights("m", {"1": 7.0}),
        SetInstanceWeight("b", 3.0),
        DrainInstance("a", 5.0, False, False),
        AddInstance("n", "m", "1", "127.0.0.1:1003", "127.0.0.1:2003"),
    )
    after = again(documents)
    assert after.weights("m") == before.weights("m")
    assert after.weight_of(after.instances["b"]) == 3.0
    assert after.instances["a"].intent is Intent.DRAIN
    assert after.instances["n"].grpc == "127.0.0.1:2003"
    assert after.revision == before.revision == 4
    assert after.book.sections == before.book.sections


def test_a_load_is_remembered_whatever_its_names_are_made_of() -> None:
    for model, version in (("m", "1"), ("m", "1:2"), ("m:1", "2")):
        change = load_change(model, version, 3.5)
        after = again({"history": {change.key: change.document}})
        assert after.load_s == {(model, version): 3.5}


def test_a_model_is_as_old_as_the_first_control_that_knew_it() -> None:
    """Clients are told when a model was created; a restart or a new segment creates none."""
    born = read_back(parse(STATICS), {}, Life(LAYOUT, 1, 3, 10.0, 1_700_000_000.5))
    before, commands = play(born, ChildrenSeen({}, 1, frozenset(), 10.0))
    assert before.created_s == {"m": 1_700_000_010}
    documents = kept(commands)
    for segment in (1, 2):
        later = read_back(parse(STATICS), documents, Life(LAYOUT, segment, 3, 20.0, 1_800_000_000))
        after, _ = play(
            later,
            ChildrenSeen({"worker0.0": 77}, 1, frozenset(), 20.0),
            WorkerLinked(0, 0, 77, 3, 20.0),
            observed("a"),
            observed("b"),
        )
        assert after.created_s == before.created_s
        assert after.table is not None
        assert after.table.routes[0].created_s == 1_700_000_010


GOOD = {
    "model": "m",
    "version": "1",
    "origin": "registered",
    "http": "127.0.0.1:1",
    "grpc": "127.0.0.1:2",
    "weight": 1.0,
    "limit": 0,
    "token": "",
    "incarnation": "n1",
    "superseded": [],
    "retired": False,
}


@pytest.mark.parametrize(
    ("kind", "key", "document"),
    [
        ("history", "load:m:1", {"seconds": 3.0}),
        ("counters", "revision", {}),
        ("weights", "m", {"1": {"weight": "heavy", "over": 1.0}}),
        ("drains", "b", {"stop": False}),
        ("slots", "seven", {"segment": 1, "ready_since": 0.0}),
        ("slots", "7", {}),
        ("instances", "n", {}),
        ("instances", "n", {**GOOD, "origin": "elsewhere"}),
        ("instances", "n", {**GOOD, "http": "127.0.0.1:abc"}),
        ("instances", "n", {**GOOD, "version": "1\r\nx: y"}),
        ("instances", "n", {**GOOD, "weight": float("inf")}),
        ("instances", "n n", GOOD),
    ],
)
def test_a_document_that_cannot_be_read_is_left_out_and_told_and_the_rest_stands(
    kind: str, key: str, document: dict[str, object]
) -> None:
    _, documents = lived()
    documents["instances"] = {"r": GOOD}
    documents.setdefault(kind, {})[key] = document
    fleet = again(documents)
    assert {"a", "b", "r"} == set(fleet.instances)
    (told,) = fleet.unread
    assert key in told
    _, commands = play(fleet, ChildrenSeen({}, 1, frozenset(), 20.0))
    assert told in texts(commands)


def test_generations_only_grow_over_a_crash() -> None:
    before, documents = lived()
    documents["counters"]["generation"] = {"value": before.generation + GENERATIONS}
    assert again(documents).generation >= before.generation
    assert again({}).generation == 3  # what a worker serves is a lower bound without a store


def test_slots_are_believed_of_their_own_segment_only() -> None:
    before, documents = lived()
    same = again(documents)
    assert same.instances["a"].slot == before.instances["a"].slot
    assert same.instances["a"].ready_since == 1.0
    assert same.awaited == {"a", "b"}
    other = again(documents, segment=2)
    assert other.book.holders == {}
    assert other.awaited == frozenset()


def test_nothing_is_published_until_each_formerly_routable_instance_answered_or_failed() -> None:
    _, documents = lived()
    fleet = started(documents)
    assert fleet.table is None
    fleet, _ = play(fleet, observed("a", now=21.0))
    assert fleet.table is None
    for second in (21.0, 22.0, 23.0):
        fleet, _ = play(fleet, PollFailed("b", GRPC["b"], "refused", False, 0, 0, second))
    assert targets(fleet) == ["a"]
    assert fleet.generation > 3


def test_a_running_drain_goes_on_with_the_smaller_of_the_two_times_it_has_left() -> None:
    _, documents = lived(DrainInstance("a", 30.0, False, False))
    assert documents["drains"]["a"]["remaining_s"] == 30.0
    later = again(documents, now=25.0).drains["a"]
    assert (later.deadline, later.phase) == (40.0, Phase.PUBLISHING)
    stepped = again(documents, now=25.0, wall=-1000.0).drains["a"]  # the clock went back
    assert stepped.deadline == 25.0 + 30.0
    ahead = again(documents, now=25.0, wall=1000.0).drains["a"]
    assert ahead.deadline == 25.0


def test_a_held_out_instance_is_held_out_after_a_restart_and_no_drain_runs_anew() -> None:
    _, documents = lived(DrainInstance("a", 30.0, False, False))
    documents["drains"]["a"]["ended"] = True
    fleet, _ = play(started(documents), observed("a", now=21.0), observed("b", now=21.0))
    assert fleet.drains["a"].phase is Phase.DONE
    assert targets(fleet) == ["b"]


def test_what_a_drain_lost_is_listed_after_a_restart_too_and_its_times_stand() -> None:
    lost = Lost(LostRequest(255, "mine", 0, "sending", 3.0, 7), "worker died", "a", "m", "1")
    drain = Drain("a", 0, 4, 10.0, 40.0, phase=Phase.CUT, ended=12.0, was_cut=True, lost=(lost,))
    change = drain_change(drain, 1000.0, 12.0)
    for segment in (1, 2):
        life = again({"drains": {"a": change.document}}, now=25.0, wall=1000.0, segment=segment)
        after = life.drains["a"]
        assert after == replace(drain, slot=after.slot, token=0)


def test_a_drain_of_an_older_document_is_read() -> None:
    """Lost requests, the end's time and an undrain were not kept once."""
    _, documents = lived(DrainInstance("a", 30.0, False, False))
    for key in ("lost", "ended_at", "undrained"):
        del documents["drains"]["a"][key]
    assert again(documents).drains["a"].phase is Phase.PUBLISHING
    documents["drains"]["a"]["ended"] = True
    assert again(documents, now=25.0).drains["a"].ended == 25.0


def test_an_instance_given_back_by_a_control_that_died_is_told_so_by_the_next() -> None:
    """The order to undrain was once forgotten with it: the instance drained for ever."""
    _, documents = lived(DrainInstance("a", 30.0, False, False), UndrainInstance("a"))
    fleet = started(documents)
    assert fleet.instances["a"].intent is Intent.ACTIVE
    fleet, commands = play(fleet, observed("a", State.DRAINING, now=21.0, sequence=5))
    assert [call.name for call in only(CallResume, commands)] == ["a"]
    later = started(documents, now=41.0)  # more than the grace after the undrain: somebody else's
    _, commands = play(later, observed("a", State.DRAINING, now=41.5, sequence=5))
    assert only(CallResume, commands) == []


def test_an_id_held_out_without_an_instance_stays_held_out() -> None:
    drain = Drain("x", NO_SLOT, 0, 10.0, 40.0, reason="asked", phase=Phase.DONE, ended=12.0)
    with_stop = replace(drain, name="y", stop=True, ended=12.0)
    retired = replace(drain, name="z", reason=RETIRED)
    documents = {
        "drains": {
            one.name: drain_change(one, 0.0, 12.0).document for one in (drain, retired, with_stop)
        }
    }
    fleet = again(documents)
    assert set(fleet.drains) == {"x", "y"}
    ask = AddInstance("x", "m", "1", "127.0.0.1:1003", "127.0.0.1:2003")
    fleet, _ = play(started(documents), Asked(1, ask, False, None, 21.0))
    assert fleet.instances["x"].intent is Intent.DRAIN
    ask = replace(ask, id="y")
    fleet, _ = play(fleet, Asked(1, ask, False, None, 22.0))
    assert fleet.instances["y"].intent is Intent.ACTIVE  # a stop was of the incarnation


def test_the_slot_of_an_incarnation_that_is_over_waits_to_be_folded() -> None:
    before, documents = lived()
    slot = before.instances["a"].slot
    documents["slots"][str(slot)]["instance"] = "gone"
    after = again(documents)
    assert after.book.holders[slot].left_at == 20.0
