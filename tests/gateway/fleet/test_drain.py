from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fleet.commands import CallDrain, CallStop, Command, PollNow, Supervise, Tell
from gateway.fleet.drain import (
    ENDED,
    MOVES,
    Drain,
    Facts,
    IllegalMove,
    Lost,
    Phase,
    advance,
    asked_again,
    due_at,
    move,
    said_cut,
    said_empty,
    said_sent,
)
from gateway.messages import Cut, Kill, LostRequest, TellEmpty, TellSent

DRAIN = Drain("a", slot=3, token=9, began=0.0, deadline=30.0, generation=5)
WORKERS = {71: 0, 72: 1}  # pid: row
FACTS = Facts(
    now=1.0,
    served=4,
    live=WORKERS,
    grpc="127.0.0.1:2",
    draining=False,
    active=2,
    gone=False,
    silent=False,
    child=True,
    kill_after_s=10.0,
)
SERVED = replace(FACTS, served=5)
OVER = replace(SERVED, draining=True, active=0)


def waiting(drain: Drain = DRAIN) -> Drain:
    drain, _ = advance(drain, SERVED)
    drain, _ = advance(said_sent(said_sent(drain, 71), 72), SERVED)
    assert drain.phase is Phase.WAITING
    return drain


def emptied(drain: Drain) -> Drain:
    return said_empty(said_empty(drain, 71)[0], 72)[0]


@pytest.mark.parametrize("before", Phase)
@pytest.mark.parametrize("after", Phase)
def test_every_pair_of_phases_is_a_row_of_the_table_or_refused(before: Phase, after: Phase) -> None:
    drain = replace(DRAIN, phase=before)
    if after in MOVES[before]:
        moved = move(drain, after, 2.0)
        assert (moved.ended is not None) is (after in ENDED)
    else:
        with pytest.raises(IllegalMove):
            move(drain, after, 2.0)


def test_a_process_that_was_told_to_go_cannot_be_given_back() -> None:
    ways = {phase for phase in Phase if Phase.UNDRAINED in MOVES[phase]}
    assert ways == set(Phase) - {Phase.STOPPING, Phase.UNDRAINED}


def test_the_order_of_events_is_that_of_the_design() -> None:
    drain, commands = advance(DRAIN, FACTS)
    assert (drain, commands) == (DRAIN, ())  # the table is not served by all
    drain, commands = advance(drain, SERVED)
    assert drain.phase is Phase.SETTLING
    assert commands == (Tell(0, TellSent(3, 9)), Tell(1, TellSent(3, 9)))
    drain, commands = advance(said_sent(drain, 71), SERVED)
    assert (drain.phase, commands) == (Phase.SETTLING, ())
    drain, commands = advance(said_sent(drain, 72), SERVED)
    assert drain.phase is Phase.WAITING
    assert commands == (
        CallDrain("a", "127.0.0.1:2", 29.0, ""),
        Tell(0, TellEmpty(3, 9)),
        Tell(1, TellEmpty(3, 9)),
    )
    drain, _ = said_empty(drain, 71)
    assert advance(drain, OVER)[0].phase is Phase.WAITING  # the other worker holds something
    drain, commands = said_empty(drain, 72)
    assert commands == (PollNow("a"),)
    assert advance(drain, SERVED)[0].phase is Phase.WAITING  # others hold something there
    drain, commands = advance(drain, OVER)
    assert (drain.phase, drain.ended, commands) == (Phase.DONE, 1.0, ())


def test_empty_counts_only_once_the_instance_has_said_that_it_drains() -> None:
    early = replace(SERVED, draining=False, active=0)
    assert advance(emptied(waiting()), early)[0].phase is Phase.WAITING


