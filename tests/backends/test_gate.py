"""Who is let in, and when the instance is empty."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.errors import Draining, InstanceError, NotReady, QueueFull
from backends.gate import Gate, Pass
from backends.lifecycle import Standing
from sluicegate.v1.states import Phase, State

READY = Standing("i-1", State.READY, Phase.SERVING, 100.0, "")


def gate(slots: int = 2, queue_max: int = 1) -> Gate:
    made = Gate()
    made.widen(slots, queue_max)
    return made


@pytest.mark.parametrize(
    ("state", "refusal"),
    [
        (State.INITIALIZING, NotReady),
        (State.ERROR, NotReady),
        (State.DRAINING, Draining),
        (State.STOPPED, Draining),
    ],
)
def test_only_ready_admits(state: State, refusal: type[InstanceError]) -> None:
    door = gate()
    with pytest.raises(refusal):
        door.admit(Standing("i-1", state), "r-1")
    assert (door.in_flight, door.rejected_total) == (0, 1)


def test_a_refusal_while_loading_says_how_far_it_is() -> None:
    loading = Standing("i-1", State.INITIALIZING, Phase.COMPILING, 62.4, "graph 2 of 3")
    with pytest.raises(NotReady, match="i-1 is INITIALIZING, compiling at 62 %: graph 2 of 3"):
        gate().admit(loading, "r-1")


def test_slots_and_queue_are_the_room_and_not_one_more() -> None:
    door = gate(slots=2, queue_max=1)
    for number in range(3):
        door.admit(READY, f"r-{number}")
    with pytest.raises(QueueFull, match="no room in i-1: 3 of 3 in flight"):
        door.admit(READY, "r-3")


def test_a_request_for_several_answers_takes_all_its_places_or_none() -> None:
    door = gate(slots=2, queue_max=2)
    first = door.admit(READY, "r-1", places=3)
    with pytest.raises(QueueFull, match="3 of 4 in flight"):
        door.admit(READY, "r-2", places=2)
    second = door.admit(READY, "r-3")
    assert door.in_flight == 2
    first.give_back()
    first.give_back()
    door.admit(READY, "r-4", places=3)
    second.give_back()
    door.admit(READY, "r-5")
    assert (door.in_flight, door.rejected_total) == (2, 1)


def test_a_gate_that_knows_no_engine_has_no_room() -> None:
    with pytest.raises(QueueFull):
        Gate().admit(READY, "r-1")


def test_a_pass_counts_once_however_often_it_is_given_back() -> None:
    door = gate()
    first, second = door.admit(READY, "r-1"), door.admit(READY, "r-2")
    first.give_back()
    first.give_back()
    assert door.held() == ("r-2",)
    second.give_back()
    assert door.in_flight == 0


def test_the_same_request_id_twice_is_two_requests() -> None:
    door = gate()
    first, _ = door.admit(READY, "same"), door.admit(READY, "same")
    first.give_back()
    assert door.in_flight == 1


def test_empty_is_told_once_and_at_once_if_it_already_is() -> None:
    door, told = gate(), []
    door.when_empty(lambda: told.append("already"))
    held = door.admit(READY, "r-1")
    door.when_empty(lambda: told.append("later"))
    assert told == ["already"]
    held.give_back()
    door.admit(READY, "r-2").give_back()
    assert told == ["already", "later"]


@given(st.lists(st.one_of(st.just("in"), st.integers(0, 9)), max_size=60))
def test_admitted_is_what_came_back_plus_what_is_held(history: list[str | int]) -> None:
    door, passes, refused = gate(3, 2), list[Pass](), 0
    came_back: set[int] = set()
    for step in history:
        if isinstance(step, str):
            try:
                passes.append(door.admit(READY, "r"))
            except QueueFull:
                refused += 1
        elif step < len(passes):
            passes[step].give_back()
            came_back.add(step)
        assert door.in_flight == len(passes) - len(came_back) <= 5
    assert (door.admitted_total, door.rejected_total) == (len(passes), refused)
