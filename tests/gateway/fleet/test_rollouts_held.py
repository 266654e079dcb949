"""Why a rollout waits, or goes back at once: room, time, processes, samples, the store."""

from dataclasses import replace

import pytest

from gateway.config import parse
from gateway.control import Denied, SetWeights
from gateway.fleet.commands import Answer, LookUp, ReadNeeds, Validate, WakeAt, Write
from gateway.fleet.decide import decide
from gateway.fleet.events import (
    ChildExited,
    ChildrenSeen,
    EffectFailed,
    Event,
    IntentKept,
    NeedsRead,
    Ticked,
    WorkerLinked,
    WriteFailed,
)
from gateway.fleet.handing import FreezeAsked, Thawed
from gateway.fleet.restore import Life, restore
from gateway.fleet.rollout_events import CountsRead, Validated
from gateway.fleet.snapshot import FleetSnapshot, Stage
from gateway.fleet.stock import Stock
from gateway.fleet.table import standings
from gateway.rollout.machine import Phase
from gateway.rollouts import AbortRollout, CheckView, ResumeRollout
from tests.gateway.fleet.builders import LAYOUT, follow_up, only, play, targets
from tests.gateway.fleet.rolling import (
    CONFIG,
    NEW,
    OLD,
    Traffic,
    asked,
    at,
    counts,
    grown,
    rollout,
    serving,
    start,
    stepping,
    stored,
    weights,
)

GB = 1 << 30


def needing(
    fleet: FleetSnapshot, old_gb: float, new_gb: float, missing: bool = False, **given: object
) -> FleetSnapshot:
    """After a start, when the manifests say this."""
    needs = {("m", "1"): int(old_gb * GB), ("m", "2"): int(new_gb * GB), ("o", "1"): 5 * GB}
    absent = frozenset({("m", "2")} if missing else ())
    events: list[Event] = [asked(start(**given), 10.0)]
    fleet = replace(fleet, needs=needs)
    while events:
        fleet, commands = decide(fleet, events.pop(0))
        for one in commands:
            match one:
                case Write(_, then):
                    events.append(then)
                case LookUp(ask, _, version):
                    events.append(replace(ask, stock=Stock(version, True)))
                case ReadNeeds(pairs):
                    found = {pair: needs[pair] for pair in pairs}
                    events.append(NeedsRead(found, 10.0, absent & pairs))
    return fleet


def test_short_of_memory_it_is_held_with_the_figures_and_nothing_is_started() -> None:
    fleet = needing(serving(), 4, 3.5, replicas=2)
    assert at(fleet) == (Phase.CHECKING_CAPACITY, 0)
    said = "held: no room for version 2: 2 x 3.5 GB needed, 6.0 GB of 10.0 GB are free on d0"
    assert fleet.watches["m"].said == said
    assert list(fleet.launches) == [OLD]
    fleet, _ = play(fleet, NeedsRead({("m", "2"): 3 * GB}, 11.0))  # measured to be less
    assert at(fleet) == (Phase.STARTING, 0)
    assert set(fleet.launches) == {OLD, "m-2-0", "m-2-1"}


def test_by_force_it_is_started_whatever_is_free() -> None:
    fleet = needing(serving(), 9, 5, force=True)
    assert at(fleet) == (Phase.STARTING, 0)
    assert fleet.launches[NEW].pid == -1
    assert "no room" in rollout(fleet).reason


def test_what_others_wait_for_is_not_promised_again() -> None:
    other = CONFIG.replace("[[model]]", '[[model]]\nname = "o"\nweights = { "1" = 1 }\n'
                           'replicas = { "1" = 1 }\n[[model]]', 1)  # fmt: skip
    fleet = serving(other)
    assert fleet.launches["o-1-0"].pid == -1  # it has taken its place
    assert at(needing(fleet, 4, 2)) == (Phase.CHECKING_CAPACITY, 0)
    waits = replace(fleet.launches["o-1-0"], pid=0, stage=Stage.BACKING_OFF, retry_at=99.0)
    fleet = replace(fleet, launches={**fleet.launches, "o-1-0": waits})
    assert at(needing(fleet, 4, 2)) == (Phase.CHECKING_CAPACITY, 0)  # and has it to come back to
    assert at(needing(fleet, 4, 1)) == (Phase.STARTING, 0)


