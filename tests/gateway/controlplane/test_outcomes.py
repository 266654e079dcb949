"""Real cells, written by a real ledger."""

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gateway.controlplane.outcomes import Outcomes
from gateway.fleet.events import RequestsFailed
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import Health, Outcome
from gateway.state.ledger import Ledger
from gateway.state.shared import Segment, create
from tests.gateway.fleet.builders import LAYOUT, both_ready

LIMIT = 10  # of [poll] failed_requests


class Bench:
    def __init__(self, fd: int) -> None:
        segment = Segment(fd)
        self.fleet = both_ready()
        self.slot = self.fleet.instances["a"].slot
        self.rows = [Ledger(segment, row) for row in (0, 1)]  # of two workers
        self.outcomes = Outcomes(segment)
        assert self.look() == []

    def end(self, outcome: Outcome, times: int = 1, drawn: bool = True) -> None:
        for number in range(times):
            ledger = self.rows[number % 2]
            ledger.reread()
            lease = ledger.open(self.slot, 1, 1, b"", 0, drawn=drawn)
            ledger.settle(lease, outcome, 0, 0)

    def look(self, fleet: FleetSnapshot | None = None) -> list[object]:
        return list(self.outcomes.look(fleet or self.fleet, 5.0))

    def with_a(self, **fields: object) -> FleetSnapshot:
        changed = replace(self.fleet.instances["a"], **fields)  # type: ignore[arg-type]
        return replace(self.fleet, instances={**self.fleet.instances, "a": changed})


@pytest.fixture
def bench() -> Iterator[Bench]:
    fd = create(LAYOUT)
    yield Bench(fd)
    os.close(fd)


def test_so_many_failures_without_one_request_served_are_told_once(bench: Bench) -> None:
    bench.end(Outcome.INSTANCE_ERROR, LIMIT - 1)
    assert bench.look() == []
    bench.end(Outcome.RESET)
    assert bench.look() == [RequestsFailed(bench.slot, LIMIT, 5.0)]
    assert bench.look() == []
    bench.end(Outcome.TIMED_OUT, LIMIT)
    assert bench.look() == [RequestsFailed(bench.slot, LIMIT, 5.0)]


def test_pinned_and_test_traffic_says_as_much_of_an_instance_as_any_other(bench: Bench) -> None:
    bench.end(Outcome.RESET, LIMIT - 1, drawn=False)
    bench.end(Outcome.SERVED, drawn=False)
    assert bench.look() == []
    bench.end(Outcome.RESET, LIMIT - 1, drawn=False)
    assert bench.look() == []
    bench.end(Outcome.RESET, drawn=False)
    assert bench.look() == [RequestsFailed(bench.slot, LIMIT, 5.0)]


def test_a_request_that_is_served_ends_the_streak(bench: Bench) -> None:
    bench.end(Outcome.INSTANCE_ERROR, LIMIT - 1)
    bench.end(Outcome.SERVED)
    assert bench.look() == []
    bench.end(Outcome.INSTANCE_ERROR, LIMIT - 1)
    assert bench.look() == []


@pytest.mark.parametrize("outcome", [Outcome.CLIENT_GONE, Outcome.CUT, Outcome.REFUSED])
def test_what_blames_nobody_is_no_failure(bench: Bench, outcome: Outcome) -> None:
    bench.end(outcome, 3 * LIMIT)
    assert bench.look() == []


def test_another_incarnation_and_one_that_comes_back_begin_anew(bench: Bench) -> None:
    bench.end(Outcome.EMPTY, LIMIT - 1)
    assert bench.look(bench.with_a(incarnation="a2")) == []
    bench.end(Outcome.EMPTY)
    assert bench.look(bench.with_a(incarnation="a2")) == []
    opinion = replace(bench.fleet.instances["a"].opinion, health=Health.SUSPECT)
    bench.end(Outcome.EMPTY, LIMIT)
    assert bench.look(bench.with_a(incarnation="a2", opinion=opinion)) == []
    assert bench.look(bench.with_a(incarnation="a2")) == []


def test_a_limit_of_0_looks_at_nothing(bench: Bench) -> None:
    poll = bench.fleet.settings.poll.model_copy(update={"failed_requests": 0})
    settings = bench.fleet.settings.model_copy(update={"poll": poll})
    bench.end(Outcome.INSTANCE_ERROR, 3 * LIMIT)
    assert bench.look(replace(bench.fleet, settings=settings)) == []
