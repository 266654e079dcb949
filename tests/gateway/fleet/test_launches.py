from dataclasses import replace

import pytest

from gateway.control import (
    Ask,
    Denied,
    DrainInstance,
    Receipt,
    StartInstance,
    StopInstance,
    UndrainInstance,
)
from gateway.fleet.commands import Answer, Command, Launch, RegisterAnswer, Supervise
from gateway.fleet.durable import drain_change
from gateway.fleet.events import (
    Asked,
    ChildExited,
    ChildrenSeen,
    ChildStarted,
    LaunchOrdered,
    LeasesCut,
    NeedsRead,
    Registered,
    StartFailed,
    Ticked,
    WorkerLinked,
)
from gateway.fleet.launches import desired, label, pairs
from gateway.fleet.registry import hashed
from gateway.fleet.snapshot import FleetSnapshot, Stage
from gateway.messages import Kill
from gateway.records import Health, Intent
from gateway.store.base import Documents
from sluicegate.v1.states import State
from tests.gateway.fleet.builders import (
    LAUNCHED,
    begun,
    fresh,
    kept,
    only,
    play,
    status,
    targets,
    texts,
)
from tests.gateway.fleet.launching import (
    A_CHILD,
    A,
    B,
    first_events,
    reading,
    running,
    started,
)


def test_ids_are_model_version_ordinal() -> None:
    fleet = fresh(LAUNCHED)
    assert list(desired(fleet)) == [A, B]
    assert pairs(fleet) == {("m", "1")}


def test_one_loads_and_the_other_waits_visibly_until_it_is_ready() -> None:
    fleet, commands = play(
        fresh(LAUNCHED), ChildrenSeen({}, 1, frozenset(), 0.0), WorkerLinked(0, 0, 7, 0, 0.0)
    )
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]
    assert f"{B} waits for d0: {A} is loading there" in texts(commands)
    assert fleet.launches[B].stage is Stage.QUEUED
    fleet, commands = play(fleet, *started(A, 1.0))
    assert only(Launch, commands) == []
    fleet, commands = play(fleet, reading(A, 1.0, 11.0))
    assert only(Launch, commands) == [Launch(B, "m", "1", "d0")]
    assert fleet.launches[A].stage is Stage.RUNNING


def test_an_instance_in_error_is_shown_and_loads_no_more() -> None:
    fleet, _ = play(begun(LAUNCHED), *started(A, 1.0))
    fleet, commands = play(fleet, reading(A, 1.0, 5.0, State.ERROR))
    assert only(Launch, commands) == [Launch(B, "m", "1", "d0")]
    assert fleet.instances[A].state is State.ERROR
    fleet, _ = play(fleet, ChildExited(A_CHILD, 9, 78, 35.0))
    assert fleet.instances[A].state is State.ERROR  # what it said is what people want to read
    assert fleet.launches[A].stage is Stage.FAILED


def test_memory_is_reserved_by_what_the_manifests_say() -> None:
    gb = 1 << 30
    fleet, _ = play(begun(LAUNCHED), NeedsRead({("m", "1"): 6 * gb}, 0.5))
    fleet, commands = play(fleet, *started(A, 1.0), reading(A, 1.0, 11.0))
    assert only(Launch, commands) == []
    assert "needs 6.0 GB, 4.0 GB of 10.0 GB are free" in fleet.launches[B].reason
    fleet, commands = play(fleet, ChildExited(A_CHILD, 9, -9, 20.0))
    assert only(Launch, commands) == [Launch(B, "m", "1", "d0")]


def test_a_dead_one_is_off_at_once_and_started_again_after_the_back_off() -> None:
    fleet, _ = play(running(), ChildExited(A_CHILD, 9, -9, 30.0))
    assert targets(fleet) == [B]
    assert fleet.instances[A].opinion.health is Health.LOST
    assert fleet.instances[A].state is State.STOPPED
    fleet, commands = play(fleet, Ticked(30.9))
    assert only(Launch, commands) == []
    fleet, commands = play(fleet, Ticked(31.0))
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]
    assert fleet.launches[A].restarts == 1


