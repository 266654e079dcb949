from dataclasses import replace

from gateway.fleet.commands import (
    Count,
    FreeRow,
    Record,
    SettleRow,
    StartWorker,
    Supervise,
    Tell,
    WakeAt,
    Write,
)
from gateway.fleet.events import (
    BeatsWentStale,
    ChildExited,
    ChildrenSeen,
    ChildStarted,
    RowSettled,
    Source,
    Ticked,
    WorkerAcked,
    WorkerLinked,
    WorkerUnlinked,
)
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.workers import RETRY_S, START_MAX_S, deadlines, name_of
from gateway.messages import Accept, Kill, Leave, LostRequest, Publish, Serving
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import both_ready, fresh, observed, only, play, texts


def two() -> FleetSnapshot:
    """Two workers that serve a table."""
    fleet, _ = play(
        fresh(),
        ChildrenSeen({}, 2, frozenset(), 0.0),
        WorkerLinked(0, 0, 70, 0, 1.0),
        WorkerLinked(1, 1, 71, 0, 1.0),
    )
    return fleet


def test_what_a_worker_says_of_its_data_plane_is_kept() -> None:
    fleet, _ = play(two(), WorkerLinked(1, 1, 71, 0, 2.0, True))
    assert [fleet.workers[row].compiled for row in (0, 1)] == [False, True]
    fleet, _ = play(fleet, WorkerAcked(1, fleet.generation, 3.0))
    assert fleet.workers[1].compiled


def test_names_of_children() -> None:
    assert name_of("worker3.12") == (3, 12)
    assert name_of("instance.m-1-0") is None
    assert name_of("control") is None


def test_every_index_gets_a_worker_and_those_that_run_are_taken_over() -> None:
    _, commands = play(fresh(), ChildrenSeen({"worker1.3": 71}, 2, frozenset(), 0.0))
    assert only(StartWorker, commands) == [StartWorker(0, 0, 2)]


def test_rows_without_a_process_are_settled_before_they_are_given_out() -> None:
    fleet, commands = play(fresh(), ChildrenSeen({}, 1, frozenset({0, 1, 2, 3}), 0.0))
    assert only(SettleRow, commands) == [SettleRow(row) for row in range(4)]
    assert only(StartWorker, commands) == []
    _, commands = play(fleet, RowSettled(2, (), 0.1))
    assert only(StartWorker, commands) == [StartWorker(0, 2, 1)]


def test_serving_is_said_once_when_every_index_serves_a_table() -> None:
    fleet, commands = play(
        fresh(), ChildrenSeen({}, 2, frozenset(), 0.0), WorkerLinked(0, 0, 70, 0, 1.0)
    )
    assert not fleet.serving
    fleet, commands = play(fleet, WorkerLinked(1, 1, 71, 0, 1.0), observed("a"))
    assert only(Supervise, commands) == [Supervise(Serving())]
    assert fleet.serving


def test_a_worker_gets_the_next_table_only_after_its_last_was_acknowledged() -> None:
    fleet = two()
    fleet, commands = play(fleet, observed("a"), keep=False)
    fleet, more = play(fleet, *[one.then for one in only(Write, commands)], keep=False)
    sent = [one for one in only(Tell, more) if isinstance(one.message, Publish)]
    assert [one.row for one in sent] == [0, 1]
    generation = fleet.generation
    off = observed("a", State.DRAINING, now=3.0, source=Source.WATCH, sequence=2)
    fleet, commands = play(fleet, off, keep=False)
    assert [one for one in only(Tell, commands) if isinstance(one.message, Publish)] == []
    fleet, commands = play(fleet, WorkerAcked(0, generation, 3.1), keep=False)
    sent = [one for one in only(Tell, commands) if isinstance(one.message, Publish)]
    assert [one.row for one in sent] == [0]
    assert fleet.served() == generation - 1


