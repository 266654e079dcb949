from dataclasses import replace

import pytest

from gateway.control import DrainInstance
from gateway.fleet.commands import (
    Answer,
    BeatAnswer,
    Command,
    Follow,
    PollNow,
    RegisterAnswer,
    Unfollow,
    WakeAt,
)
from gateway.fleet.events import (
    Asked,
    Beaten,
    Deregistered,
    DialFailed,
    Observed,
    PollFailed,
    Registered,
    SlotEmptied,
    SlotKept,
    SlotSent,
    Source,
    Ticked,
    WriteFailed,
)
from gateway.fleet.instances import FORGET_S
from gateway.fleet.registry import INSTANCES_MAX, Origin
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Health, Intent
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


def failed(name: str = "a", now: float = 2.0, slow: bool = False, **fields: int) -> PollFailed:
    bytes_, held = fields.get("received", 0), fields.get("held", 0)
    return PollFailed(name, GRPC[name], "refused", slow, bytes_, held, now)


def register(now: float = 1.0, **fields: object) -> Registered:
    return Registered(5, status("r", **fields), "", 0.0, 0, now)  # type: ignore[arg-type]


def registered() -> FleetSnapshot:
    fleet, _ = play(begun(), register(), _answer("r"))
    return fleet


def _answer(name: str, now: float = 1.5, **fields: object) -> Observed:
    return observed(name, now=now, **fields)  # type: ignore[arg-type]


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


# --- registration --------------------------------------------------------------------------------


def test_a_registration_is_answered_polled_and_kept() -> None:
    fleet, commands = play(begun(), register())
    assert only(Answer, commands) == [Answer(5, RegisterAnswer("", 30.0, 10.0))]
    assert only(Follow, commands) == [Follow("r", status("r").grpc)]
    assert only(PollNow, commands) == [PollNow("r")]
    assert fleet.instances["r"].origin is Origin.REGISTERED


def test_the_name_of_a_live_instance_elsewhere_is_taken() -> None:
    away = register(2.0, incarnation="r2", grpc="127.0.0.1:9")
    fleet, commands = play(registered(), away)
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, RegisterAnswer)
    assert "taken by a live instance" in answer.value.refusal
    assert fleet.instances["r"].incarnation == "r1"


def refused(commands: list[Command]) -> RegisterAnswer:
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, RegisterAnswer)
    assert answer.value.refusal
    assert any(answer.value.refusal in text for text in texts(commands))
    return answer.value


def test_the_incarnation_of_a_live_instance_gives_nobody_its_name_or_its_requests() -> None:
    before = registered()
    away = {"grpc": "127.0.0.1:9", "http": "127.0.0.1:8", "sequence": 99}
    fleet, commands = play(before, register(2.0, **away))
    assert refused(commands).code == "ALREADY_EXISTS"
    assert fleet.instances == before.instances
    fleet, order = beat(fleet, 2.0, **away)
    assert order == "REGISTER"
    assert fleet.instances == before.instances


def test_addresses_move_only_with_a_reading_that_is_accepted() -> None:
    fleet, _ = play(registered(), _answer("r", 2.0, sequence=9))
    fleet, _ = play(fleet, Ticked(fleet.instances["r"].expires_at))
    before = fleet.instances["r"]
    away = {"grpc": "127.0.0.1:9", "http": "127.0.0.1:8"}
    fleet, commands = play(fleet, register(50.0, sequence=1, **away))
    assert refused(commands).code == "ALREADY_EXISTS"
    assert fleet.instances["r"] == before
    fleet, _ = play(fleet, register(50.0, sequence=10, **away))
    assert fleet.instances["r"].grpc == "127.0.0.1:9"


@pytest.mark.parametrize(("key", "text"), [("model", "no model x"), ("version", "no version x")])
def test_what_the_config_does_not_know_cannot_register(key: str, text: str) -> None:
    fleet, commands = play(begun(), register(1.0, **{key: "x"}))
    assert refused(commands).code == "NOT_FOUND"
    assert text in refused(commands).refusal
    assert "r" not in fleet.instances
    fleet, commands = play(registered(), register(2.0, incarnation="r2", **{key: "x"}))
    assert refused(commands).code == "NOT_FOUND"
    assert fleet.instances["r"].incarnation == "r1"


