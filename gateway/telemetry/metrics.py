"""Prometheus text, read from the segment and from control's views when it is asked for.

Floor 3, no I/O.
Owner: nobody. Nothing is kept between two scrapes and nothing here is ever told of a request: a
gauge cannot disagree with the ledger, because it is the ledger. Labels are models, versions and
instances that config or the registry know, never a path, a client or a request id. The series of an
instance end with it; totals per model and version go on from the retained bases.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gateway.control import InstanceView, StatusView
from gateway.errors import REFUSALS
from gateway.records import Outcome
from gateway.state.shared import (
    ATTEMPTS,
    FIRST_BYTE,
    FIRST_BYTE_SUM_US,
    HISTOGRAM_CELLS,
    LATENCY,
    LATENCY_SUM_US,
    REFUSED,
    REPLAYS_FAILED,
    REPLAYS_SERVED,
    REQUESTS,
    SLOT_CELLS,
    WAIT,
    WAIT_SUM_US,
    Segment,
    histogram_bound_us,
)
from gateway.telemetry.fleet import fleet_metrics, rollout_metric
from gateway.telemetry.tally import Tally

# Every metric of this file and the question that it answers; README.md has a row for each.
QUESTIONS: Final = {
    "sluicegate_requests_total": "How did requests of clients end?",
    "sluicegate_attempts_total": "How did attempts on instances end? A replay is a second attempt.",
    "sluicegate_request_duration_seconds": "How long did an instance keep a request, whole?",
    "sluicegate_time_to_first_byte_seconds": "How long until an instance began to answer?",
    "sluicegate_in_flight": "How many requests does an instance hold now?",
    "sluicegate_queue_depth": "How many requests wait for room now?",
    "sluicegate_queue_wait_seconds": "How long did requests wait for room?",
    "sluicegate_requests_refused_total": "What did the gateway refuse itself, and why?",
    "sluicegate_replays_total": "Did sending a request to a second instance help?",
    "sluicegate_requests_lost_total": "Which requests were ended by us, and why?",
    "sluicegate_heartbeats_total": "Do instances that registered themselves stay in touch?",
    "sluicegate_config_reloads_total": "Were reloads of config.toml taken?",
    "sluicegate_instance_loads_total": "How many starts of instances reached READY?",
    "sluicegate_drains_total": "How did drains end?",
    "sluicegate_drain_duration_seconds": "How long do drains take?",
    "sluicegate_rollbacks_total": "Why were versions rolled back?",
    "sluicegate_rollback_duration_seconds": "How long until a bad version gets nothing?",
    "sluicegate_webhook_deliveries_total": "Were webhooks told what happened?",
    "sluicegate_recorded_samples_total": "How many requests were kept as samples, by length?",
    "sluicegate_tokens_total": "How many tokens did instances read and write?",
}


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose counters a slot holds; also that of an instance gone, until its slot is folded."""

    slot: int
    model: str
    version: str
    instance: str


@dataclass(frozen=True, slots=True)
class Retained:
    """What slots of this version had counted when they were folded. Shape: [SLOT_CELLS]."""

    model: str
    version: str
    cells: Sequence[int]


@dataclass(frozen=True, slots=True)
class Readings:
    """All that a scrape needs besides the segment.

    `sections` are by model; one is never given to a second model. `status.models` and `instances`
    are the views that the admin API shows, so the two cannot disagree.
    """

    owners: tuple[Owner, ...]
    retained: tuple[Retained, ...]
    sections: Mapping[str, int]
    status: StatusView
    instances: tuple[InstanceView, ...]
    tally: Tally
    phases: Mapping[str, str] = field(default_factory=dict)  # model: of its last rollout


def exposition(segment: Segment, readings: Readings) -> bytes:
    """Everything, in Prometheus' text format.

    Cost: one pass over the slots in use, times rows: 100 slots in 4 rows took 75 ms on a busy core.
    """
    return generate_latest(_Scrape(segment, readings))


class _Scrape(Collector):
    def __init__(self, segment: Segment, readings: Readings) -> None:
        self._segment = segment
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        yield from _traffic(_totals(self._segment, self._readings))
        yield _in_flight(self._segment, self._readings)
        yield from _queues(self._segment, self._readings.sections)
        yield from _refusals(self._segment)
        yield from _counted(self._readings.tally)
        yield from fleet_metrics(self._readings.status, self._readings.instances)
        yield rollout_metric(self._readings.phases)


# --- histograms ----------------------------------------------------------------------------------

# Two buckets to the octave, 0.768 ms to 27 min: each bound is the exact edge of a cell, so nothing
# is guessed, and a quantile is off by a fifth at most. Every fourth cell of eight to the octave.
EDGES: Final = range(59, 228, 4)


