"""What admin reads of a rollout: where it stands, why, what is left, what can be asked."""

from gateway.controlplane import views
from gateway.controlplane.rollout_views import rollouts
from gateway.fleet.snapshot import FleetSnapshot
from gateway.rollouts import AbortRollout, PauseRollout, PromoteRollout, RetryRollout, RolloutView
from tests.gateway.fleet.builders import play
from tests.gateway.fleet.rolling import (
    NEW,
    Traffic,
    asked,
    counts,
    gone,
    grown,
    serving,
    start,
    stepping,
)


def view(fleet: FleetSnapshot, now: float) -> RolloutView:
    return rollouts(fleet, "m", now)[0]


def test_a_step_says_what_it_has_counted_and_what_is_left() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    for now in (12.0, 13.0, 14.0):
        fleet, _ = traffic.second(fleet, now, counts(5, 1), counts(94))
    one = view(fleet, 14.5)
    assert (one.id, one.phase, one.step, one.version, one.stable) == ("m/1", "step", 1, "2", "1")
    assert one.hold_left_s == 6.5
    assert one.requests_left == 20 - one.canary.requests
    assert (one.canary.failures, one.canary.ready, one.canary.instances) == (3, 1, 1)
    assert one.baseline.requests == 282
    assert one.reason == fleet.watches["m"].said != ""
    assert one.verbs == ("promote", "pause", "abort")
    assert [(step.began, step.ended) for step in one.steps] == [
        (11.0, None),
        (None, None),
        (None, None),
    ]
    assert [told.phase for told in one.transitions] == [
        "pending",
        "checking_capacity",
        "starting",
        "validating",
        "step",
    ]
    assert one.transitions[0].by == "ann"
    assert {told.by for told in one.transitions[1:]} == {"gateway"}
    (model,) = views.models(fleet, _NoSegment(), {})  # type: ignore[arg-type]
    assert [(one.version, one.weight, one.replicas) for one in model.versions] == [
        ("1", 95.0, 1),
        ("2", 5.0, 1),
    ]


class _NoSegment:
    def waiting(self, section: int) -> int:
        return 0


def test_while_it_starts_it_says_who_is_waited_for() -> None:
    fleet, _ = play(serving(), asked(start(), 10.0), *grown(NEW, "2", 10.0)[:2])
    assert view(fleet, 11.0).reason.startswith("waits for its group: m-2-0 loading_model 20 %")
    assert view(fleet, 11.0).verbs == ("abort",)


def test_paused_promoting_and_rolled_back() -> None:
    fleet, _ = play(stepping(Traffic()), asked(PauseRollout("m"), 13.0))
    one = view(fleet, 50.0)
    assert (one.phase, one.reason, one.verbs) == (
        "paused",
        "paused by an operator",
        ("promote", "resume", "abort"),
    )
    fleet, _ = play(fleet, asked(PromoteRollout("m", full=True), 50.0))
    assert (view(fleet, 50.0).phase, view(fleet, 50.0).hold_left_s) == ("promoting", 20.0)
    fleet, _ = play(fleet, asked(AbortRollout("m", "slow"), 60.0))
    assert view(fleet, 60.0).verbs == ()
    fleet = gone(fleet, 61.0)
    one = view(fleet, 61.0)
    assert (one.phase, one.reason, one.ended) == ("rolled_back", "aborted: slow", 61.0)
    assert one.verbs == ("retry",)
    assert one.steps[0].ended == 50.0
    fleet, _ = play(fleet, asked(RetryRollout("m"), 70.0))
    assert [one.id for one in rollouts(fleet, None, 70.0)] == ["m/2", "m/1"]
    assert rollouts(fleet, "m", 70.0)[1].verbs == ()
    assert rollouts(fleet, "n", 70.0) == ()
