from gateway.fleet.closing import CUT_S
from gateway.fleet.commands import Launch, SettleRow, StartWorker, Supervise, Tell
from gateway.fleet.events import ChildExited, RowSettled, StopAsked, Ticked
from gateway.fleet.handing import HeldElsewhere
from gateway.fleet.launches import deadlines
from gateway.messages import Close, Exit, Kill
from tests.gateway.fleet.builders import LAUNCHED, begun, only, play

DELAYED = LAUNCHED + "[gateway]\nshutdown_delay_s = 5\n"


def orders(commands: list[object]) -> list[object]:
    return [one.message for one in commands if isinstance(one, Supervise)]


def test_readiness_fails_first_then_workers_close_and_instances_are_last() -> None:
    fleet, commands = play(begun(DELAYED), StopAsked(1, 10.0))
    assert fleet.closing is not None
    assert not fleet.serving
    assert only(Tell, commands) == []
    fleet, commands = play(fleet, Ticked(15.0))
    assert only(Tell, commands) == [Tell(0, Close(30.0))]
    fleet, commands = play(fleet, ChildExited("worker0.0", 77, 0, 20.0))
    assert only(SettleRow, commands) == [SettleRow(0)]
    assert orders(list(commands)) == []
    fleet, commands = play(fleet, RowSettled(0, (), 20.1))
    assert orders(list(commands)) == [Kill("instance.m-1-0", 15)]
    assert only(StartWorker, commands) == []
    fleet, commands = play(fleet, ChildExited("instance.m-1-0", 9, 0, 21.0))
    assert orders(list(commands)) == [Exit(0)]
    assert only(Launch, commands) == []


def test_a_worker_that_does_not_end_in_time_and_an_instance_too_are_killed() -> None:
    fleet, _ = play(begun(LAUNCHED), StopAsked(1, 10.0))
    fleet, commands = play(fleet, Ticked(10.0 + 30.0 + 5.0))
    assert orders(list(commands)) == [Kill("worker0.0", 9)]
    fleet, _ = play(fleet, ChildExited("worker0.0", 77, -9, 45.1), RowSettled(0, (), 45.2))
    fleet, commands = play(fleet, Ticked(55.2))
    assert orders(list(commands)) == [Kill("instance.m-1-0", 9)]


def test_a_second_signal_cuts() -> None:
    fleet, _ = play(begun(LAUNCHED), StopAsked(1, 10.0))
    fleet, commands = play(fleet, StopAsked(2, 11.0))
    assert only(Tell, commands) == [Tell(0, Close(0.0))]
    fleet, commands = play(fleet, Ticked(11.0 + CUT_S))
    assert orders(list(commands)) == [Kill("worker0.0", 9)]
    fleet, commands = play(fleet, ChildExited("worker0.0", 77, -9, 12.1), RowSettled(0, (), 12.2))
    assert orders(list(commands)) == [Kill("instance.m-1-0", 9)]


def test_a_second_signal_while_instances_stop_kills_them() -> None:
    fleet, _ = play(
        begun(LAUNCHED),
        StopAsked(1, 10.0),
        ChildExited("worker0.0", 77, 0, 11.0),
        RowSettled(0, (), 11.0),
    )
    _, commands = play(fleet, StopAsked(2, 12.0))
    assert orders(list(commands)) == [Kill("instance.m-1-0", 9)]


def test_the_same_signal_told_to_a_new_control_is_one_signal() -> None:
    fleet, _ = play(begun(LAUNCHED), StopAsked(1, 10.0))
    again, commands = play(fleet, StopAsked(1, 11.0))
    assert again.closing == fleet.closing
    assert only(Tell, commands) == []


def test_a_control_that_is_started_after_two_signals_cuts_at_once() -> None:
    _, commands = play(begun(LAUNCHED), StopAsked(2, 10.0))
    assert only(Tell, commands) == [Tell(0, Close(0.0))]


def test_an_instance_that_was_to_be_started_again_wakes_nobody_once_the_gateway_closes() -> None:
    """Its time came, nobody started it, and control asked for a tick at that time for ever."""
    fleet, _ = play(begun(LAUNCHED), ChildExited("instance.m-1-0", 9, -9, 10.0))
    assert fleet.launches["m-1-0"].retries
    fleet, _ = play(fleet, StopAsked(1, 10.1))
    assert fleet.launches["m-1-0"].retry_at not in deadlines(fleet)


def test_instances_are_stopped_when_a_predecessor_has_finished_on_them_too() -> None:
    """Once a SIGTERM soon after a take-over cut the streams that the predecessor still had."""
    fleet, _ = play(begun(LAUNCHED), HeldElsewhere({"m-1-0": 1}, False, 9.0), StopAsked(1, 10.0))
    alone = (ChildExited("worker0.0", 77, 0, 11.0), RowSettled(0, (), 11.0))
    fleet, commands = play(fleet, *alone)
    assert orders(list(commands)) == []
    fleet, commands = play(fleet, HeldElsewhere({"m-1-0": 0}, False, 20.0))
    assert orders(list(commands)) == [Kill("instance.m-1-0", 15)]


def test_a_predecessor_is_waited_for_no_longer_than_the_grace_and_not_after_a_second_signal() -> (
    None
):
    fleet, _ = play(begun(LAUNCHED), HeldElsewhere({"m-1-0": 1}, False, 9.0), StopAsked(1, 10.0))
    fleet, _ = play(fleet, ChildExited("worker0.0", 77, 0, 11.0), RowSettled(0, (), 11.0))
    assert fleet.closing is not None
    _, late = play(fleet, Ticked(fleet.closing.due_at))
    assert Kill("instance.m-1-0", 15) in orders(list(late))
    _, again = play(fleet, StopAsked(2, 12.0))
    assert orders(list(again)) == [Kill("instance.m-1-0", 9)]