def test_a_flood_of_names_ends_at_the_cap_and_those_that_are_known_may_still_register() -> None:
    fleet = registered()
    one = fleet.instances["r"]
    many = {f"r{i}": replace(one, name=f"r{i}") for i in range(INSTANCES_MAX)}
    fleet = replace(fleet, instances={"r": one} | dict(list(many.items())[1:]))
    fleet, commands = play(fleet, register(2.0, instance_id="s"), keep=False)
    assert refused(commands).code == "RESOURCE_EXHAUSTED"
    assert len(fleet.instances) == INSTANCES_MAX
    _, commands = play(fleet, register(2.0), keep=False)
    assert only(Answer, commands)[0].value == RegisterAnswer("", 30.0, 10.0)


def test_an_illegal_move_is_ignored_told_once_and_takes_the_instance_off() -> None:
    fleet, _ = play(both_ready(), observed("a", now=2.0, sequence=5))
    move = "a: READY to INITIALIZING is not legal in one incarnation"
    for source in (Source.WATCH, Source.REPLY, Source.POLL):
        wrong = observed("a", State.INITIALIZING, now=3.0, sequence=6, source=source)
        fleet, commands = play(fleet, wrong)
        assert texts(commands) == [move]
        assert fleet.instances["a"].state is State.READY
    wrong = observed("a", State.INITIALIZING, now=4.0, sequence=6)
    fleet, commands = play(fleet, wrong)
    assert move not in texts(commands)
    fleet, _ = play(fleet, wrong)
    assert targets(fleet) == ["b"]
    assert fleet.instances["a"].opinion.reason.endswith(move)


def beat(fleet: FleetSnapshot, now: float, **fields: object) -> tuple[FleetSnapshot, str]:
    fleet, commands = play(fleet, Beaten(6, status("r", **fields), 0, 0, now))  # type: ignore[arg-type]
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, BeatAnswer)
    return fleet, answer.value.order


def test_a_beat_of_an_unknown_id_or_incarnation_is_told_to_register() -> None:
    assert beat(begun(), 1.0)[1] == "REGISTER"
    assert beat(registered(), 2.0, incarnation="r9")[1] == "REGISTER"
    assert beat(registered(), 2.0)[1] == "NONE"


def test_a_frozen_instance_is_lost_after_its_ttl_and_rejoins_as_itself() -> None:
    fleet = registered()
    assert "r" in targets(fleet)
    expires = fleet.instances["r"].expires_at
    fleet, _ = play(fleet, Ticked(expires - 0.1))
    assert fleet.instances["r"].opinion.health is Health.GOOD
    fleet, _ = play(fleet, Ticked(expires))
    assert fleet.instances["r"].opinion.health is Health.LOST
    assert "r" not in targets(fleet)
    fleet, _ = beat(fleet, expires + 1)
    assert "r" not in targets(fleet)  # its word alone does not prove that we can reach it
    fleet, _ = play(fleet, _answer("r", expires + 2), _answer("r", expires + 3))
    assert "r" in targets(fleet)
    assert fleet.instances["r"].incarnation == "r1"


def test_what_is_lost_for_an_hour_is_forgotten() -> None:
    fleet = registered()
    fleet, _ = play(fleet, Ticked(fleet.instances["r"].expires_at))
    fleet, _ = play(fleet, Ticked(fleet.instances["r"].expires_at))
    assert "r" not in fleet.instances
    assert FORGET_S == 3600.0


def test_a_farewell_takes_it_off_at_once_and_the_name_is_free() -> None:
    fleet, commands = play(registered(), Deregistered("r", "r1", "stopped", 2.0))
    assert "r" not in targets(fleet)
    assert fleet.instances["r"].state is State.STOPPED
    assert only(Unfollow, commands) == [Unfollow("r")]
    away = register(3.0, incarnation="r2", grpc="127.0.0.1:9")
    fleet, _ = play(fleet, away)
    assert fleet.instances["r"].incarnation == "r2"


