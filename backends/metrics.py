"""Prometheus metrics of one instance, read when they are scraped.

Floor 3, no I/O.
Nothing is counted here: every number is read from its owner at the moment of the scrape, so a gauge
cannot disagree with what `GetStatus` says.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from backends.account import Account
from sluicegate.v1.states import State

LABELS = ("model", "version", "instance")


class AccountCollector(Collector):
    def __init__(self, account: Account) -> None:
        self._account = account

    def collect(self) -> Iterable[Metric]:
        identity = self._account.identity
        labels = (identity.model, identity.version, identity.instance_id)
        yield self._state(labels)
        yield from self._requests(labels)
        yield from self._steps(labels)
        yield from self._times(labels)
        yield self._cache(labels)
        yield from self._loading(labels)
        yield self._memory(labels)

    def _state(self, labels: tuple[str, ...]) -> Metric:
        now = self._account.life.standing.state
        said = {state.name: float(state is now) for state in State}
        return _gauges("state", "1 for the state it is in", "state", said, labels)

    def _requests(self, labels: tuple[str, ...]) -> Iterable[Metric]:
        readings, held = self._account.readings(), self._account.held()
        yield _gauge("in_flight", "requests held, running and waiting", held.in_flight, labels)
        yield _gauge("slots", "requests it can run at once", held.slots, labels)
        yield _gauge("queue_depth", "requests that wait for a slot", readings.queue_depth, labels)
        yield _gauge(
            "last_latency_seconds",
            "of the request served last",
            readings.last_latency_ms / 1000,
            labels,
        )
        yield _counter("served", "requests answered to their end", readings.served_total, labels)
        yield _counter("rejected", "requests refused untouched", held.rejected_total, labels)

    def _steps(self, labels: tuple[str, ...]) -> Iterable[Metric]:
        readings = self._account.readings()
        yield _counter("steps", "prefill chunks and decodes", readings.progress_total, labels)
        yield _gauge(
            "batch_utilisation_ratio",
            "slot time spent on steps, of all slot time",
            readings.batch_utilisation_ratio,
            labels,
        )
        yield _gauges(
            "tokens_per_second",
            "prompt tokens computed and tokens written, lately",
            "kind",
            {"prompt": readings.prompt_tokens_per_s, "completion": readings.tokens_per_s},
            labels,
        )
        yield _counter("prompts", "prompts read to their end", readings.prompts_total, labels)
        yield _counter(
            "prefix_hits",
            "prompts that began with what a slot had kept",
            readings.prefix_hits_total,
            labels,
        )
        tokens = CounterMetricFamily(
            "sluicegate_instance_tokens",
            "prompt tokens computed and reused, and tokens written",
            labels=(*LABELS, "kind"),
        )
        tokens.add_metric((*labels, "prompt"), readings.prompt_tokens_total)
        tokens.add_metric((*labels, "reused"), readings.reused_tokens_total)
        tokens.add_metric((*labels, "completion"), readings.completion_tokens_total)
        yield tokens

    def _cache(self, labels: tuple[str, ...]) -> Metric:
        readings = self._account.readings()
        return _gauges(
            "kv_cache_ratio",
            "of the cache's positions: held by requests, and kept for prompts that begin alike",
            "kind",
            {"held": readings.kv_held_ratio, "kept": readings.kv_kept_ratio},
            labels,
        )

    def _times(self, labels: tuple[str, ...]) -> Iterable[Metric]:
        readings = self._account.readings()
        for name, question, seen in (
            ("queue_wait_seconds", "until a request had a slot", readings.waits),
            ("time_to_first_token_seconds", "from submission", readings.first_tokens),
            ("time_per_output_token_seconds", "after the first, by answer", readings.token_gaps),
            ("request_duration_seconds", "of requests served", readings.durations),
        ):
            family = HistogramMetricFamily(f"sluicegate_instance_{name}", question, labels=LABELS)
            family.add_metric(labels, seen.cumulative(), seen.total)
            yield family

    def _loading(self, labels: tuple[str, ...]) -> Iterable[Metric]:
        loads = self._account.loads()
        yield _gauge(
            "progress_ratio",
            "how much of the way to READY is done",
            self._account.life.standing.progress / 100,
            labels,
        )
        took_ms = {
            "check": loads.check_ms,
            "load": loads.load_ms,
            "compile": loads.compile_ms,
            "warmup": loads.warmup_ms,
        }
        took_s = {phase: ms / 1000 for phase, ms in took_ms.items()}
        yield _gauges("load_seconds", "how long the way to READY took", "phase", took_s, labels)
        graphs = self._account.graphs()
        yield _gauge("graphs", "compiled so far; more after READY is a mistake", graphs, labels)
        yield from self._warmup(labels)

    def _warmup(self, labels: tuple[str, ...]) -> Iterable[Metric]:
        warmed = self._account.warmed
        if warmed is None:
            return
        yield _gauges(
            "warmup_latency_seconds",
            "of samples of average length in a quarter of the warm-up",
            "quarter",
            {"first": warmed.effect.first_s, "last": warmed.effect.last_s},
            labels,
        )
        gap_s = warmed.effect.gap_s
        yield _gauge("warmup_gap_seconds", "between two tokens, p95, after warm-up", gap_s, labels)
        yield _gauge("warmup_samples", "of a round", warmed.samples, labels)
        yield _gauge("warmup_skipped", "recorded samples of no use", warmed.skipped, labels)

    def _memory(self, labels: tuple[str, ...]) -> Metric:
        readings, memory = self._account.readings(), self._account.memory()
        held = {
            "used": readings.memory_bytes,
            "peak": max(readings.memory_peak_bytes, memory.peak_bytes),
            "total": memory.total_bytes,
            "free": memory.free_bytes,
        }
        return _gauges("memory_bytes", "device memory", "kind", held, labels)


def exposition(account: Account) -> bytes:
    """All of it in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(AccountCollector(account))
    return generate_latest(registry)


def _gauge(name: str, question: str, value: float, labels: tuple[str, ...]) -> Metric:
    family = GaugeMetricFamily(f"sluicegate_instance_{name}", question, labels=LABELS)
    family.add_metric(labels, value)
    return family


def _gauges(
    name: str, question: str, label: str, values: Mapping[str, float], labels: tuple[str, ...]
) -> Metric:
    """One value for each word that `label` may be."""
    family = GaugeMetricFamily(f"sluicegate_instance_{name}", question, labels=(*LABELS, label))
    for word, value in values.items():
        family.add_metric((*labels, word), value)
    return family


def _counter(name: str, question: str, value: float, labels: tuple[str, ...]) -> Metric:
    family = CounterMetricFamily(f"sluicegate_instance_{name}", question, labels=LABELS)
    family.add_metric(labels, value)
    return family
