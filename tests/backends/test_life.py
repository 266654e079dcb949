"""Orders in any order, and who is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.gate import Gate
from backends.life import Drained, Life, OrderRefused
from sluicegate.v1.states import Phase, State


def ready(gate: Gate | None = None) -> Life:
    life = Life("i-1", gate or gate_with_room())
    life.progress(Phase.WARMING_UP, 1.0, "", 0.0)
    life.verified(0.0)
    return life


def gate_with_room() -> Gate:
    gate = Gate()
    gate.widen(8, 8)
    return gate


def test_a_second_drain_is_the_first_one_with_what_is_left_of_it() -> None:
    life = ready()
    assert life.drain(30.0, "asked", 100.0) == Drained(already=False, remaining_s=30.0)
    assert life.drain(99.0, "again", 110.0) == Drained(already=True, remaining_s=20.0)
    assert life.drain(99.0, "again", 200.0) == Drained(already=True, remaining_s=0.0)


def test_a_drain_alone_never_stops_however_late_it_gets() -> None:
    life = ready()
    life.drain(30.0, "asked", 0.0)
    assert not life.is_stopping
    assert life.standing.state is State.DRAINING


def test_the_last_request_of_a_drain_is_news() -> None:
    gate = gate_with_room()
    life, told = ready(gate), []
    held = gate.admit(life.standing, "r-1")
    life.drain(30.0, "asked", 0.0)
    before = life.standing.sequence
    life.watch(lambda: told.append(life.standing.reason))
    held.give_back()
    assert told == ["asked; nothing is in flight"]
    assert life.standing.sequence == before + 1


def test_a_resumed_drain_that_empties_later_is_not_news() -> None:
    gate = gate_with_room()
    life, told = ready(gate), []
    held = gate.admit(life.standing, "r-1")
    life.drain(30.0, "first", 0.0)
    life.resume(1.0)
    life.drain(30.0, "second", 2.0)
    life.watch(lambda: told.append(life.standing.reason))
    held.give_back()
    assert told == ["second; nothing is in flight"]


def test_resume_gives_back_a_drained_instance_and_changes_nothing_in_a_ready_one() -> None:
    life = ready()
    life.drain(30.0, "asked", 0.0)
    life.resume(1.0)
    assert life.standing.state is State.READY
    sequence = life.standing.sequence
    life.resume(2.0)
    assert life.standing.sequence == sequence


def test_a_stop_drains_first_and_cannot_be_taken_back() -> None:
    life = ready()
    life.stop(30.0, "SIGTERM", 10.0)
    assert (life.standing.state, life.stop_at) == (State.DRAINING, 40.0)
    with pytest.raises(OrderRefused, match="cannot be taken back"):
        life.resume(11.0)


def test_a_later_stop_can_only_hasten_the_end() -> None:
    life = ready()
    life.stop(30.0, "asked", 0.0)
    life.stop(60.0, "asked", 1.0)
    assert life.stop_at == 30.0
    life.stop(0.0, "forced", 2.0)
    assert life.stop_at == 2.0


def test_a_stop_tells_even_if_the_state_stays_what_it_was() -> None:
    life, told = Life("i-1", Gate()), []
    life.watch(lambda: told.append(life.is_stopping))
    life.stop(5.0, "asked", 0.0)
    assert (told, life.standing.state) == ([True], State.INITIALIZING)


@pytest.mark.parametrize("state", [State.INITIALIZING, State.ERROR])
def test_what_does_not_serve_can_neither_drain_nor_resume(state: State) -> None:
    life = Life("i-1", Gate())
    if state is State.ERROR:
        life.fail("no memory", 0.0)
    with pytest.raises(OrderRefused, match=state.name):
        life.drain(30.0, "asked", 0.0)
    with pytest.raises(OrderRefused, match=state.name):
        life.resume(0.0)


def test_a_report_after_the_load_was_given_up_changes_nothing() -> None:
    life = Life("i-1", Gate())
    life.fail("no memory", 0.0)
    failed = life.standing
    life.progress(Phase.COMPILING, 0.5, "graph 2", 1.0)
    life.fail("and again", 2.0)
    assert life.standing is failed


def test_phases_are_timed_by_what_was_spent_in_them() -> None:
    life = Life("i-1", Gate())
    life.begin(0.0)
    life.progress(Phase.LOADING_MODEL, 0.0, "", 1.0)
    life.progress(Phase.LOADING_MODEL, 0.9, "", 2.5)
    life.progress(Phase.COMPILING, 0.0, "", 3.0)
    life.progress(Phase.WARMING_UP, 0.0, "", 10.0)
    life.verified(11.0)
    spent = [life.spent_ms(p) for p in (Phase.LOADING_MODEL, Phase.COMPILING, Phase.WARMING_UP)]
    assert spent == [2000.0, 7000.0, 1000.0]
    assert life.spent_ms(Phase.LOADING_MODEL, Phase.COMPILING) == 9000.0


def test_who_no_longer_watches_is_not_told() -> None:
    life, told = ready(), []
    unwatch = life.watch(lambda: told.append("first"))
    life.watch(lambda: told.append("second"))
    unwatch()
    unwatch()
    life.drain(1.0, "", 0.0)
    assert set(told) == {"second"}


ORDERS = ("drain", "resume", "stop", "force", "fail", "admit", "finish", "stopped")


@given(st.lists(st.sampled_from(ORDERS), max_size=30))
def test_any_history_of_orders_keeps_the_laws(orders: list[str]) -> None:
    gate = gate_with_room()
    life = ready(gate)
    held = []
    for now, order in enumerate(orders):
        before = life.standing
        try:
            match order:
                case "drain":
                    life.drain(5.0, "", now)
                case "resume":
                    life.resume(now)
                case "stop":
                    life.stop(5.0, "", now)
                case "force":
                    life.stop(0.0, "", now)
                case "fail":
                    life.fail("broken", now)
                case "admit" if before.state is State.READY and gate.in_flight < gate.room:
                    held.append(gate.admit(before, "r"))
                case "finish" if held:
                    held.pop().give_back()
                case "stopped" if life.is_stopping and before.state is not State.STOPPED:
                    life.stopped("", now)
        except OrderRefused:
            assert life.standing is before
        assert life.standing.sequence >= before.sequence
        if before.state is State.STOPPED:
            assert life.standing is before
        if life.is_stopping:
            assert life.standing.state is not State.READY
