import pytest

from gateway.config import parse
from gateway.control import DrainInstance, SetWeights
from gateway.fleet.commands import CallDrain, FoldSlot, Record, Tell, WakeAt, Write
from gateway.fleet.decide import decide
from gateway.fleet.drain import Phase
from gateway.fleet.durable import GENERATIONS
from gateway.fleet.events import (
    Asked,
    CallFailed,
    ChildrenSeen,
    EffectFailed,
    Event,
    FactKept,
    IntentKept,
    Observed,
    SlotFolded,
    SlotKept,
    Source,
    Ticked,
    WorkerAcked,
    WorkerLinked,
    WriteFailed,
)
from gateway.fleet.restore import Life, restore
from gateway.fleet.slots import QUIET_S
from gateway.fleet.snapshot import GROWTH_FREE, FleetSnapshot
from gateway.messages import Publish
from gateway.state.shared import Layout
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    STATICS,
    begun,
    both_ready,
    fresh,
    kept,
    observed,
    only,
    play,
    status,
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


# --- many instances ------------------------------------------------------------------------------


def crowd(count: int) -> FleetSnapshot:
    """A control plane with so many static instances, of which none has been seen."""
    rows = "".join(
        f'[[instance]]\nid = "i{k}"\nmodel = "m"\nversion = "1"\n'
        f'http = "127.0.0.1:{1000 + k}"\ngrpc = "127.0.0.1:{20_000 + k}"\n'
        for k in range(count)
    )
    text = f'[[model]]\nname = "m"\nweights = {{ "1" = 100 }}\n{rows}'
    layout = Layout(rows=4, slots=2 * count, sections=4, leases=8)
    fleet, _ = play(
        restore(parse(text), {}, Life(layout, 1, 0, 0.0, 0.0)),
        ChildrenSeen({"worker0.0": 77}, 1, frozenset(), 0.0),
        WorkerLinked(0, 0, 77, 0, 0.0),
    )
    return fleet


def reading(k: int, now: float, state: State = State.READY, sequence: int = 1) -> Observed:
    said = status(f"i{k}", state, incarnation="x", sequence=sequence)
    return Observed(f"i{k}", Source.POLL, f"127.0.0.1:{20_000 + k}", "", said, 0, 0, now)


def test_a_thousand_that_become_ready_within_a_second_are_a_dozen_tables_and_not_a_thousand() -> (
    None
):
    fleet = crowd(1000)
    before, wakes = fleet.generation, list[float]()
    for k in range(1000):
        now = 1.0 + k / 1000
        fleet, commands = play(fleet, *(Ticked(when) for when in wakes if when <= now))
        wakes = [when for when in wakes if when > now]
        fleet, more = play(fleet, reading(k, now))
        wakes = [one.when for one in only(WakeAt, [*commands, *more])] or wakes
        if k == 0:
            assert targets(fleet) == ["i0"]  # the first one has nothing to wait for
    fleet, _ = play(fleet, *(Ticked(when) for when in wakes))
    assert len(targets(fleet)) == 1000
    assert 5 <= fleet.generation - before <= 15


def test_the_table_that_waits_comes_with_a_tick_that_was_asked_for() -> None:
    fleet, commands = play(crowd(1000), reading(0, 2.0), reading(1, 2.0))
    assert targets(fleet) == ["i0"]
    assert only(WakeAt, commands)[-1] == WakeAt(fleet.due_at())
    fleet, _ = play(fleet, Ticked(fleet.due_at()))
    assert targets(fleet) == ["i0", "i1"]


def test_what_takes_an_instance_away_waits_for_no_other_table() -> None:
    fleet = crowd(1000)
    fleet, _ = play(fleet, reading(0, 1.0), reading(1, 2.0), reading(2, 2.0))
    assert targets(fleet) == ["i0", "i1"]
    fleet, _ = play(fleet, reading(0, 2.0, State.DRAINING, 2))
    assert targets(fleet) == ["i1", "i2"]


def test_a_change_by_an_operator_waits_for_no_other_table() -> None:
    fleet = crowd(1000)
    fleet, _ = play(fleet, reading(0, 2.0), reading(1, 2.0))
    assert targets(fleet) == ["i0"]
    generation = fleet.generation
    fleet, _ = play(fleet, Asked(1, SetWeights("m", {"1": 5.0}), False, None, 2.0))
    assert fleet.generation == generation + 1
    assert targets(fleet) == ["i0", "i1"]


def test_a_small_fleet_has_a_table_for_each_instance_that_comes() -> None:
    fleet = crowd(GROWTH_FREE)
    fleet, _ = play(fleet, reading(0, 1.0), reading(1, 1.0))
    assert targets(fleet) == ["i0", "i1"]


def test_what_comes_before_the_supervisor_has_said_what_runs_waits_for_that() -> None:
    """A drain that was going on took the one worker that had said hello for all there were, and
    cut, while another one served a table with the instance."""
    fleet, _ = play(begun(), observed("a"), observed("b"))
    ask = DrainInstance("a", 0.0, False, False)
    fleet, commands = play(fleet, Asked(1, ask, False, None, 2.0))
    documents = kept(commands)
    again, commands = play(fresh(STATICS, documents), WorkerLinked(1, 1, 78, 5, 3.0))
    assert commands == []
    assert again.drains["a"].phase is Phase.PUBLISHING
    running = {"worker0.0": 77, "worker1.1": 78}
    again, commands = play(again, ChildrenSeen(running, 2, frozenset({0, 1}), 3.1))
    assert again.workers[1].linked
    assert again.workers[0].pid == 77
    assert again.drains["a"].phase is Phase.PUBLISHING
    assert only(CallDrain, commands) == []