def test_a_version_that_left_the_repository_when_it_was_asked_for_is_sent_back_at_once() -> None:
    text = CONFIG.replace('command = ["serve"]\n', "")
    fleet = needing(serving(text), 0, 0, missing=True)
    assert at(fleet)[0] is Phase.ROLLED_BACK
    assert "has no version 2" in rollout(fleet).reason


def test_never_ready_it_is_sent_back_and_says_who_was_not() -> None:
    fleet, _ = play(serving(), asked(start(), 10.0), *grown(NEW, "2", 10.0)[:2])
    fleet, _ = play(fleet, Ticked(109.0))
    assert at(fleet) == (Phase.STARTING, 0)
    fleet, _ = play(fleet, Ticked(110.0))
    assert at(fleet) == (Phase.ROLLING_BACK, 0)
    assert rollout(fleet).reason.startswith("not READY after 100 s: m-2-0 loading_model 20 %")
    assert rollout(fleet).ground == "not_ready"
    assert targets(fleet) == [OLD]
    assert fleet.drains[NEW].deadline == 110.0  # nobody can hold anything on it


@pytest.mark.parametrize(("status_", "deaths"), [(78, 1), (1, 5)])
def test_one_that_gives_up_sends_its_version_back(status_: int, deaths: int) -> None:
    """An unusable snapshot at once, a crash loop when it is one."""
    fleet, _ = play(serving(), asked(start(), 10.0))
    now = 11.0
    for _ in range(deaths):
        assert at(fleet) == (Phase.STARTING, 0)
        fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, status_, now))
        now += 100.0 if fleet.launches.get(NEW) is None else 0.0
        launched = fleet.launches.get(NEW)
        if launched is not None and launched.retries:
            now = launched.retry_at
            fleet, _ = play(fleet, Ticked(now))
    assert rollout(fleet).ground == "instances"
    assert ("exit 78" if status_ == 78 else "crash loop") in rollout(fleet).reason
    assert at(fleet)[0] is Phase.ROLLED_BACK  # no process was left to wait for
    assert list(fleet.launches) == [OLD]


def test_deaths_of_the_new_group_are_evidence() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, -11, 12.5))
    fleet, _ = traffic.second(fleet, 13.5, counts(5), counts(95))
    assert fleet.watches["m"].evidence.restarts.canary == 1
    assert fleet.watches["m"].evidence.restarts.stable == 0
    assert at(fleet) == (Phase.STEP, 1)


def test_deaths_from_before_the_step_are_no_evidence() -> None:
    """An instance that died three times while it loaded sent its version back with no request."""
    traffic = Traffic()
    fleet, _ = traffic.play(serving(), asked(start(), 10.0))
    for now in (11.0, 20.0, 40.0):
        fleet, _ = traffic.play(fleet, Ticked(now), ChildExited(f"instance.{NEW}", 9, -11, now))
    assert fleet.deaths == {("m", "2"): 3}
    fleet, _ = traffic.play(fleet, Ticked(60.0), *grown(NEW, "2", 60.0))
    assert at(fleet) == (Phase.STEP, 1)
    assert fleet.watches["m"].evidence.restarts.canary == 0
    fleet, _ = traffic.second(fleet, 63.0, counts(5), counts(95))
    assert fleet.watches["m"].evidence.restarts.canary == 0


def test_deaths_under_weights_set_by_hand_are_no_evidence() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    fleet, _ = traffic.play(fleet, asked(SetWeights("m", {"2": 50.0}, override=True), 13.0))
    assert rollout(fleet).by_hand
    fleet, _ = traffic.play(fleet, ChildExited(f"instance.{NEW}", 9, -11, 14.0))
    assert fleet.deaths == {("m", "2"): 1}
    fleet, _ = traffic.play(fleet, asked(ResumeRollout("m"), 15.0), Ticked(16.5))
    assert at(fleet) == (Phase.STEP, 1)
    assert fleet.deaths == {}
    assert fleet.watches["m"].evidence.restarts.canary == 0


# --- validation ----------------------------------------------------------------------------------


def validating() -> tuple[FleetSnapshot, Validate]:
    fleet, _ = play(serving(), asked(start(samples="var/samples.jsonl"), 10.0))
    fleet, commands = play(fleet, *grown(NEW, "2", 10.0))
    assert at(fleet) == (Phase.VALIDATING, 0)
    (order,) = only(Validate, commands)  # once, however much happens meanwhile
    return fleet, order


