import pytest

from gateway.control import SetWeights
from gateway.fleet.commands import FoldSlot, Record, Tell, WakeAt, Write
from gateway.fleet.decide import decide
from gateway.fleet.durable import GENERATIONS
from gateway.fleet.events import (
    Asked,
    CallFailed,
    ChildrenSeen,
    EffectFailed,
    Event,
    FactKept,
    IntentKept,
    SlotFolded,
    SlotKept,
    Ticked,
    WorkerAcked,
    WorkerLinked,
    WriteFailed,
)
from gateway.fleet.slots import QUIET_S
from gateway.messages import Publish
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    begun,
    both_ready,
    fresh,
    observed,
    only,
    play,
    targets,
    texts,
)


def test_the_same_events_give_the_same_history() -> None:
    events: list[Event] = [
        ChildrenSeen({"worker0.0": 77}, 1, frozenset(), 0.0),
        WorkerLinked(0, 0, 77, 0, 0.0),
        observed("a"),
        observed("b", State.INITIALIZING),
        Asked(1, SetWeights("m", {"1": 5.0}), False, None, 3.0),
        Ticked(40.0),
    ]
    assert play(fresh(), *events) == play(fresh(), *events)


def test_a_decision_leaves_the_snapshot_it_was_given_alone() -> None:
    before = begun()
    instances = dict(before.instances)
    decide(before, observed("a"))
    assert before.instances == instances
    assert targets(before) == []


def test_what_moves_while_no_worker_can_take_a_table_is_one_change() -> None:
    fleet = begun()
    generation = fleet.generation
    fleet, _ = play(fleet, observed("a"), keep=False)
    fleet, _ = play(fleet, SlotKept(fleet.instances["a"].slot, 1.0), keep=False)
    assert fleet.generation == generation + 1
    for second in range(2, 8):
        state = State.READY if second % 2 else State.DRAINING
        fleet, _ = play(fleet, observed("a", state, now=float(second), sequence=second), keep=False)
    assert fleet.generation == generation + 1
    assert fleet.unpublished
    fleet, commands = play(fleet, WorkerAcked(0, generation + 1, 9.0), keep=False)
    assert not fleet.unpublished
    assert [one for one in only(Tell, commands) if isinstance(one.message, Publish)] == []


def test_the_reserve_of_generations_is_kept_ahead() -> None:
    fleet, commands = play(begun(), observed("a"))
    assert fleet.ceiling >= fleet.generation + GENERATIONS // 2
    writes = [change for one in only(Write, commands) for change in one.changes]
    assert all(change.key != "generation" for change in writes)


def test_an_old_slot_is_folded_once_it_is_quiet_and_then_free() -> None:
    fleet = both_ready()
    old = fleet.instances["a"].slot
    fleet, commands = play(fleet, observed("a", now=9.0, incarnation="a2"))
    fleet, commands = play(fleet, Ticked(9.0 + QUIET_S))
    assert only(FoldSlot, commands) == [FoldSlot(old, "m", "1")]
    fleet, _ = play(fleet, SlotFolded(old, 20.0))
    assert old not in fleet.book.holders


def test_a_failed_write_of_intent_leaves_everything_as_it_was() -> None:
    before = both_ready()
    event = Asked(1, SetWeights("m", {"1": 5.0}), False, None, 3.0)
    fleet, _ = play(before, event, keep=False)
    fleet, _ = play(fleet, WriteFailed(IntentKept(1, 3.0), "disk full", 3.1))
    assert (fleet.overrides, fleet.revision, fleet.asks) == ({}, 0, ())


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (CallFailed("a", "Drain", "refused", 1.0), "Drain of a failed: refused"),
        (EffectFailed("Write", "boom", 1.0), "Write broke: boom"),
        (WriteFailed(FactKept(1.0), "disk full", 1.0), "disk full"),
    ],
    ids=["call", "effect", "write"],
)
def test_trouble_is_told(event: Event, text: str) -> None:
    _, commands = play(both_ready(), event)
    assert texts(commands) == [text]
    assert only(Record, commands)[0].warn


def test_a_tick_is_asked_for_only_when_the_next_one_moved() -> None:
    _, commands = play(both_ready(), observed("a", now=5.0, sequence=3))
    assert only(WakeAt, commands) == []
