"""A real segment, written as workers write it, read back as Prometheus reads it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.errors import REFUSALS
from gateway.records import Outcome
from gateway.state.ledger import Ledger
from gateway.state.shared import SLOT_CELLS, Layout, Segment, create
from gateway.telemetry import fleet, metrics
from gateway.telemetry.metrics import Owner, Readings, Retained, exposition
from gateway.telemetry.tally import Tally
from tests.admin.fakes import INSTANCE, STATUS

MS = 1_000_000  # nanoseconds
NOTHING = Readings((), (), {}, STATUS, (), Tally())
OWNED = replace(NOTHING, owners=(Owner(0, "m", "1", "m-1-0"),), sections={"m": 1})

Labels = frozenset[tuple[str, str]]


@dataclass(slots=True)
class Page:
    """Samples of one scrape by name and labels."""

    values: dict[tuple[str, Labels], float] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.values[f"sluicegate_{name}", frozenset(labels.items())]

    def series(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for one, labels in self.values if one == f"sluicegate_{name}"]

    def buckets(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """(upper bound, count), in order."""
        found = []
        for (one, given_labels), count in self.values.items():
            rest = dict(given_labels)
            if one == f"sluicegate_{name}_bucket":
                bound = float(rest.pop("le"))
                if rest == labels:
                    found.append((bound, count))
        return sorted(found)


def scrape(segment: Segment, readings: Readings) -> Page:
    page = Page()
    for family in text_string_to_metric_families(exposition(segment, readings).decode()):
        page.kinds[family.name] = family.type
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in page.values, f"{key} is shown twice"
            page.values[key] = sample.value
    return page


@pytest.fixture
def segment() -> Iterator[Segment]:
    fd = create(Layout(rows=2, slots=4, sections=4, leases=8))
    yield Segment(fd)
    os.close(fd)


def _serve(ledger: Ledger, slot: int, outcome: Outcome, first_ns: int, whole_ns: int) -> None:
    lease = ledger.open(slot, 1, 1, b"", 0)
    ledger.streaming(lease, first_ns)
    ledger.settle(lease, outcome, whole_ns, 10)
    ledger.ended(slot, outcome)


def test_requests_and_attempts_are_counted_by_outcome_over_all_workers(segment: Segment) -> None:
    for row in (0, 1):
        _serve(Ledger(segment, row), 0, Outcome.SERVED, MS, 2 * MS)
    replayed = Ledger(segment, 0)
    lease = replayed.open(0, 1, 2, b"", 0)
    replayed.settle(lease, Outcome.RESET, MS, 0)
    page = scrape(segment, OWNED)
    version = {"model": "m", "version": "1"}
    assert page.value("requests_total", **version, outcome="served") == 2
    assert page.value("requests_total", **version, outcome="reset") == 0
    assert page.value("attempts_total", **version, outcome="reset") == 1
    assert page.kinds["sluicegate_requests"] == "counter"


def test_a_gauge_of_requests_in_flight_is_the_ledger(segment: Segment) -> None:
    ledger = Ledger(segment, 1)
    leases = [ledger.open(0, 1, number, b"", 0) for number in range(3)]
    readings = replace(OWNED, instances=(INSTANCE,))
    labels = {"model": "m", "version": "1", "instance": "m-1-0"}
    assert scrape(segment, readings).value("in_flight", **labels) == 3
    ledger.settle(leases[0], Outcome.SERVED, MS, 0)
    assert scrape(segment, readings).value("in_flight", **labels) == 2


def test_two_incarnations_of_an_instance_are_one_series(segment: Segment) -> None:
    ledger = Ledger(segment, 0)
    ledger.open(0, 1, 1, b"", 0)
    ledger.open(2, 1, 2, b"", 0)
    owners = (Owner(0, "m", "1", "m-1-0"), Owner(2, "m", "1", "m-1-0"))
    page = scrape(segment, replace(OWNED, owners=owners, instances=(INSTANCE,)))
    assert page.value("in_flight", model="m", version="1", instance="m-1-0") == 2


def test_the_series_of_a_removed_instance_end_and_its_counts_stay(segment: Segment) -> None:
    ledger = Ledger(segment, 0)
    _serve(ledger, 0, Outcome.SERVED, MS, 2 * MS)
    before = scrape(segment, replace(OWNED, instances=(INSTANCE,)))
    base = Retained("m", "1", segment.slot_totals(0))
    after = scrape(segment, replace(NOTHING, retained=(base,)))
    assert [row for row in after.values if ("instance", "m-1-0") in row[1]] == []
    served = {"model": "m", "version": "1", "outcome": "served"}
    assert after.value("requests_total", **served) == before.value("requests_total", **served) == 1
    version = {"model": "m", "version": "1"}
    name = "request_duration_seconds"
    assert after.buckets(name, **version) == before.buckets(name, **version)


def test_a_slot_still_held_by_an_instance_that_is_gone_is_shown(segment: Segment) -> None:
    lease = (ledger := Ledger(segment, 0)).open(0, 1, 1, b"", 0)
    labels = {"model": "m", "version": "1", "instance": "m-1-0"}
    assert scrape(segment, OWNED).value("in_flight", **labels) == 1
    ledger.settle(lease, Outcome.CUT, MS, 0)
    assert scrape(segment, OWNED).series("in_flight") == []


def test_durations_land_in_the_buckets_that_hold_them(segment: Segment) -> None:
    ledger = Ledger(segment, 0)
    _serve(ledger, 0, Outcome.SERVED, 3 * MS, 700 * MS)
    _serve(ledger, 0, Outcome.SERVED, 5 * MS, 3_600_000 * MS)  # longer than every bound
    page = scrape(segment, OWNED)
    version = {"model": "m", "version": "1"}
    whole = page.buckets("request_duration_seconds", **version)
    assert next(bound for bound, count in whole if count == 1) == pytest.approx(0.786432)
    assert whole[-1] == (float("inf"), 2)
    assert whole[-2][1] == 1
    assert page.value("request_duration_seconds_sum", **version) == pytest.approx(3600.7)
    assert page.value("request_duration_seconds_count", **version) == 2
    first = page.buckets("time_to_first_byte_seconds", **version)
    assert [count for bound, count in first if bound == 0.003072] == [1]
    assert [count for bound, count in first if bound == 0.006144] == [2]


@given(micros=st.lists(st.integers(0, 1 << 34), max_size=20))
@settings(max_examples=10, deadline=None)  # a scrape and its parsing take 30 ms
def test_buckets_are_cumulative_and_count_what_is_below_their_bound(micros: list[int]) -> None:
    fd = create(Layout(rows=1, slots=1, sections=2, leases=2))
    ledger = Ledger(Segment(fd), 0)
    for one in micros:
        _serve(ledger, 0, Outcome.SERVED, 0, one * 1000)
    page = scrape(Segment(fd), OWNED)
    os.close(fd)
    buckets = page.buckets("request_duration_seconds", model="m", version="1")
    assert all(low[1] <= high[1] for low, high in pairwise(buckets))
    for bound, count in buckets:
        assert count == sum(one / 1_000_000 < bound for one in micros)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(list(Outcome)), st.booleans()), max_size=8
    )
)
@settings(max_examples=10, deadline=None)
def test_no_total_ever_goes_back(steps: list[tuple[int, Outcome, bool]]) -> None:
    """Whatever is served, and whenever a slot is folded into its version and used again."""
    fd = create(Layout(rows=1, slots=4, sections=2, leases=2))
    segment = Segment(fd)
    ledger = Ledger(segment, 0)
    retained = [0] * SLOT_CELLS
    last: dict[tuple[str, Labels], float] = {}
    for slot, outcome, folds in steps:
        _serve(ledger, slot, outcome, MS, 3 * MS)
        if folds:
            retained = [a + b for a, b in zip(retained, segment.slot_totals(slot), strict=True)]
            at = segment.slot_base(0, slot)
            for cell in range(SLOT_CELLS):
                segment.cells[at + cell] = 0
        owners = tuple(Owner(one, "m", "1", f"m-1-{one}") for one in range(4))
        base = Retained("m", "1", retained)
        page = scrape(segment, replace(NOTHING, owners=owners, retained=(base,)))
        totals = {key: value for key, value in page.values.items() if key[0].endswith("_total")}
        assert all(totals[key] >= value for key, value in last.items())
        last = totals
    os.close(fd)


def test_waiting_requests_are_a_depth_and_then_a_wait(segment: Segment) -> None:
    ledger = Ledger(segment, 0)
    ledger.wait_began(1)
    ledger.wait_began(1)
    ledger.wait_ended(1, 250_000)
    page = scrape(segment, OWNED)
    assert page.value("queue_depth", model="m") == 1
    assert page.value("queue_wait_seconds_count", model="m") == 1
    assert page.value("queue_wait_seconds_sum", model="m") == 0.25


def test_refusals_and_replays_are_counted_over_every_section(segment: Segment) -> None:
    ledger = Ledger(segment, 0)
    ledger.refused(0, REFUSALS["unknown_model"])
    ledger.refused(1, REFUSALS["saturated"])
    ledger.refused(3, REFUSALS["saturated"])
    ledger.replayed(1, True)
    ledger.replayed(2, False)
    page = scrape(segment, NOTHING)
    assert page.value("requests_refused_total", code="saturated") == 2
    assert page.value("requests_refused_total", code="unknown_model") == 1
    assert {row["code"] for row in page.series("requests_refused_total")} == set(REFUSALS)
    assert page.value("replays_total", outcome="served") == 1
    assert page.value("replays_total", outcome="failed") == 1


def test_what_control_counts_is_shown_from_zero(segment: Segment) -> None:
    readings = replace(NOTHING, tally=Tally())
    assert scrape(segment, readings).value("drains_total", outcome="cut") == 0
    readings.tally.drain_ended("cut", 30.0)
    readings.tally.lost["drain_deadline"] += 2
    readings.tally.heartbeats["accepted"] += 1
    readings.tally.reloads["refused"] += 1
    readings.tally.loads["ready"] += 1
    readings.tally.tokens["m", "1", "completion"] += 77
    page = scrape(segment, readings)
    assert page.value("drains_total", outcome="cut") == 1
    assert page.value("drain_duration_seconds_sum") == 30.0
    assert page.value("requests_lost_total", cause="drain_deadline") == 2
    assert page.value("heartbeats_total", outcome="accepted") == 1
    assert page.value("config_reloads_total", outcome="refused") == 1
    assert page.value("instance_loads_total", outcome="ready") == 1
    assert page.value("tokens_total", model="m", version="1", kind="completion") == 77


def test_a_version_is_shown_before_its_first_request(segment: Segment) -> None:
    page = scrape(segment, NOTHING)
    rows = page.series("requests_total")
    assert {(row["model"], row["version"]) for row in rows} == {("m", "1"), ("m", "2")}
    assert {row["outcome"] for row in rows} == {one.name.lower() for one in Outcome}


def test_every_metric_has_a_question_and_every_question_a_metric(segment: Segment) -> None:
    page = scrape(segment, replace(OWNED, instances=(INSTANCE,)))
    asked = {**metrics.QUESTIONS, **fleet.QUESTIONS}
    assert {name.removesuffix("_total") for name in asked} == set(page.kinds)


def test_a_scrape_is_the_same_twice(segment: Segment) -> None:
    _serve(Ledger(segment, 0), 0, Outcome.SERVED, MS, 2 * MS)
    assert exposition(segment, OWNED) == exposition(segment, OWNED)


def test_webhooks_are_counted_by_name_and_outcome(segment: Segment) -> None:
    tally = Tally()
    tally.webhooks["chat", "given_up"] += 2
    page = scrape(segment, replace(NOTHING, tally=tally))
    assert page.value("webhook_deliveries_total", webhook="chat", outcome="given_up") == 2