def test_samples_are_tried_before_anything_real_is_sent() -> None:
    fleet, order = validating()
    assert (order.model, order.rollout, order.samples) == ("m", "m/1", "var/samples.jsonl")
    assert len(order.canary) == len(order.stable) == 1
    assert weights(fleet)["1"] == 100.0
    checks = (CheckView("errors", True, "0 of 20 failed"),)
    fleet, _ = play(fleet, Validated("m", "m/1", True, "20 samples passed", checks, 20.0))
    assert at(fleet) == (Phase.STEP, 1)
    assert rollout(fleet).checks == checks
    assert rollout(fleet).reason == "20 samples passed"


def test_a_version_that_fails_its_samples_never_has_a_request() -> None:
    fleet, _ = validating()
    fleet, _ = play(fleet, Validated("m", "m/1", False, "3 of 20 failed", (), 20.0))
    assert at(fleet) == (Phase.ROLLING_BACK, 0)
    assert rollout(fleet).ground == "validation"


def test_a_report_that_comes_too_late_changes_nothing() -> None:
    fleet, _ = validating()
    fleet, _ = play(fleet, asked(AbortRollout("m"), 15.0))
    fleet, _ = play(fleet, Validated("m", "m/1", True, "passed", (), 20.0))
    assert at(fleet)[0] is Phase.ROLLING_BACK


def test_a_report_that_comes_in_a_take_over_that_fails_is_asked_for_again() -> None:
    fleet, order = validating()
    fleet, commands = play(
        fleet, FreezeAsked(15.0), Validated("m", "m/1", True, "passed", (), 16.0), Ticked(18.0)
    )
    assert at(fleet) == (Phase.VALIDATING, 0)
    assert only(Validate, commands) == []  # a successor may be about to ask
    fleet, commands = play(fleet, Thawed(19.0))
    assert only(Validate, commands) == [order]
    fleet, _ = play(fleet, Validated("m", "m/1", True, "passed", (), 20.0))
    assert at(fleet) == (Phase.STEP, 1)


def test_a_validation_that_broke_is_tried_again_in_a_second() -> None:
    fleet, order = validating()
    fleet, commands = play(fleet, EffectFailed("Validate", "OSError()", 15.0))
    assert only(Validate, commands) == []
    assert [one.when for one in only(WakeAt, commands)] == [16.0]
    fleet, commands = play(fleet, Ticked(16.0))
    assert only(Validate, commands) == [order]


# --- the store, the way back, another gateway ----------------------------------------------------


def test_what_is_proved_bad_gets_nothing_though_the_store_fails() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    traffic.grow(counts(0, 50), counts(500))
    fleet, _ = decide(fleet, Ticked(13.0))
    fleet, commands = decide(fleet, read(traffic, 13.0))
    writes = [one for one in commands if isinstance(one, Write)]
    fleet, commands = decide(fleet, WriteFailed(writes[-1].then, "the disk is full", 13.1))
    fleet, _ = follow_up(fleet, commands, 13.1)
    assert at(fleet) == (Phase.STEP, 1)  # as the store has it
    assert weights(fleet) == {"1": 100.0}
    fleet, _ = traffic.play(fleet, Ticked(13.9))
    assert at(fleet) == (Phase.STEP, 1)
    fleet, _ = traffic.play(fleet, Ticked(14.2), Ticked(15.3))
    assert at(fleet)[0] is Phase.ROLLING_BACK
    assert weights(fleet) == {"1": 100.0}


def condemned(traffic: Traffic, fleet: FleetSnapshot) -> FleetSnapshot:
    """Proved bad at 13.0, and at 13.1 the store has failed."""
    traffic.grow(counts(0, 50), counts(500))
    fleet, _ = decide(fleet, Ticked(13.0))
    fleet, commands = decide(fleet, read(traffic, 13.0))
    writes = [one for one in commands if isinstance(one, Write)]
    fleet, commands = decide(fleet, WriteFailed(writes[-1].then, "the disk is full", 13.1))
    fleet, _ = follow_up(fleet, commands, 13.1)
    return fleet


