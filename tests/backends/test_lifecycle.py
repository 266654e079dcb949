"""The table of one life, walked whole."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.lifecycle import EVENTS, Event, Standing, follow, progressed
from sluicegate.v1.states import TRANSITIONS, IllegalTransition, Phase, State

PAIRS = list(itertools.product(State, Event))


def reachable(start: State, without: State | None = None) -> set[State]:
    seen, todo = {start}, [start]
    while todo:
        for after in EVENTS[todo.pop()].values():
            if after not in seen and after is not without:
                seen.add(after)
                todo.append(after)
    return seen


def test_every_state_has_a_row() -> None:
    assert set(EVENTS) == set(State)


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_each_pair_is_either_in_the_table_or_refused(state: State, event: Event) -> None:
    before = Standing("i-1", state=state)
    if event in EVENTS[state]:
        assert follow(before, event).state is EVENTS[state][event]
    else:
        with pytest.raises(IllegalTransition, match=f"i-1: {event.name} .* {state.name}"):
            follow(before, event)


def test_no_event_makes_a_move_that_the_wire_forbids() -> None:
    moves = {(old, new) for old, row in EVENTS.items() for new in row.values() if old is not new}
    assert all(new in TRANSITIONS[old] for old, new in moves)


def test_a_ready_instance_that_did_not_fail_cannot_stop_without_draining() -> None:
    assert State.STOPPED not in EVENTS[State.READY].values()
    without = reachable(State.READY, without=State.DRAINING)
    assert without == {State.READY, State.ERROR, State.STOPPED}


def test_every_state_can_still_reach_stopped() -> None:
    assert all(State.STOPPED in reachable(state) for state in State)


def test_each_state_begins_in_its_phase() -> None:
    ready = follow(Standing("i-1"), Event.VERIFIED)
    draining = follow(ready, Event.DRAIN_ASKED, "asked")
    assert (ready.phase, ready.progress) == (Phase.SERVING, 100.0)
    assert (draining.phase, draining.reason) == (Phase.DRAINING, "asked")
    assert follow(draining, Event.STOPPED).phase is Phase.RELEASING


def test_an_error_keeps_the_phase_and_the_progress_it_failed_in() -> None:
    loading = progressed(Standing("i-1"), Phase.COMPILING, 0.5, "graph 2 of 3")
    failed = follow(loading, Event.FAILED, "out of memory")
    assert (failed.phase, failed.progress) == (Phase.COMPILING, 60.0)
    assert failed.reason == "out of memory"


@pytest.mark.parametrize("state", [s for s in State if s is not State.INITIALIZING])
def test_progress_is_refused_once_the_instance_is_no_longer_loading(state: State) -> None:
    with pytest.raises(IllegalTransition):
        progressed(Standing("i-1", state=state), Phase.COMPILING, 0.5, "")


@given(st.lists(st.tuples(st.sampled_from(list(Phase)[:7]), st.floats(-1, 2)), max_size=30))
def test_progress_never_falls_and_the_sequence_always_grows(
    steps: list[tuple[Phase, float]],
) -> None:
    standing = Standing("i-1")
    for phase, share in steps:
        after = progressed(standing, phase, share, "")
        assert after.progress >= standing.progress
        assert after.phase >= standing.phase
        assert after.sequence == standing.sequence + 1
        standing = after