def test_a_crash_loop_is_shown_and_goes_on_being_tried() -> None:
    fleet, now = running(), 30.0
    for _ in range(6):
        fleet, _ = play(fleet, ChildExited(A_CHILD, 9, 1, now))
        now = fleet.launches[A].retry_at
        fleet, commands = play(fleet, Ticked(now))
        assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]
    fleet, _ = play(fleet, ChildExited(A_CHILD, 9, 1, now))
    assert fleet.launches[A].reason.startswith("crash loop: 7 deaths in a row")
    assert fleet.launches[A].stage is Stage.CRASH_LOOP


def test_exit_78_is_not_tried_again_until_somebody_asks() -> None:
    fleet, _ = play(running(), ChildExited(A_CHILD, 9, 78, 30.0))
    fleet, commands = play(fleet, Ticked(1e5))
    assert only(Launch, commands) == []
    fleet, commands = play(fleet, Asked(1, UndrainInstance(A), False, None, 1e5))
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]


def test_a_start_that_failed_is_a_death() -> None:
    fleet, _ = play(begun(LAUNCHED), StartFailed(A_CHILD, "no such file", 1.0))
    assert fleet.launches[A].stage is Stage.BACKING_OFF
    assert "no such file" in fleet.launches[A].reason


def test_one_that_never_gets_ready_is_stopped_then_killed() -> None:
    fleet, _ = play(begun(LAUNCHED), *started(A, 1.0))
    fleet, commands = play(fleet, Ticked(1800.0))
    assert only(Supervise, commands) == [Supervise(Kill(A_CHILD, 15))]
    fleet, commands = play(fleet, Ticked(1810.0))
    assert only(Supervise, commands) == [Supervise(Kill(A_CHILD, 9))]
    fleet, commands = play(fleet, Ticked(9999.0))
    assert only(Supervise, commands) == []
    fleet, _ = play(fleet, ChildExited(A_CHILD, 9, -9, 9999.0))
    assert fleet.launches[A].reason.startswith(
        "not READY after 1800 s, and stopped: signal 9 (SIGKILL)"
    )
    fleet, _ = play(fleet, Ticked(1e5), ChildExited(A_CHILD, 9, -9, 1e5))
    assert fleet.launches[A].reason.startswith("signal 9")


def test_only_the_holder_of_its_token_takes_its_name() -> None:
    fleet, _ = play(begun(LAUNCHED), LaunchOrdered(A, hashed("t"), 1.0))
    fleet, commands = play(fleet, Registered(1, status(A), "guess", 0.0, 0, 2.0))
    assert any("registration refused" in text for text in texts(commands))
    assert fleet.instances[A].status is None


def test_the_end_of_a_stopped_one_is_no_death() -> None:
    stop = Asked(1, StopInstance(A, force=False), False, None, 30.0)
    fleet, commands = play(running(), stop, ChildExited(A_CHILD, 9, 0, 31.0), Ticked(1e4))
    assert (fleet.launches[A].stage, fleet.launches[A].restarts) == (Stage.STOPPED, 0)
    assert f"{A} ended by exit 0" in texts(commands)


# --- adoption ------------------------------------------------------------------------------------


def history() -> Documents:
    fleet, first = play(
        fresh(LAUNCHED), ChildrenSeen({}, 1, frozenset(), 0.0), WorkerLinked(0, 0, 77, 0, 0.0)
    )
    fleet, second = play(fleet, *started(A, 1.0), reading(A, 1.0, 11.0))
    return kept(first + second)


def test_what_runs_is_adopted_and_never_started_twice() -> None:
    documents = history()
    fleet = fresh(LAUNCHED, documents)
    assert fleet.awaited == {A}
    children = {"worker0.0": 77, A_CHILD: 99}
    fleet, commands = play(fleet, ChildrenSeen(children, 1, frozenset(), 50.0))
    assert only(Launch, commands) == []  # B waits: A might be loading, as far as we know
    assert fleet.launches[A].pid == 99
    fleet, commands = play(fleet, WorkerLinked(0, 0, 77, 3, 50.0))
    assert fleet.table is None
    fleet, commands = play(fleet, reading(A, 1.0, 50.5))
    assert targets(fleet) == [A]
    assert only(Launch, commands) == [Launch(B, "m", "1", "d0")]


