import pytest

from gateway.fleet.commands import (
    PollNow,
)
from gateway.fleet.events import (
    DialFailed,
    Observed,
    PollFailed,
    RequestsFailed,
    SlotKept,
    Source,
    Ticked,
    WriteFailed,
)
from gateway.fleet.health import HELD_S
from gateway.fleet.instances import FORGET_S
from gateway.records import Health
from sluicegate.v1.states import Phase, State
from tests.gateway.fleet.builders import (
    GRPC,
    STATICS,
    begun,
    both_ready,
    observed,
    only,
    play,
    status,
    targets,
    texts,
)
from tests.gateway.fleet.registering import registered


def failed(name: str = "a", now: float = 2.0, slow: bool = False, **fields: int) -> PollFailed:
    bytes_, held = fields.get("received", 0), fields.get("held", 0)
    return PollFailed(name, GRPC[name], "refused", slow, bytes_, held, now)


def test_a_reported_change_away_from_ready_acts_on_the_first_reading() -> None:
    fleet, _ = play(both_ready(), observed("a", State.ERROR, now=2.0, source=Source.WATCH))
    assert targets(fleet) == ["b"]


def test_three_failed_polls_take_it_out_and_two_answers_bring_it_back() -> None:
    fleet, _ = play(both_ready(), failed(), failed())
    assert targets(fleet) == ["a", "b"]
    fleet, _ = play(fleet, failed())
    assert targets(fleet) == ["b"]
    fleet, _ = play(fleet, observed("a", now=3.0))
    assert targets(fleet) == ["b"]
    fleet, _ = play(fleet, observed("a", now=4.0))
    assert targets(fleet) == ["a", "b"]


def test_a_refused_dial_takes_it_out_and_asks_for_the_poll_that_decides() -> None:
    fleet = both_ready()
    slot = fleet.instances["a"].slot
    fleet, commands = play(fleet, DialFailed(slot, "refused", 2.0))
    assert targets(fleet) == ["b"]
    assert only(PollNow, commands) == [PollNow("a")]
    fleet, _ = play(fleet, observed("a", now=2.1))
    assert targets(fleet) == ["a", "b"]


def test_slow_polls_of_an_instance_that_sends_bytes_are_no_failures() -> None:
    fleet, _ = play(both_ready(), observed("a", now=2.0, held=1, received=10))
    for second in range(3, 9):
        late = failed(now=float(second), slow=True, received=10 * second, held=1)
        fleet, _ = play(fleet, late)
    assert targets(fleet) == ["a", "b"]


def test_slow_polls_of_an_instance_whose_beats_or_watch_tell_of_progress_are_no_failures() -> None:
    """A long prefill sends no byte, and may keep a poll waiting; the engine's steps are told."""
    for source in (Source.BEAT, Source.WATCH):
        fleet, _ = play(both_ready(), observed("a", now=2.0, held=1, progress_total=1))
        for second in range(3, 30):
            now = float(second)
            step = observed("a", now=now, source=source, held=1, progress_total=second)
            fleet, _ = play(fleet, step, failed(now=now + 0.5, slow=True, held=1))
        assert targets(fleet) == ["a", "b"]


def test_slow_polls_of_an_instance_that_does_nothing_are_failures() -> None:
    fleet, _ = play(both_ready(), observed("a", now=2.0, held=1, progress_total=1))
    late = (failed(now=20.0 + second, slow=True, held=1) for second in range(3))
    fleet, _ = play(fleet, *late)
    assert targets(fleet) == ["b"]


def test_stuck_is_shown_with_its_reason_and_it_is_back_when_it_moves() -> None:
    fleet, _ = play(both_ready(), observed("a", now=2.0, held=1, progress_total=5))
    fleet, commands = play(fleet, observed("a", now=32.0, held=1, progress_total=5))
    assert targets(fleet) == ["b"]
    assert any("nothing computed for 30 s" in text for text in texts(commands))
    fleet, _ = play(fleet, observed("a", now=33.0, held=1, progress_total=6))
    assert targets(fleet) == ["a", "b"]


def test_progress_is_told_by_phase_and_in_steps() -> None:
    told = []
    fleet = begun()
    for sequence, progress in enumerate((10.0, 12.0, 16.0, 23.4), start=1):
        reading = observed("a", State.INITIALIZING, sequence=sequence, progress=progress)
        fleet, commands = play(fleet, reading)
        told += [text for text in texts(commands) if "INITIALIZING" in text]
    assert told == [
        "a INITIALIZING loading_model 10 %",
        "a INITIALIZING loading_model 16 %",
        "a INITIALIZING loading_model 23 %",
    ]


def test_an_answer_from_an_address_that_is_not_its_own_any_more_is_not_its_word() -> None:
    stale = Observed("a", Source.POLL, "127.0.0.1:7", "", status("a"), 0, 0, 2.0)
    fleet, _ = play(begun(), stale)
    assert fleet.instances["a"].status is None


def test_another_instance_on_a_reused_port_is_a_failed_poll() -> None:
    fleet = registered()
    other = status("r", instance_id="x", incarnation="x1")
    for _ in range(3):
        reading = Observed("r", Source.POLL, other.grpc, "", other, 0, 0, 2.0)
        fleet, _ = play(fleet, reading)
    assert fleet.instances["r"].opinion.health is Health.UNHEALTHY
    assert fleet.instances["r"].incarnation == "r1"