def test_a_farewell_of_an_old_incarnation_changes_nothing() -> None:
    fleet, _ = play(registered(), Deregistered("r", "r0", "stopped", 2.0))
    assert "r" in targets(fleet)


def test_the_same_address_twice_is_one_instance() -> None:
    fleet = registered()
    fleet, _ = play(fleet, register(2.0), register(3.0), _answer("r", 3.5))
    again = register(4.0, incarnation="r2")
    fleet, _ = play(fleet, again)
    assert [name for name in fleet.instances if name == "r"] == ["r"]
    assert fleet.instances["r"].incarnation == "r2"
    assert targets(fleet).count("r") == 0  # polled first


OTHER = STATICS.replace('"1" = 100', '"1" = 100, "2" = 100')


def test_the_same_incarnation_under_another_version_counts_and_is_judged_anew() -> None:
    fleet, _ = play(begun(OTHER), register(), _answer("r"))
    old = fleet.instances["r"]
    fleet, _ = play(fleet, register(2.0, version="2", sequence=2))
    assert targets(fleet) == []  # polled first
    fleet, _ = play(fleet, _answer("r", 3.0, version="2", sequence=2))
    new = fleet.instances["r"]
    assert new.slot != old.slot
    holder = fleet.book.holders[new.slot]
    assert (holder.version, holder.incarnation) == ("2", old.incarnation)
    assert fleet.book.holders[old.slot].left_at == 2.0
    assert (old.ready_since, new.ready_since) == (1.0, 2.0)
    assert targets(fleet) == ["r"]


def test_an_old_word_of_another_version_moves_nothing() -> None:
    fleet, _ = play(begun(OTHER), register(sequence=5), _answer("r", sequence=5))
    before = fleet.instances["r"]
    fleet, _ = play(fleet, register(2.0, version="2", sequence=4))
    assert fleet.instances["r"] == before


def test_the_first_labels_again_count_in_a_third_slot_while_the_first_is_not_folded() -> None:
    fleet, _ = play(begun(OTHER), register(), _answer("r"))
    first = fleet.instances["r"].slot
    for sequence, version in ((2, "2"), (3, "1")):
        again = register(float(sequence), version=version, sequence=sequence)
        fleet, _ = play(fleet, again)
    slots = {slot: one.version for slot, one in fleet.book.holders.items()}
    assert slots == {first: "1", first + 1: "2", first + 2: "1"}
    assert fleet.instances["r"].slot == first + 2


@pytest.mark.parametrize("state", [State.INITIALIZING, State.DRAINING, State.STOPPED, State.ERROR])
def test_an_instance_that_is_not_ready_is_in_no_table(state: State) -> None:
    fleet, _ = play(begun(), observed("a", state, phase=Phase.RELEASING))
    assert targets(fleet) == []


def test_the_next_tick_is_that_of_the_first_registration_to_run_out() -> None:
    _, commands = play(begun(), register(7.0))
    assert WakeAt(37.0) in commands


def test_a_drain_with_stop_ends_with_its_incarnation_and_one_without_stays_with_the_name() -> None:
    for stop, intent in ((True, Intent.ACTIVE), (False, Intent.DRAIN)):
        ask = DrainInstance("r", 5.0, stop, force=True)
        fleet, _ = play(registered(), Asked(1, ask, False, None, 2.0))
        fleet, _ = play(fleet, SlotSent(0, 1, 2.1), SlotEmptied(0, 1, 2.1))
        fleet, _ = play(fleet, _answer("r", 2.2, state=State.DRAINING, sequence=2))
        fleet, _ = play(fleet, Deregistered("r", "r1", "stopped", 3.0))
        assert fleet.drains["r"].ended is not None
        fleet, _ = play(fleet, register(4.0, incarnation="r2"))
        assert fleet.instances["r"].intent is intent