def test_what_was_ordered_in_the_last_moment_of_a_control_may_register_with_the_next() -> None:
    """The store knows nothing of this life: not its token, not where it is."""
    two = LAUNCHED + '[[device]]\nname = "d1"\nmemory_gb = 16\n'
    said = {A_CHILD: label(hashed("new"), "d1")}
    fleet, commands = play(
        fresh(two, history()),
        ChildrenSeen({"worker0.0": 77, A_CHILD: 99}, 1, frozenset(), 50.0, said),
        WorkerLinked(0, 0, 77, 3, 50.0),
    )
    assert fleet.launches[A].device == fleet.instances[A].device == "d1"
    stored = kept(commands)["instances"][A]
    assert (stored["token"], stored["device"]) == (hashed("new"), "d1")
    loading = status(A, State.INITIALIZING, incarnation="newer")
    _, refused = play(fleet, Registered(1, loading, "t", 0.0, 0, 51.0))
    (answer,) = only(Answer, refused)
    assert isinstance(answer.value, RegisterAnswer)
    assert answer.value.code == "ALREADY_EXISTS"
    fleet, _ = play(fleet, Registered(2, loading, "new", 0.0, 0, 52.0))
    assert fleet.instances[A].incarnation == "newer"


def test_what_is_gone_after_a_restart_of_everything_is_started_anew() -> None:
    fleet, commands = play(
        fresh(LAUNCHED, history()),
        ChildrenSeen({}, 1, frozenset(), 50.0),
        WorkerLinked(0, 0, 7, 0, 50.0),
    )
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]
    assert fleet.awaited == frozenset()
    assert targets(fleet) == []


def test_one_that_the_file_does_not_name_any_more_is_drained_and_stopped() -> None:
    less = LAUNCHED.replace('"1" = 2 }', '"1" = 0 }')
    fleet, _ = play(
        fresh(less, history()),
        ChildrenSeen({"worker0.0": 77, A_CHILD: 99}, 1, frozenset(), 50.0),
        WorkerLinked(0, 0, 77, 3, 50.0),
    )
    assert fleet.drains[A].stop
    assert fleet.instances[A].retired


def test_one_that_the_file_does_not_name_any_more_may_be_loading_all_the_same() -> None:
    """It was taken for one that runs, and the next one loaded on its device beside it."""
    other = LAUNCHED.replace('"1" = 2 }', '"2" = 1 }').replace('"1" = 100', '"1" = 100, "2" = 0')
    fleet, commands = play(
        fresh(other, history()),
        ChildrenSeen({"worker0.0": 77, A_CHILD: 99}, 1, frozenset(), 50.0),
        WorkerLinked(0, 0, 77, 3, 50.0),
    )
    assert only(Launch, commands) == []
    fleet, commands = play(fleet, ChildExited(A_CHILD, 99, 1, 51.0))
    assert only(Launch, commands) == [Launch("m-2-0", "m", "2", "d0")]


def test_its_pid_is_shown_when_the_supervisor_says_it() -> None:
    fleet, _ = play(begun(LAUNCHED), ChildStarted(A_CHILD, 4711, 1.0))
    assert fleet.launches[A].pid == 4711


def test_a_device_that_left_the_file_is_waited_for() -> None:
    fleet = begun(LAUNCHED)
    lost = replace(fleet.launches[B], wish="gone")
    fleet = replace(fleet, launches={**fleet.launches, B: lost})
    fleet, _ = play(fleet, Ticked(5.0))
    assert fleet.launches[B].reason.startswith("waits for device gone")


# --- started by an operator ----------------------------------------------------------------------