# --- slots ---------------------------------------------------------------------------------------


def test_an_instance_is_routed_only_when_the_store_has_its_slot() -> None:
    fleet, _ = play(begun(), observed("a"), keep=False)
    assert targets(fleet) == []
    fleet, _ = play(fleet, SlotKept(fleet.instances["a"].slot, 1.1))
    assert targets(fleet) == ["a"]


def test_a_slot_that_could_not_be_kept_is_tried_again_with_the_next_reading() -> None:
    fleet, _ = play(begun(), observed("a"), keep=False)
    slot = fleet.instances["a"].slot
    fleet, _ = play(fleet, WriteFailed(SlotKept(slot, 1.0), "full", 1.1))
    assert fleet.book.holders == {}
    fleet, _ = play(fleet, observed("a", now=2.0))
    assert targets(fleet) == ["a"]


def test_a_restart_at_the_same_address_gets_counters_of_its_own() -> None:
    fleet = both_ready()
    old = fleet.instances["a"].slot
    fleet, _ = play(fleet, observed("a", now=9.0, incarnation="a2"))
    assert fleet.instances["a"].slot != old
    assert fleet.book.holders[old].left_at == 9.0
    assert targets(fleet) == ["a", "b"]


def test_an_illegal_move_is_ignored_told_once_and_takes_the_instance_off() -> None:
    fleet, _ = play(both_ready(), observed("a", now=2.0, sequence=5))
    move = "a: READY to INITIALIZING is not legal in one incarnation"
    told: list[str] = []
    for source in (Source.WATCH, Source.REPLY, Source.POLL):
        wrong = observed("a", State.INITIALIZING, now=3.0, sequence=6, source=source)
        fleet, commands = play(fleet, wrong)
        told += texts(commands)
        assert fleet.instances["a"].state is State.READY
    assert told == [move]
    wrong = observed("a", State.INITIALIZING, now=4.0, sequence=6)
    fleet, commands = play(fleet, wrong)
    assert move not in texts(commands)
    fleet, _ = play(fleet, wrong)
    assert targets(fleet) == ["b"]
    assert fleet.instances["a"].opinion.reason.endswith(move)


def test_what_is_lost_for_an_hour_is_forgotten() -> None:
    fleet = registered()
    fleet, _ = play(fleet, Ticked(fleet.instances["r"].expires_at))
    fleet, _ = play(fleet, Ticked(fleet.instances["r"].expires_at))
    assert "r" not in fleet.instances
    assert FORGET_S == 3600.0


@pytest.mark.parametrize("state", [State.INITIALIZING, State.DRAINING, State.STOPPED, State.ERROR])
def test_an_instance_that_is_not_ready_is_in_no_table(state: State) -> None:
    fleet, _ = play(begun(), observed("a", state, phase=Phase.RELEASING))
    assert targets(fleet) == []


# --- what requests say ---------------------------------------------------------------------------


def test_one_that_fails_every_request_rests_for_a_while_and_is_tried_again() -> None:
    """A process that answers polls with READY, and every completion with a 500."""
    fleet = both_ready()
    slot = fleet.instances["a"].slot
    fleet, commands = play(fleet, RequestsFailed(slot, 10, 2.0))
    assert targets(fleet) == ["b"]
    assert texts(commands) == ["a is suspect: its last 10 requests failed, and none was served"]
    for now in (3.0, 11.9):
        fleet, _ = play(fleet, observed("a", now=now), observed("b", now=now))
        assert targets(fleet) == ["b"]
    fleet, _ = play(fleet, observed("a", now=2.0 + HELD_S))
    assert targets(fleet) == ["a", "b"]


def test_the_last_of_its_version_is_not_taken_off_for_failed_requests() -> None:
    fleet, _ = play(both_ready(), observed("b", State.DRAINING, now=2.0, sequence=2))
    assert targets(fleet) == ["a"]
    fleet, commands = play(fleet, RequestsFailed(fleet.instances["a"].slot, 10, 3.0))
    assert targets(fleet) == ["a"]
    assert texts(commands) == []


def test_failures_of_an_incarnation_that_is_over_are_not_held_against_the_next() -> None:
    fleet = both_ready()
    old = fleet.instances["a"].slot
    fleet, _ = play(fleet, observed("a", now=2.0, incarnation="a2"))
    fleet, _ = play(fleet, RequestsFailed(old, 10, 3.0))
    assert targets(fleet) == ["a", "b"]


def test_a_resting_instance_that_does_not_answer_polls_is_unhealthy() -> None:
    fleet = both_ready()
    fleet, _ = play(fleet, RequestsFailed(fleet.instances["a"].slot, 10, 2.0), failed("a", 3.0))
    assert fleet.instances["a"].opinion.health is Health.UNHEALTHY


def test_when_none_of_three_is_healthy_nothing_is_routed_there() -> None:
    third = """
[[instance]]
id = "c"
model = "m"
version = "1"
http = "127.0.0.1:1003"
grpc = "127.0.0.1:2003"
"""
    fleet, _ = play(begun(STATICS + third), observed("a"), observed("b"), observed("c"))
    assert targets(fleet) == ["a", "b", "c"]
    for name, left in (("a", ["b", "c"]), ("b", ["c"]), ("c", [])):
        fleet, _ = play(fleet, *(failed(name) for _ in range(3)))
        assert targets(fleet) == left
