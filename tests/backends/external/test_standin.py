"""The account of a server that is not ours."""

import pytest

from backends.external.counts import STALE_S, Counts
from backends.external.standin import StandIn
from sluicegate.v1.states import Phase
from tests.backends.external.rig import settings_for, standin_for


@pytest.fixture
def made() -> StandIn:
    standin = standin_for(settings_for(max_concurrency=8))
    standin.gate.widen(8, 2)
    standin.life.progress(Phase.WARMING_UP, 1.0, "", 0.0)
    standin.life.verified(0.0)
    return standin


def test_before_anything_is_known_it_says_so(made: StandIn) -> None:
    status = made.status()
    assert (status.progress_total, status.queue_depth, status.max_concurrency) == (0, 0, 8)


def test_rates_are_of_the_last_seconds(made: StandIn) -> None:
    made.scraped(Counts(2, 0, 10, 100, queue_s=1.0, queued=4), now=100.0)
    made.scraped(Counts(4, 3, 20, 150, queue_s=3.0, queued=8), now=105.0)
    readings = made.readings()
    assert readings.tokens_per_s == pytest.approx(10.0)
    assert readings.queue_wait_ms == pytest.approx(500.0)
    assert (readings.queue_depth, readings.batch_utilisation_ratio) == (3, 0.5)
    assert (readings.prompt_tokens_total, readings.completion_tokens_total) == (20, 150)
    assert readings.progress_total == 170
    made.scraped(Counts(0, 0, 20, 150, queue_s=3.0, queued=8), now=130.0)
    assert made.readings().tokens_per_s == 0


def test_without_steps_there_is_no_progress_to_be_told(made: StandIn) -> None:
    """The gateway then gives each request `first_byte_s` before it finds it stuck."""
    made.passed_bytes = 1000
    made.scraped(Counts(running=1), now=1.0)
    assert made.readings().progress_total == 0


def test_a_drain_is_over_when_both_counts_are_zero(made: StandIn) -> None:
    own = made.gate.admit(made.life.standing, "r-1")
    made.scraped(Counts(running=3), now=1.0)
    assert (made.gate.in_flight, made.own_in_flight) == (3, 1)
    made.life.drain(30.0, "asked", 1.0)
    own.give_back()
    assert "nothing is in flight" not in made.life.standing.reason
    made.scraped(Counts(running=1), now=1.2)
    assert made.gate.in_flight == 1
    made.scraped(Counts(running=0), now=1.4)
    assert made.life.standing.reason == "asked; nothing is in flight"


def test_gauges_that_stand_still_do_not_hold_up_a_drain_for_ever(made: StandIn) -> None:
    """vLLM's keep their last value when the last requests are aborted."""
    made.life.drain(30.0, "asked", 0.0)
    made.scraped(Counts(running=5, generation_tokens=7), now=0.0)
    made.scraped(Counts(running=5, generation_tokens=7), now=STALE_S - 0.1)
    assert made.gate.in_flight == 5
    made.scraped(Counts(running=5, generation_tokens=7), now=STALE_S)
    assert made.gate.in_flight == 0
    made.scraped(Counts(running=5, generation_tokens=8), now=STALE_S + 1)
    assert made.gate.in_flight == 5


def test_metrics_that_cannot_be_read_any_more_hold_up_nothing(made: StandIn) -> None:
    made.scraped(Counts(running=5), now=0.0)
    made.unscraped()
    assert made.gate.in_flight == 0


def test_what_the_server_holds_takes_no_place_of_ours(made: StandIn) -> None:
    made.scraped(Counts(running=100), now=0.0)
    for number in range(10):
        made.gate.admit(made.life.standing, f"r-{number}")
