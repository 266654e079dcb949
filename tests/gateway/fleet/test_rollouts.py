"""A rollout from its start to its end, and back from everywhere."""

from dataclasses import replace
from math import inf, nextafter

from gateway.control import Denied, ResetWeights
from gateway.fleet.commands import Answer, Count, CountRollback, Launch
from gateway.fleet.drain import ROLLED_BACK
from gateway.fleet.events import ChildExited, SlotEmptied, SlotSent, Ticked
from gateway.fleet.rollouts import deadlines
from gateway.fleet.snapshot import FleetSnapshot
from gateway.rollout.machine import Phase
from gateway.rollouts import AbortRollout, PromoteRollout, RetryRollout, StartRollout
from tests.gateway.fleet.builders import only, play, targets
from tests.gateway.fleet.rolling import (
    NEW,
    OLD,
    STEPS,
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
    weights,
)


def test_a_good_version_takes_the_traffic_step_by_step() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    assert weights(fleet) == {"1": 95.0, "2": 5.0}
    seen, now = [], 11.0
    while at(fleet)[0] is not Phase.DONE and now < 200:
        now += 1.0
        share = weights(fleet)["2"]
        fleet, _ = traffic.second(fleet, now, counts(int(share)), counts(int(100 - share)))
        seen.append((at(fleet), weights(fleet)["2"]))
    told = list(dict.fromkeys(seen))
    assert told == [
        ((Phase.STEP, 1), 5.0),
        ((Phase.STEP, 2), 25.0),
        ((Phase.STEP, 3), 100.0),
        ((Phase.PROMOTING, 3), 100.0),
        ((Phase.DONE, 3), 100.0),
    ]
    assert [seen.count(one) for one in told[:4]] == [9, 10, 10, 20]


def test_a_version_that_fails_is_out_with_one_table_and_says_why() -> None:
    traffic = Traffic()
    fleet = stepping(traffic)
    before = fleet.generation
    fleet, commands = traffic.second(fleet, 13.0, counts(2, 18), counts(400))
    assert at(fleet) == (Phase.ROLLING_BACK, 1)
    assert rollout(fleet).ground == "failures"
    assert "18 of 20" in rollout(fleet).reason
    assert weights(fleet) == {"1": 100.0}
    assert fleet.generation == before + 1
    assert targets(fleet) == [OLD]
    assert fleet.weights("m")["1"].overridden is False
    assert only(Count, commands) == [Count("rollbacks", "failures")]
    assert len(only(CountRollback, commands)) == 1
    assert fleet.drains[NEW].stop
    assert fleet.drains[NEW].reason == ROLLED_BACK
    fleet, _ = play(fleet, SlotEmptied(0, fleet.drains[NEW].token, 13.5))
    fleet, _ = play(fleet, SlotSent(0, fleet.drains[NEW].token, 13.5))
    fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, 0, 14.0))
    assert at(fleet) == (Phase.ROLLED_BACK, 1)
    assert NEW not in fleet.instances
    assert fleet.replicas("m") == {"1": 1}
    fleet, commands = play(fleet, Ticked(5000.0))
    assert only(Launch, commands) == []  # nobody asked for it again


def test_what_was_rolled_back_is_tried_again_only_when_somebody_asks() -> None:
    traffic = Traffic()
    fleet, _ = traffic.second(stepping(traffic), 13.0, counts(2, 18), counts(400))
    fleet = gone(fleet, 14.0)
    assert set(fleet.blocked("m")) == {"2"}
    assert fleet.table is not None
    (route,) = (
        fleet.table.routes
    )  # whoever pins it is told that it is blocked, not that it is unknown
    assert [(one.name, one.weight, one.targets) for one in route.versions if one.blocked] == [
        ("2", 0.0, ())
    ]
    fleet, commands = traffic.play(fleet, asked(RetryRollout("m"), 20.0))
    assert [one.name for one in only(Launch, commands)] == [NEW]
    assert fleet.blocked("m") == {}
    fleet, _ = traffic.play(fleet, *grown(NEW, "2", 21.0))
    assert at(fleet) == (Phase.STEP, 1)
    assert rollout(fleet).id == "m/2"
    assert weights(fleet) == {"1": 95.0, "2": 5.0}
    fleet, _ = traffic.second(fleet, 23.0, counts(5), counts(95))
    assert at(fleet) == (Phase.STEP, 1)  # what the first one did is no evidence against it


