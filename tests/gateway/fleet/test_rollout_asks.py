"""What operators ask of a rollout, who owns the weights, and what a new file may say meanwhile."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import parse
from gateway.control import Ask, Denied, Receipt, ResetWeights, SetWeights
from gateway.fleet.commands import Answer, Command, Write
from gateway.fleet.decide import decide
from gateway.fleet.events import (
    Asked,
    ChildExited,
    ChildrenSeen,
    SettingsRead,
    Ticked,
    WorkerLinked,
)
from gateway.fleet.restore import Life, restore
from gateway.fleet.rollout import shares
from gateway.fleet.rollout_events import CountsRead
from gateway.fleet.snapshot import FleetSnapshot
from gateway.rollout.machine import Phase
from gateway.rollouts import (
    AbortRollout,
    PauseRollout,
    PromoteRollout,
    ResumeRollout,
    RetryRollout,
    StartRollout,
)
from tests.gateway.fleet.builders import LAYOUT, follow_up, only, play
from tests.gateway.fleet.rolling import (
    CONFIG,
    NEW,
    OLD,
    Traffic,
    asked,
    at,
    counts,
    gone,
    grown,
    rollout,
    serving,
    start,
    stepping,
    stored,
    weights,
)


def answered(commands: list[Command]) -> Receipt | Denied:
    (answer,) = [one for one in only(Answer, commands) if one.ticket == 1]
    assert isinstance(answer.value, Receipt | Denied)
    return answer.value


def ask(fleet: FleetSnapshot, one: Ask, now: float = 20.0) -> tuple[FleetSnapshot, str]:
    """After the ask, and the code of its refusal, "" when it was made."""
    fleet, commands = play(fleet, asked(one, now))
    value = answered(commands)
    return fleet, value.code if isinstance(value, Denied) else ""


# --- starting ------------------------------------------------------------------------------------


def test_a_dry_run_is_the_whole_plan_and_changes_nothing() -> None:
    before = serving()
    fleet, commands = play(before, Asked(1, start(replicas=2), True, None, 10.0))
    receipt = answered(commands)
    assert isinstance(receipt, Receipt)
    assert receipt.changes == (
        "rollout m/1: version 2 takes the traffic of 1",
        "group of 2 instances beside that of 1: its memory is looked up when it begins",
        "no samples: not validated",
        "step 1: 5 % for 10 s and 20 requests",
        "step 2: 25 % for 10 s and 20 requests",
        "step 3: 100 % for 10 s and 20 requests",
        "then all traffic; the old group is kept for 20 s, and stopped",
    )
    assert fleet.rollouts == {}


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (StartRollout("n", "2"), "unknown_model"),
        (StartRollout("m", "a b"), "invalid"),
        (StartRollout("m", "1"), "conflict"),  # it has the traffic
        (StartRollout("m", "2", replicas=-1), "invalid"),
        (StartRollout("m", "2", replicas=0), "conflict"),  # and none is there
        (StartRollout("m", "2", steps=()), "invalid"),
        (StartRollout("m", "2", steps=({"weight": 0},)), "invalid"),
        (StartRollout("m", "2", steps=({"weight": 50}, {"weight": 5})), "invalid"),
        (StartRollout("m", "2", steps=({"weight": 50, "hold": 3},)), "invalid"),
        (PauseRollout("m"), "unknown_rollout"),
        (RetryRollout("n"), "unknown_model"),
    ],
)
def test_what_cannot_be_started_is_refused(one: Ask, code: str) -> None:
    fleet, said = ask(serving(), one)
    assert said == code
    assert fleet.rollouts == {}


def test_one_at_a_time_and_the_same_again_is_no_change() -> None:
    fleet = stepping(Traffic())
    assert ask(fleet, StartRollout("m", "3"))[1] == "conflict"
    after, said = ask(fleet, start())
    assert said == ""
    assert after.revision == fleet.revision


def test_the_group_that_is_there_is_taken_as_it_is() -> None:
    text = CONFIG.replace('"1" = 100', '"1" = 100, "2" = 0')
    text = text.replace('"1" = 1 }', '"1" = 1, "2" = 1 }')
    fleet, _ = play(serving(text), *grown(NEW, "2", 5.0))
    before = dict(fleet.launches)
    fleet, said = ask(fleet, start(), 10.0)
    assert said == ""
    assert at(fleet) == (Phase.STEP, 1)
    assert fleet.launches == before


# --- verbs ---------------------------------------------------------------------------------------


def test_paused_it_goes_no_further_and_resumed_it_holds_what_was_left() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    for now in range(12, 16):
        fleet, _ = traffic.second(fleet, float(now), counts(50), counts(50))
    fleet, said = ask(fleet, PauseRollout("m"), 16.0)
    assert (said, at(fleet)) == ("", (Phase.PAUSED, 1))
    for now in range(17, 100):
        fleet, _ = traffic.second(fleet, float(now), counts(50), counts(50))
    assert at(fleet) == (Phase.PAUSED, 1)
    assert weights(fleet) == {"1": 95.0, "2": 5.0}
    fleet, _ = traffic.play(fleet, asked(ResumeRollout("m"), 100.0))
    passed = 100
    while at(fleet) == (Phase.STEP, 1):
        passed += 1
        fleet, _ = traffic.second(fleet, float(passed), counts(50), counts(50))
    assert passed == 106  # of 10 s, 4 were held before


def test_paused_it_is_rolled_back_all_the_same() -> None:
    traffic = Traffic()
    fleet, _ = ask(stepping(traffic), PauseRollout("m"), 13.0)
    fleet, _ = traffic.second(fleet, 14.0, counts(2, 18), counts(400))
    assert at(fleet)[0] is Phase.ROLLING_BACK


def test_promoted_it_does_not_wait() -> None:
    fleet, _ = ask(stepping(Traffic()), PromoteRollout("m"), 13.0)
    assert at(fleet) == (Phase.STEP, 2)
    fleet, _ = ask(fleet, PromoteRollout("m", full=True), 14.0)
    assert at(fleet) == (Phase.PROMOTING, 3)
    assert weights(fleet) == {"1": 0.0, "2": 100.0}
    assert ask(fleet, PromoteRollout("m"), 15.0)[1] == "conflict"
    assert ask(fleet, PauseRollout("m"), 15.0)[1] == "conflict"


def test_what_is_to_leave_a_step_that_has_passed_skips_no_other() -> None:
    fleet, _ = ask(stepping(Traffic()), PromoteRollout("m", step=1), 13.0)
    assert at(fleet) == (Phase.STEP, 2)
    fleet, said = ask(fleet, PromoteRollout("m", step=1), 14.0)
    assert (at(fleet), said) == ((Phase.STEP, 2), "conflict")
    assert ask(fleet, PromoteRollout("m", True, 1), 14.0)[1] == "conflict"


def test_a_step_that_passes_while_it_is_promoted_is_not_promoted_twice() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    for now in range(12, 21):
        fleet, _ = traffic.second(fleet, float(now), counts(50), counts(50))
    fleet, (write, *_) = decide(fleet, asked(PromoteRollout("m"), 20.5))
    assert isinstance(write, Write)
    fleet, _ = decide(fleet, Ticked(21.0))
    fleet, _ = decide(fleet, CountsRead("m", "2", traffic.canary, traffic.stable, 21.0))
    assert len(fleet.asks) == 2  # the step has passed, too, and waits for the store
    fleet, commands = decide(fleet, replace(write.then, now=21.1))
    fleet, _ = follow_up(fleet, commands, 21.1)
    assert at(fleet) == (Phase.STEP, 2)
    assert fleet.asks == ()


def test_a_gate_waits_for_somebody() -> None:
    traffic = Traffic()
    steps = ({"weight": 5, "hold_s": 2, "requests_min": 1, "gate": True}, {"weight": 50})
    fleet = stepping(traffic, steps=steps)
    for now in range(12, 40):
        fleet, _ = traffic.second(fleet, float(now), counts(50), counts(50))
    assert at(fleet) == (Phase.STEP, 1)
    assert fleet.watches["m"].said.startswith("waits for promote")
    fleet, _ = ask(fleet, PromoteRollout("m"), 40.0)
    assert at(fleet) == (Phase.STEP, 2)


def test_silence_is_no_pass() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    for now in range(12, 60):
        fleet, _ = traffic.second(fleet, float(now), counts(), counts(100))
    assert at(fleet) == (Phase.STEP, 1)
    assert "0 of 20" in fleet.watches["m"].said


# --- who owns the weights ------------------------------------------------------------------------


def test_weights_are_the_rollout_s_until_somebody_takes_them() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    for one in (SetWeights("m", {"1": 1.0, "2": 1.0}), ResetWeights("m")):
        fleet, said = ask(fleet, one)
        assert said == "conflict"
        assert weights(fleet) == {"1": 95.0, "2": 5.0}
    fleet, said = ask(fleet, SetWeights("m", {"1": 1.0, "2": 1.0}, override=True))
    assert said == ""
    assert at(fleet) == (Phase.PAUSED, 1)
    assert weights(fleet) == {"1": 1.0, "2": 1.0}
    fleet, _ = traffic.second(fleet, 30.0, counts(0, 500), counts(500))
    assert at(fleet) == (Phase.PAUSED, 1)  # who set them has to look
    fleet, said = ask(fleet, SetWeights("m", {"1": 3.0, "2": 1.0}), 31.0)
    assert said == ""
    fleet, _ = traffic.play(fleet, asked(ResumeRollout("m"), 32.0))
    assert weights(fleet) == {"1": 95.0, "2": 5.0}
    fleet, _ = traffic.second(fleet, 33.0, counts(5), counts(95))
    assert at(fleet) == (Phase.STEP, 1)
    assert fleet.watches["m"].canary.requests == 5


def test_who_has_set_the_weights_is_not_overruled_by_an_instance_that_gives_up() -> None:
    fleet, _ = ask(stepping(Traffic()), SetWeights("m", {"1": 1.0, "2": 1.0}, override=True))
    fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, 78, 21.0), Ticked(30.0))
    assert at(fleet) == (Phase.PAUSED, 1)
    assert {name: one.weight for name, one in fleet.weights("m").items()} == {"1": 1.0, "2": 1.0}
    fleet, _ = play(fleet, asked(ResumeRollout("m"), 32.0))
    assert at(fleet)[0] in {Phase.ROLLING_BACK, Phase.ROLLED_BACK}
    assert rollout(fleet).ground == "instances"


def test_what_was_rolled_back_gets_a_weight_only_by_override() -> None:
    fleet, _ = ask(stepping(Traffic()), AbortRollout("m"), 13.0)
    fleet = gone(fleet, 15.0)
    assert at(fleet)[0] is Phase.ROLLED_BACK
    both = {"1": 1.0, "2": 1.0}
    # Nobody of it is there any more: the version is known by its weight only.
    fleet, _ = ask(fleet, SetWeights("m", {"1": 2.0}), 30.0)
    assert ask(fleet, SetWeights("m", both), 31.0)[1] in {"conflict", "invalid"}
    assert set(fleet.blocked("m")) == {"2"}


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 1e6), min_size=1),
    st.floats(0.001, 100.0),
)
def test_shares_are_exactly_as_promised(rest: dict[str, float], percent: float) -> None:
    found = shares(rest, "new", percent)
    whole = sum(found.values())
    assert whole == pytest.approx(100.0, rel=1e-12)
    assert found["new"] == percent
    left = sum(rest.values())
    for version, weight in rest.items():
        expected = (100.0 - percent) * weight / left
        assert found[version] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert shares(rest, "new", 100.0) == dict.fromkeys(rest, 0.0) | {"new": 100.0}


# --- what a new file says ------------------------------------------------------------------------


def read(fleet: FleetSnapshot, text: str, now: float) -> tuple[FleetSnapshot, Receipt | Denied]:
    event = SettingsRead(1, "a test", False, None, text, parse(text), (), now)
    fleet, commands = play(fleet, event)
    return fleet, answered(commands)


def test_a_file_that_says_something_else_of_a_rollout_s_weights_is_refused_by_name() -> None:
    fleet = stepping(Traffic())
    for change, path in (
        (('"1" = 100', '"1" = 90'), "model[0].weights.1"),
        (('"1" = 100', '"1" = 100, "2" = 50'), "model[0].weights.2"),
        (('replicas = { "1" = 1 }', 'replicas = { "1" = 2 }'), "model[0].replicas.1"),
    ):
        after, said = read(fleet, CONFIG.replace(*change), 14.0)
        assert isinstance(said, Denied)
        assert [problem.path for problem in said.problems] == [path]
        assert "rollout m/1" in str(said.problems[0])
        assert after.weights("m") == fleet.weights("m")
    after, said = read(fleet, CONFIG + "\n", 14.0)
    assert isinstance(said, Receipt)
    after, said = read(fleet, CONFIG.replace("[model.rollout]", "limit = 9\n[model.rollout]"), 14.0)
    assert isinstance(said, Receipt)


def test_a_promoted_version_that_the_file_names_later_is_not_started_again() -> None:
    traffic = Traffic()
    fleet, _ = ask(stepping(traffic), PromoteRollout("m", full=True), 13.0)
    for now in range(14, 36):
        fleet, _ = traffic.second(fleet, float(now), counts(100), counts())
    assert at(fleet)[0] is Phase.DONE
    assert fleet.replicas("m") == {"1": 0, "2": 1}
    named = CONFIG.replace('"1" = 100', '"2" = 100').replace('{ "1" = 1 }', '{ "2" = 1 }')
    before = fleet.launches[NEW]
    fleet, said = read(fleet, named, 40.0)
    assert isinstance(said, Receipt)
    assert fleet.replicas("m") == {"2": 1}
    assert fleet.replica_overrides == {}
    assert fleet.overrides == {}
    assert fleet.launches[NEW] == before
    assert weights(fleet)["2"] == 100.0


def restarted(before: FleetSnapshot, weights: str) -> FleetSnapshot:
    """With another file, under everything that runs."""
    life = Life(LAYOUT, 1, before.generation, 20.0, 0.0)
    running = {f"instance.{name}": 9 for name in (OLD, NEW)}
    fleet, _ = play(
        restore(parse(CONFIG.replace('"1" = 100', weights)), stored(before), life),
        ChildrenSeen({"worker0.0": 7, **running}, 1, frozenset(), 20.0),
        WorkerLinked(0, 0, 7, before.generation, 20.0),
    )
    return fleet


def test_a_file_that_gives_everything_to_the_new_version_does_not_leave_nobody_at_a_rollback() -> (
    None
):
    """Its instances leave: who was there before takes the requests, whatever the file says."""
    fleet = restarted(stepping(Traffic()), '"1" = 0, "2" = 100')
    fleet, _ = ask(fleet, AbortRollout("m"), 30.0)
    assert set(fleet.blocked("m")) == {"2"}
    in_force = {version: one.weight for version, one in fleet.weights("m").items()}
    assert in_force == {"1": 100.0, "2": 0.0}


def test_a_blocked_version_is_unblocked_by_the_weight_that_it_has() -> None:
    fleet = restarted(stepping(Traffic()), '"1" = 50, "2" = 50')
    fleet, _ = ask(fleet, AbortRollout("m"), 30.0)
    fleet = gone(fleet, 31.0)
    assert (at(fleet)[0], set(fleet.blocked("m"))) == (Phase.ROLLED_BACK, {"2"})
    both = {"1": 50.0, "2": 50.0}
    assert {version: one.weight for version, one in fleet.weights("m").items()} == both
    fleet, said = ask(fleet, SetWeights("m", both), 32.0)
    assert (said, set(fleet.blocked("m"))) == ("conflict", {"2"})
    fleet, said = ask(fleet, SetWeights("m", both, override=True), 33.0)
    assert (said, set(fleet.blocked("m"))) == ("", set())


def test_a_file_that_was_changed_while_no_gateway_ran_does_not_take_the_weights() -> None:
    """It could not be refused: what it says counts when the rollout has ended."""
    fleet = restarted(stepping(Traffic()), '"1" = 50, "2" = 50, "3" = 7')
    assert at(fleet) == (Phase.STEP, 1)
    in_force = {version: one.weight for version, one in fleet.weights("m").items()}
    assert in_force == {"1": 95.0, "2": 5.0, "3": 0.0}
    assert set(fleet.launches) == {OLD, NEW}
    fleet, _ = ask(fleet, AbortRollout("m"), 30.0)
    assert set(fleet.blocked("m")) == {"2"}
    in_force = {version: one.weight for version, one in fleet.weights("m").items()}
    assert in_force == {"1": 50.0, "2": 50.0, "3": 7.0}  # as the file has it; 2 is blocked


def test_a_file_that_gives_weight_to_what_was_rolled_back_is_refused_by_name() -> None:
    fleet, _ = ask(stepping(Traffic()), AbortRollout("m", "too slow"), 13.0)
    fleet = gone(fleet, 15.0)
    text = CONFIG.replace('"1" = 100', '"1" = 50, "2" = 50')
    fleet, said = read(fleet, text, 20.0)
    assert isinstance(said, Denied)
    assert [problem.path for problem in said.problems] == ["model[0].weights.2"]
    assert "too slow" in str(said.problems[0])
    _, said = read(fleet, CONFIG.replace('"1" = 100', '"1" = 50, "2" = 0'), 21.0)
    assert isinstance(said, Receipt)


def test_a_weight_by_override_lifts_the_block() -> None:
    fleet, _ = ask(stepping(Traffic()), AbortRollout("m"), 13.0)
    fleet, _ = read(gone(fleet, 15.0), CONFIG.replace('"1" = 100', '"1" = 100, "2" = 0'), 16.0)
    both = {"1": 1.0, "2": 1.0}
    fleet, said = ask(fleet, SetWeights("m", both), 17.0)
    assert (said, set(fleet.blocked("m"))) == ("conflict", {"2"})
    fleet, said = ask(fleet, SetWeights("m", both, override=True), 18.0)
    assert (said, set(fleet.blocked("m"))) == ("", set())
    assert at(fleet)[0] is Phase.ROLLED_BACK
    assert {name: one.weight for name, one in fleet.weights("m").items()} == both


def test_ticks_alone_move_nothing() -> None:
    fleet = stepping(Traffic())
    before = rollout(fleet)
    fleet, _ = play(fleet, *(Ticked(13.0 + n) for n in range(100)))
    assert rollout(fleet) == before