def test_what_is_proved_bad_and_had_everything_leaves_it_to_the_old_though_the_store_fails() -> (
    None
):
    """Neither the weight of the new version nor the 0 of the old one may say who answers."""
    traffic = Traffic()
    steps = ({"weight": 100, "hold_s": 10, "requests_min": 20},)
    fleet = stepping(traffic, steps=steps)
    assert weights(fleet) == {"1": 0.0, "2": 100.0}
    fleet = condemned(traffic, fleet)
    assert at(fleet) == (Phase.STEP, 1)  # as the store has it
    assert weights(fleet) == {"1": 100.0}
    assert [fleet.routable(fleet.instances[name]) for name in (OLD, NEW)] == [True, False]
    said = {str(one.instance): one.reason for one in standings(fleet, 13.1)["m"]}
    assert said[OLD] == ""
    assert "was rolled back" in said[NEW]


def test_a_proof_that_was_reached_stands_though_the_next_requests_are_good() -> None:
    """It would be blocked for ever otherwise, in a step that nothing passes any more."""
    traffic = Traffic()
    fleet = condemned(traffic, stepping(traffic))
    proved = fleet.watches["m"].condemned
    assert proved is not None
    traffic.grow(counts(100_000), counts(100_000, 100_000))
    fleet, commands = decide(fleet, Ticked(14.2))
    (write,) = only(Write, commands)
    fleet, _ = decide(fleet, WriteFailed(write.then, "the disk is full", 14.3))
    assert fleet.watches["m"].condemned == proved
    fleet, _ = traffic.play(fleet, Ticked(15.4))
    assert at(fleet) == (Phase.ROLLING_BACK, 1)
    assert rollout(fleet).reason == proved.reason
    assert fleet.watches["m"].condemned is None


def read(traffic: Traffic, now: float) -> CountsRead:
    return CountsRead("m", "2", traffic.canary, traffic.stable, now)


def test_what_is_overdue_waits_for_the_store_without_a_loop() -> None:
    """A tick that is asked for in the past comes at once, again and again."""
    fleet, _ = play(serving(), asked(start(), 10.0))
    fleet, commands = decide(fleet, Ticked(500.0))  # not READY in time
    (write,) = only(Write, commands)
    fleet, commands = decide(fleet, WriteFailed(write.then, "the disk is full", 500.1))
    assert at(fleet) == (Phase.STARTING, 0)
    (wake,) = only(WakeAt, commands)
    assert wake.when == 501.1
    fleet, _ = play(fleet, Ticked(501.1))
    assert at(fleet)[0] is Phase.ROLLING_BACK


def test_a_start_that_the_store_cannot_take_is_no_rollout() -> None:
    fleet, commands = decide(serving(), asked(start(), 10.0))
    fleet, commands = decide(fleet, WriteFailed(IntentKept(1, 10.0), "the disk is full", 10.1))
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, Denied)
    assert fleet.rollouts == {}


@pytest.mark.parametrize(("how", "grace_s"), [("finish", 30.0), ("cut", 0.0)])
def test_streams_of_a_bad_version_finish_or_are_cut_as_the_config_says(
    how: str, grace_s: float
) -> None:
    text = CONFIG + f'at_rollback = "{how}"\n'
    fleet, _ = play(serving(text), asked(start(), 10.0), *grown(NEW, "2", 10.0))
    fleet, _ = play(fleet, asked(AbortRollout("m"), 15.0))
    drain = fleet.drains[NEW]
    assert drain.deadline - drain.began == grace_s
    assert drain.stop


def test_the_counters_of_another_gateway_begin_the_window_again() -> None:
    """And what was proved so far is not forgotten."""
    traffic = Traffic()
    fleet = stepping(traffic)
    for now in range(12, 20):
        fleet, _ = traffic.second(fleet, float(now), counts(50), counts(50))
    before = fleet.watches["m"]
    assert before.held_s > 6
    after = restore(parse(CONFIG), stored(fleet), Life(LAYOUT, 2, 0, 100.0, 0.0))
    after, _ = play(
        after,
        ChildrenSeen({"worker0.0": 7}, 1, frozenset(), 100.0),
        WorkerLinked(0, 0, 7, 0, 100.0),
    )
    assert at(after) == (Phase.STEP, 1)
    assert rollout(after).window == rollout(fleet).window + 1
    assert "begins again" in rollout(after).reason
    assert after.watches["m"].held_s == 0.0
    assert after.watches["m"].canary.requests == 0
    assert after.watches["m"].evidence == before.evidence