def _buckets(cells: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound in seconds."""
    buckets: list[tuple[str, float]] = []
    counted = begin = 0
    for edge in EDGES:
        counted += sum(cells[begin : edge + 1])
        begin = edge + 1
        buckets.append((repr(histogram_bound_us(edge) / 1_000_000), counted))
    return [*buckets, ("+Inf", counted + sum(cells[begin:]))]


def _histogram(name: str, labels: tuple[str, ...]) -> HistogramMetricFamily:
    return HistogramMetricFamily(name, QUESTIONS[name], labels=labels)


def _counter(name: str, labels: tuple[str, ...]) -> CounterMetricFamily:
    return CounterMetricFamily(name, QUESTIONS[name], labels=labels)


def _gauge(name: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, QUESTIONS[name], labels=labels)


# --- from the segment ----------------------------------------------------------------------------

Totals = dict[tuple[str, str], list[int]]


def _totals(segment: Segment, readings: Readings) -> Totals:
    """Slot cells per (model, version): retained, and of every slot in use. Known ones start at 0,
    so that the first request is an increase and not a new series."""
    totals: Totals = {
        (model.name, version.version): [0] * SLOT_CELLS
        for model in readings.status.models
        for version in model.versions
    }

    def add(key: tuple[str, str], cells: Iterable[int]) -> None:
        totals[key] = list(map(sum, zip(totals.get(key, [0] * SLOT_CELLS), cells, strict=True)))

    for base in readings.retained:
        add((base.model, base.version), base.cells)
    for owner in readings.owners:
        add((owner.model, owner.version), segment.slot_totals(owner.slot))
    return totals


def _traffic(totals: Totals) -> Iterator[Metric]:
    labels = ("model", "version")
    requests = _counter("sluicegate_requests_total", (*labels, "outcome"))
    attempts = _counter("sluicegate_attempts_total", (*labels, "outcome"))
    duration = _histogram("sluicegate_request_duration_seconds", labels)
    first_byte = _histogram("sluicegate_time_to_first_byte_seconds", labels)
    for key, cells in totals.items():
        for outcome in Outcome:
            name = outcome.name.lower()
            requests.add_metric((*key, name), cells[REQUESTS + outcome])
            attempts.add_metric((*key, name), cells[ATTEMPTS + outcome])
        latency = _buckets(cells[LATENCY : LATENCY + HISTOGRAM_CELLS])
        duration.add_metric(key, latency, cells[LATENCY_SUM_US] / 1_000_000)
        begun = _buckets(cells[FIRST_BYTE : FIRST_BYTE + HISTOGRAM_CELLS])
        first_byte.add_metric(key, begun, cells[FIRST_BYTE_SUM_US] / 1_000_000)
    yield from (requests, attempts, duration, first_byte)


def _in_flight(segment: Segment, readings: Readings) -> Metric:
    """Per instance; one that has had two incarnations lately may hold leases in two slots."""
    held = {(one.model, one.version, one.id): 0 for one in readings.instances}
    for owner in readings.owners:
        key = (owner.model, owner.version, owner.instance)
        count = segment.in_flight(owner.slot)
        if key in held or count:  # the slot of an instance gone shows only what it still holds
            held[key] = held.get(key, 0) + count
    family = _gauge("sluicegate_in_flight", ("model", "version", "instance"))
    for key, count in held.items():
        family.add_metric(key, count)
    return family


def _queues(segment: Segment, sections: Mapping[str, int]) -> Iterator[Metric]:
    depth = _gauge("sluicegate_queue_depth", ("model",))
    wait = _histogram("sluicegate_queue_wait_seconds", ("model",))
    for model, section in sections.items():
        depth.add_metric((model,), segment.waiting(section))
        cells = segment.section_totals(section)
        waits = _buckets(cells[WAIT : WAIT + HISTOGRAM_CELLS])
        wait.add_metric((model,), waits, cells[WAIT_SUM_US] / 1_000_000)
    yield from (depth, wait)


def _refusals(segment: Segment) -> Iterator[Metric]:
    """Over every section, used or not: a model that is gone takes nothing back."""
    end = WAIT  # the histogram behind is not read: four fifths of a section
    sums = [0] * end
    for row in range(segment.layout.rows):
        for section in range(segment.layout.sections):
            at = segment.section_base(row, section)
            cells = segment.cells[at : at + end].tolist()
            if any(cells):
                sums = list(map(sum, zip(sums, cells, strict=True)))
    refused = _counter("sluicegate_requests_refused_total", ("code",))
    for refusal in REFUSALS.values():
        refused.add_metric((refusal.code,), sums[REFUSED + refusal.cell])
    replays = _counter("sluicegate_replays_total", ("outcome",))
    replays.add_metric(("served",), sums[REPLAYS_SERVED])
    replays.add_metric(("failed",), sums[REPLAYS_FAILED])
    yield from (refused, replays)


# --- counted by control --------------------------------------------------------------------------


def _counted(tally: Tally) -> Iterator[Metric]:
    for name, label, counts in (
        ("sluicegate_requests_lost_total", "cause", tally.lost),
        ("sluicegate_heartbeats_total", "outcome", tally.heartbeats),
        ("sluicegate_config_reloads_total", "outcome", tally.reloads),
        ("sluicegate_instance_loads_total", "outcome", tally.loads),
        ("sluicegate_drains_total", "outcome", tally.drains),
        ("sluicegate_rollbacks_total", "reason", tally.rollbacks),
    ):
        yield _tallied(name, (label,), (((key,), count) for key, count in counts.items()))
    tokens, samples, told = tally.tokens.items(), tally.samples.items(), tally.webhooks.items()
    yield _tallied("sluicegate_tokens_total", ("model", "version", "kind"), tokens)
    yield _tallied("sluicegate_recorded_samples_total", ("model", "bucket"), samples)
    yield _tallied("sluicegate_webhook_deliveries_total", ("webhook", "outcome"), told)
    for name, seen in (
        ("sluicegate_drain_duration_seconds", tally.drain_durations),
        ("sluicegate_rollback_duration_seconds", tally.rollback_durations),
    ):
        histogram = _histogram(name, ())
        histogram.add_metric((), _buckets(seen.cells), seen.sum_us / 1_000_000)
        yield histogram


def _tallied(
    name: str, labels: tuple[str, ...], counts: Iterable[tuple[tuple[str, ...], int]]
) -> Metric:
    counter = _counter(name, labels)
    for key, count in sorted(counts):
        counter.add_metric(key, count)
    return counter