def test_a_rollout_is_aborted_from_everywhere_and_everything_is_as_it_was() -> None:
    def aborted(fleet: FleetSnapshot, now: float) -> None:
        fleet, _ = play(fleet, asked(AbortRollout("m", "too slow"), now))
        assert rollout(fleet).phase in {Phase.ROLLING_BACK, Phase.ROLLED_BACK}
        assert rollout(fleet).reason == "aborted: too slow"
        assert rollout(fleet).transitions[-1 if rollout(fleet).active else -2].by == "ann"
        assert weights(fleet) == {"1": 100.0}
        assert fleet.weights("m")["1"].overridden is False
        assert targets(fleet) == [OLD]
        assert fleet.drains.get(OLD) is None
        fleet = gone(fleet, now + 1.0)
        assert at(fleet)[0] is Phase.ROLLED_BACK
        assert list(fleet.launches) == [OLD]

    starting, _ = play(serving(), asked(start(), 10.0))
    assert at(starting) == (Phase.STARTING, 0)
    aborted(starting, 11.0)
    held, _ = play(serving(), asked(start(replicas=1), 10.0), keep=False)
    assert rollout_or_none(held) is None  # the store has not answered
    traffic = Traffic()
    fleet, now = stepping(traffic), 11.0
    for phase in (Phase.STEP, Phase.PROMOTING):
        while at(fleet)[0] is not phase:
            now += 1.0
            fleet, _ = traffic.second(fleet, now, counts(50), counts(50))
        aborted(fleet, now)


def rollout_or_none(fleet: FleetSnapshot) -> object:
    return fleet.rollout("m")


NOW = 10_000.0


def wakes_at(held_s: float = 0.0, asked_at: float = NOW, tries_at: float = -inf) -> float:
    """When a rollout in its first step looks next."""
    fleet = stepping(Traffic())
    watch = replace(
        fleet.watches["m"], asked_at=asked_at, read_at=NOW, held_s=held_s, tries_at=tries_at
    )
    return min(deadlines(replace(fleet, watches={"m": watch}), NOW))


def test_a_rest_of_rounding_is_not_read_for_ever() -> None:
    """10 s were held but for the last bit: the next reading was due at once, again and again."""
    assert wakes_at(held_s=9.5) == NOW + 0.5
    assert NOW < wakes_at(held_s=nextafter(10.0, 0.0)) < NOW + 0.1


def test_nothing_is_looked_at_before_the_store_is_tried_again() -> None:
    """The reading that was due meanwhile woke control at once, for a second on end."""
    assert wakes_at(asked_at=-inf, tries_at=NOW + 1.0) == NOW + 1.0


def test_the_file_s_weights_do_not_come_back_for_a_version_that_was_rolled_back() -> None:
    """2 has taken over, and the way back to 1 was aborted: a reset would give all to nobody."""
    traffic = Traffic()
    fleet, _ = traffic.play(stepping(traffic), asked(PromoteRollout("m", full=True), 13.0))
    for second in range(14, 40):
        fleet, _ = traffic.second(fleet, float(second), counts(5), counts(0))
    assert at(fleet)[0] is Phase.DONE
    fleet, _ = traffic.play(fleet, asked(StartRollout("m", "1", steps=STEPS), 41.0))
    fleet, _ = traffic.play(fleet, asked(AbortRollout("m"), 42.0))
    assert "1" in fleet.blocked("m")
    fleet, commands = traffic.play(fleet, asked(ResetWeights("m"), 43.0))
    (denied,) = [one.value for one in only(Answer, commands)]
    assert isinstance(denied, Denied)
    assert "version 1 was rolled back" in str(denied)
    assert weights(fleet) == {"2": 100.0}