def test_a_worker_that_does_not_acknowledge_is_killed_after_worker_stuck_s() -> None:
    fleet = two()
    fleet, commands = play(fleet, observed("a", now=2.0), keep=False)
    fleet, _ = play(fleet, *[one.then for one in only(Write, commands)], keep=False)
    fleet, _ = play(fleet, WorkerAcked(0, fleet.generation, 2.1), keep=False)
    due = fleet.workers[1].due_at
    assert due == 2.0 + 5.0
    fleet, commands = play(fleet, Ticked(due), keep=False)
    assert only(Supervise, commands) == [Supervise(Kill("worker1.1", 9))]
    fleet, _ = play(fleet, observed("b", now=due + 1), keep=False)
    _, commands = play(fleet, Ticked(due + 100), keep=False)
    assert Supervise(Kill("worker1.1", 9)) not in commands  # it is told once


def test_a_worker_whose_link_broke_has_time_to_come_back_with_its_table() -> None:
    fleet = two()
    fleet, _ = play(fleet, WorkerUnlinked(1, 71, 9.0))
    assert fleet.workers[1].due_at == 14.0
    fleet, _ = play(fleet, WorkerLinked(1, 1, 71, fleet.generation, 10.0))
    assert fleet.workers[1].due_at is None


def test_one_that_is_never_heard_of_is_killed() -> None:
    fleet, _ = play(fresh(), ChildrenSeen({}, 1, frozenset(), 0.0))
    _, commands = play(fleet, Ticked(START_MAX_S))
    assert only(Supervise, commands) == [Supervise(Kill("worker0.0", 9))]


def test_a_dead_worker_is_settled_by_name_and_replaced_on_its_row() -> None:
    fleet, _ = play(two(), observed("a"))
    fleet, commands = play(fleet, ChildExited("worker1.1", 71, -9, 60.0))
    assert only(SettleRow, commands) == [SettleRow(1)]
    assert only(StartWorker, commands) == []
    lost = LostRequest(255, "mine", fleet.instances["a"].slot, "streaming", 2.0, 10)
    fleet, commands = play(fleet, RowSettled(1, (lost,), 60.1))
    assert only(StartWorker, commands) == [StartWorker(1, 1, 2)]
    assert texts(commands) == ["request 00000000000000ff lost on a: worker died"]
    assert only(Count, commands) == [Count("lost", "worker_died")]


def test_a_request_that_died_before_it_had_an_instance_is_named_as_that() -> None:
    fleet, _ = play(two(), ChildExited("worker1.1", 71, -9, 60.0))
    lost = LostRequest(255, "mine", -1, "unplaced", 2.0, 0)
    _, commands = play(fleet, RowSettled(1, (lost,), 60.1))
    said = "request 00000000000000ff lost before it had an instance: worker died"
    assert texts(commands) == [said]


def test_one_that_died_young_is_replaced_a_second_later() -> None:
    fleet, _ = play(two(), ChildExited("worker1.1", 71, 1, 1.5))
    fleet, commands = play(fleet, RowSettled(1, (), 1.6))
    assert only(StartWorker, commands) == []
    _, commands = play(fleet, Ticked(1.5 + RETRY_S))
    assert only(StartWorker, commands) == [StartWorker(1, 1, 2)]


def test_a_neighbour_accepts_for_a_dead_or_paused_worker_until_it_is_back() -> None:
    fleet, commands = play(two(), BeatsWentStale(frozenset({1}), 9.0))
    assert only(Tell, commands) == [Tell(0, Accept(1))]
    fleet, commands = play(fleet, BeatsWentStale(frozenset(), 10.0))
    assert only(Tell, commands) == [Tell(0, Leave(1))]
    fleet, commands = play(fleet, ChildExited("worker1.1", 71, -9, 60.0))
    assert only(Tell, commands) == [Tell(0, Accept(1))]
    fleet, _ = play(fleet, RowSettled(1, (), 60.1))
    fleet, commands = play(fleet, WorkerLinked(1, 1, 72, 0, 61.0))
    assert Tell(0, Leave(1)) in commands


def test_a_fresh_worker_owes_nothing_until_it_has_said_hello() -> None:
    fleet = both_ready()
    served = fleet.served()
    fleet, _ = play(fleet, ChildExited("worker0.0", 77, -9, 60.0), RowSettled(0, (), 60.0))
    assert fleet.holding() == {}
    assert fleet.served() == fleet.generation == served