def test_with_stop_the_process_is_told_to_go_and_killed_only_when_it_does_not() -> None:
    drain, commands = advance(emptied(waiting(replace(DRAIN, stop=True))), OVER)
    assert drain.phase is Phase.STOPPING
    assert commands == (CallStop("a", "127.0.0.1:2", 10.0, False),)
    assert due_at(drain, OVER) == 11.0
    late = replace(OVER, now=11.0)
    killed, commands = advance(drain, late)
    assert commands == (Supervise(Kill("instance.a", 9)),)
    assert advance(killed, late)[1] == ()
    assert advance(killed, replace(late, gone=True))[0].phase is Phase.DONE
    assert advance(drain, replace(OVER, gone=True))[0].phase is Phase.DONE


def test_at_the_deadline_every_worker_cuts_and_says_what() -> None:
    late = replace(SERVED, now=30.0)
    drain, commands = advance(waiting(), late)
    assert drain.phase is Phase.CUTTING
    assert commands == (Tell(0, Cut((3,), (), 9)), Tell(1, Cut((3,), (), 9)))
    lost = Lost(LostRequest(1, "", 3, "streaming", 29.0, 7), "drain deadline", "a", "m", "1")
    drain = said_cut(drain, 71, (lost,))
    assert advance(drain, late)[0].phase is Phase.CUTTING
    drain, _ = advance(said_cut(drain, 72, ()), late)
    assert drain.phase is Phase.CUT
    assert drain.lost == (lost,)


def test_before_the_table_is_served_the_deadline_waits() -> None:
    assert advance(DRAIN, replace(FACTS, now=99.0)) == (DRAIN, ())


def test_a_worker_that_still_sends_at_the_deadline_is_cut_and_the_instance_told() -> None:
    drain, _ = advance(DRAIN, SERVED)
    drain, commands = advance(drain, replace(SERVED, now=30.0))
    assert drain.phase is Phase.CUTTING
    assert isinstance(commands[0], CallDrain)


def test_a_dead_worker_owes_nothing() -> None:
    drain, _ = advance(DRAIN, SERVED)
    alone = replace(SERVED, live={71: 0})
    drain, _ = advance(said_sent(drain, 71), alone)
    assert drain.phase is Phase.WAITING
    drain, _ = said_empty(drain, 71)
    assert advance(drain, replace(OVER, live={71: 0}))[0].phase is Phase.DONE


def test_a_worker_that_came_later_owes_nothing() -> None:
    drain = emptied(waiting())
    assert advance(drain, replace(OVER, live={**WORKERS, 73: 2}))[0].phase is Phase.DONE


def test_a_dead_instance_ends_its_drain() -> None:
    assert advance(emptied(waiting()), replace(SERVED, gone=True))[0].phase is Phase.DONE


def test_of_a_silent_instance_only_its_leases_are_waited_for() -> None:
    silent = replace(SERVED, silent=True, child=False)
    assert advance(said_empty(waiting(), 71)[0], silent)[0].phase is Phase.WAITING
    drain, _ = advance(emptied(waiting()), silent)
    assert (drain.phase, drain.ended) == (Phase.DONE, 1.0)
    drain, commands = advance(emptied(waiting(replace(DRAIN, stop=True))), silent)
    assert (drain.phase, [type(one) for one in commands]) == (Phase.DONE, [CallStop])


def test_a_silent_process_of_ours_is_not_over_before_it_has_ended() -> None:
    silent = replace(SERVED, silent=True)
    drain, _ = advance(emptied(waiting(replace(DRAIN, stop=True))), silent)
    assert drain.phase is Phase.STOPPING


def test_a_process_of_ours_that_hears_no_call_is_sent_a_signal_then_killed() -> None:
    stopping = emptied(waiting(replace(DRAIN, stop=True)))
    term, kill = (Supervise(Kill("instance.a", number)) for number in (15, 9))
    drain, commands = advance(stopping, replace(SERVED, silent=True))
    assert commands == (CallStop("a", "127.0.0.1:2", 10.0, False), term)
    assert advance(drain, replace(SERVED, silent=True, now=11.0))[1] == (kill,)
    unheard = replace(SERVED, grpc="", draining=True, active=0)
    assert advance(stopping, unheard)[1] == (term,)  # it has not even registered
    assert advance(stopping, replace(unheard, child=False))[1] == ()