def asked(ask: Ask, now: float) -> Asked:
    return Asked(1, ask, False, None, now)


def said(commands: list[Command]) -> str:
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, Receipt), answer.value
    return answer.value.changes[0]


@pytest.mark.parametrize("by", [StartInstance(A), UndrainInstance(A)], ids=str)
def test_a_stopped_one_stays_down_until_it_is_started_or_undrained(by: Ask) -> None:
    fleet, _ = play(running(), asked(StopInstance(A, force=False), 30.0))
    fleet, commands = play(fleet, ChildExited(A_CHILD, 9, 0, 31.0), Ticked(1e5))
    assert only(Launch, commands) == []
    _, commands = play(fresh(LAUNCHED, kept_by(fleet)), *first_events())  # nor by a restart
    assert A not in {one.name for one in only(Launch, commands)}
    fleet, commands = play(fleet, asked(by, 1e5))
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]
    assert fleet.instances[A].intent is Intent.ACTIVE


def kept_by(fleet: FleetSnapshot) -> Documents:
    drain = drain_change(fleet.drains[A], fleet.wall, 1e5)
    return {"drains": {drain.key: drain.document}}


@pytest.mark.parametrize("status", [1, 78])
def test_one_that_is_down_by_itself_is_shown_as_stopped_when_that_is_ordered(status: int) -> None:
    fleet, _ = play(running(), ChildExited(A_CHILD, 9, status, 30.0))
    fleet, _ = play(fleet, asked(StopInstance(A, force=True), 30.1))
    fleet, commands = play(fleet, LeasesCut(0, fleet.drains[A].token, (), 30.2), Ticked(1e4))
    assert (fleet.launches[A].stage, fleet.launches[A].reason) == (Stage.STOPPED, "stopped")
    assert fleet.drains[A].ended is not None
    assert only(Launch, commands) == []


def test_a_start_ends_a_crash_loop_and_its_count() -> None:
    fleet, now = running(), 30.0
    for _ in range(5):
        fleet, _ = play(fleet, ChildExited(A_CHILD, 9, 1, now))
        now = fleet.launches[A].retry_at
        fleet, _ = play(fleet, Ticked(now))
    fleet, _ = play(fleet, ChildExited(A_CHILD, 9, 1, now))
    assert fleet.launches[A].stage is Stage.CRASH_LOOP
    fleet, commands = play(fleet, asked(StartInstance(A), now + 1))
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]
    fleet, _ = play(fleet, ChildExited(A_CHILD, 9, 1, now + 2))
    assert (fleet.launches[A].stage, fleet.launches[A].deaths) == (Stage.BACKING_OFF, 1)


def test_a_start_of_what_runs_or_waits_changes_nothing() -> None:
    _, commands = play(running(), asked(StartInstance(A), 30.0))
    assert said(commands) == f"{A} runs already"
    _, commands = play(begun(LAUNCHED), asked(StartInstance(B), 1.0))
    assert said(commands) == f"{B} waits for d0: {A} is loading there"


def test_a_start_of_one_that_is_held_out_leaves_it_held_out() -> None:
    hold = asked(DrainInstance(A, None, stop=False, force=False), 30.0)
    fleet, _ = play(running(), hold, ChildExited(A_CHILD, 9, 78, 31.0))
    fleet, commands = play(fleet, asked(StartInstance(A), 32.0))
    assert only(Launch, commands) == [Launch(A, "m", "1", "d0")]
    assert said(commands) == f"{A} is started, and stays held out"
    assert fleet.instances[A].intent is Intent.DRAIN


def test_one_that_is_stopping_cannot_be_started_before_it_is_gone() -> None:
    fleet, _ = play(running(), asked(StopInstance(A, force=True), 30.0))
    cut = LeasesCut(0, fleet.drains[A].token, (), 30.5)
    _, commands = play(fleet, cut, asked(StartInstance(A), 31.0))
    denied = only(Answer, commands)[-1].value
    assert isinstance(denied, Denied)
    assert (denied.code, "too late" in denied.message) == ("conflict", True)