def test_a_worker_whose_beat_stays_away_is_killed_and_replaced_though_no_table_changes() -> None:
    fleet = both_ready()  # its only worker
    fleet, _ = play(fleet, BeatsWentStale(frozenset({0}), 9.0))
    assert (fleet.workers[0].due_at, fleet.armed) == (14.0, 14.0)
    fleet, commands = play(fleet, Ticked(14.0))
    assert only(Supervise, commands) == [Supervise(Kill("worker0.0", 9))]
    fleet, commands = play(fleet, BeatsWentStale(frozenset({0}), 14.1), Ticked(99.0))
    assert only(Supervise, commands) == []  # once
    lost = LostRequest(255, "", fleet.instances["a"].slot, "streaming", 2.0, 10)
    fleet, commands = play(
        fleet, ChildExited("worker0.0", 77, -9, 99.1), RowSettled(0, (lost,), 99.2)
    )
    assert only(StartWorker, commands) == [StartWorker(0, 0, 1)]
    assert "request 00000000000000ff lost on a: worker died" in texts(commands)
    assert fleet.stale == frozenset()


def test_a_silence_that_is_known_is_not_given_more_time() -> None:
    fleet, _ = play(two(), BeatsWentStale(frozenset({1}), 9.0))
    fleet, _ = play(fleet, BeatsWentStale(frozenset({0, 1}), 12.0))
    assert fleet.workers[1].due_at == 14.0
    fleet, _ = play(fleet, WorkerLinked(1, 1, 71, fleet.generation, 13.0))
    assert fleet.workers[1].due_at == 18.0  # it has connected anew, and still owes its beat


def test_a_beat_that_is_back_spares_the_worker_unless_it_owes_an_acknowledgement() -> None:
    fleet, _ = play(both_ready(), BeatsWentStale(frozenset({0}), 9.0))
    assert not fleet.beats()
    back, _ = play(fleet, BeatsWentStale(frozenset(), 10.0))
    assert (back.workers[0].due_at, back.beats()) == (None, True)
    off = observed("a", State.DRAINING, now=10.0, source=Source.WATCH, sequence=2)
    owing, _ = play(fleet, off, BeatsWentStale(frozenset(), 11.0), keep=False)
    assert owing.workers[0].due_at == 14.0


def test_a_row_is_freed_behind_the_names_of_what_it_held_and_before_its_next_worker() -> None:
    """A control that died between the two had settled the row, and nobody knew the names."""
    fleet, _ = play(two(), observed("a"), ChildExited("worker1.1", 71, -9, 60.0))
    lost = LostRequest(255, "mine", fleet.instances["a"].slot, "streaming", 2.0, 10)
    _, commands = play(fleet, RowSettled(1, (lost,), 60.1))
    kinds = [one for one in commands if isinstance(one, Record | FreeRow | StartWorker)]
    assert [type(one) for one in kinds] == [Record, FreeRow, StartWorker]


def test_the_hello_of_a_worker_whose_exit_was_heard_first_brings_nobody_back() -> None:
    """It would owe acknowledgements for ever: no drain, and no end of the gateway, got past it."""
    fleet, _ = play(two(), ChildExited("worker1.1", 71, -9, 60.0))
    fleet, _ = play(fleet, WorkerLinked(1, 1, 71, 1, 60.1))
    assert 1 not in fleet.workers
    fleet, _ = play(fleet, RowSettled(1, (), 60.2), ChildStarted("worker1.1", 72, 60.3))
    fleet, _ = play(fleet, WorkerLinked(1, 1, 71, 1, 60.4))
    assert not fleet.workers[1].linked
    fleet, _ = play(fleet, WorkerLinked(1, 1, 72, 0, 60.5))
    assert fleet.workers[1].linked


def test_a_worker_that_was_killed_asks_for_no_tick_in_the_past() -> None:
    """Its exit was late, and control woke itself up again and again until it came."""
    fleet, _ = play(fresh(), ChildrenSeen({}, 1, frozenset(), 0.0))
    fleet, commands = play(fleet, Ticked(START_MAX_S))
    assert fleet.workers[0].killed
    assert all(one.when > START_MAX_S for one in only(WakeAt, commands))
    assert deadlines(replace(fleet, workers={0: replace(fleet.workers[0], due_at=1.0)})) == []