@pytest.mark.parametrize("stop", [False, True])
def test_a_grace_that_passes_without_a_loss_is_no_cut(stop: bool) -> None:
    late = replace(SERVED, now=30.0, gone=stop)
    drain, _ = advance(emptied(waiting(replace(DRAIN, stop=stop))), replace(late, active=1))
    assert drain.phase is Phase.DONE  # the client of its own road is no request of ours
    drain, _ = advance(waiting(replace(DRAIN, stop=stop)), late)
    assert drain.phase is Phase.CUTTING
    drain, _ = advance(said_cut(said_cut(drain, 71, ()), 72, ()), late)
    assert drain.phase is Phase.DONE


def test_a_reclaim_says_no_farewell() -> None:
    drain = replace(waiting(), reclaim=True, stop=True, deadline=1.0)
    drain, _ = advance(drain, SERVED)
    drain, commands = advance(said_cut(said_cut(drain, 71, ()), 72, ()), SERVED)
    assert commands == (Supervise(Kill("instance.a", 9)),)


def test_an_instance_that_was_never_in_a_table_is_asked_of_nobody() -> None:
    drain, commands = advance(replace(DRAIN, slot=-1), SERVED)
    assert drain.phase is Phase.WAITING
    assert [type(one) for one in commands] == [CallDrain]


FACT_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "served": st.sampled_from([4, 5, 6]),
        "live": st.sampled_from([WORKERS, {71: 0}, {}, {73: 2}]),
        "draining": st.booleans(),
        "active": st.integers(0, 2),
        "gone": st.booleans(),
        "silent": st.booleans(),
        "child": st.booleans(),
    },
)
SAYING = st.sampled_from(["sent", "empty", "cut", "again", "nothing"])


@given(
    st.lists(st.tuples(FACT_CHANGES, SAYING, st.sampled_from([71, 72, 73])), max_size=40),
    st.booleans(),
)
def test_whatever_happens_the_order_holds_and_nothing_is_said_twice_of_the_same_facts(
    history: list[tuple[dict[str, object], str, int]], stop: bool
) -> None:
    drain, facts, now = replace(DRAIN, stop=stop), FACTS, 0.0
    told: list[Command] = []
    for changes, saying, pid in history:
        now += 2.0
        facts = replace(facts, now=now, **changes)  # type: ignore[arg-type]
        match saying:
            case "sent":
                drain = said_sent(drain, pid)
            case "empty":
                drain, _ = said_empty(drain, pid)
            case "cut":
                drain = said_cut(drain, pid, ())
            case "again":
                drain = asked_again(drain)
        drain, commands = advance(drain, facts)
        told += commands
        assert advance(drain, facts) == (drain, ())
        for command in commands:
            asked = drain.owed & facts.live.keys()
            if isinstance(command, CallDrain):
                assert asked <= drain.sent or facts.now >= drain.deadline
            if isinstance(command, CallStop):
                assert asked <= drain.emptied or drain.was_cut
            if isinstance(command, CallStop | Supervise):
                assert stop, "held out means alive"
        if drain.phase is Phase.PUBLISHING:
            assert facts.served < drain.generation
    if any(isinstance(one, CallStop) for one in told):
        assert any(isinstance(one, CallDrain) for one in told) or drain.phase is not Phase.WAITING


def test_a_predecessor_that_does_not_cut_what_it_holds_is_not_waited_for_for_ever() -> None:
    """It may be stopped, and answer nothing: once such a drain never ended."""
    late = replace(SERVED, now=30.0, elsewhere=1)
    drain, _ = advance(waiting(), late)
    for pid in WORKERS:
        drain = said_cut(drain, pid, ())
    drain, _ = advance(drain, late)
    assert drain.phase is Phase.CUTTING
    due = due_at(drain, late)
    assert due == 30.0 + FACTS.kill_after_s
    drain, _ = advance(drain, replace(late, now=due))
    assert drain.phase is Phase.DONE
