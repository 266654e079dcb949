"""Gauges of instances, versions and generations, from the views that the admin API shows.

Floor 3, no I/O.
A state is shown as one series per possible value, 1 for the one that holds: an alert can name it.
Estimates that an instance has not made yet are left out, not shown as 0.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from gateway.control import InstanceView, ModelView, StatusView
from gateway.records import Health
from gateway.rollout.machine import Phase
from sluicegate.v1.states import State

# Every metric of this file and the question that it answers; README.md has a row for each.
QUESTIONS: Final = {
    "sluicegate_instance_state": "What does an instance say that it is doing?",
    "sluicegate_instance_health": "What has the gateway found about an instance?",
    "sluicegate_instance_load_seconds": "How long did an instance take to become READY, by phase?",
    "sluicegate_instance_memory_bytes": "How much device memory does an instance see and use?",
    "sluicegate_batch_utilisation_ratio": "How full are an instance's batches?",
    "sluicegate_instances_ready_ratio": "How many of a version's instances are READY?",
    "sluicegate_weight_ratio": "What share should a version have, can it have, did it have?",
    "sluicegate_rollout_state": "Where does the model's last rollout stand?",
    "sluicegate_generation": "Do all workers serve the table that was published last?",
    "sluicegate_workers": "How many workers are there, and do they run the compiled data plane?",
}


def fleet_metrics(status: StatusView, instances: tuple[InstanceView, ...]) -> Iterator[Metric]:
    yield from _instances(instances)
    yield from _versions(status.models)
    yield _generations(status)
    yield _workers(status)


def rollout_metric(phases: Mapping[str, str]) -> Metric:
    """`phases`: by model. 1 for the phase that it is in."""
    family = _gauge("sluicegate_rollout_state", ("model", "state"))
    for model, phase in phases.items():
        for possible in Phase:
            family.add_metric((model, possible.value), possible.value == phase)
    return family


def _gauge(name: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, QUESTIONS[name], labels=labels)


def _instances(instances: tuple[InstanceView, ...]) -> Iterator[Metric]:
    state = _gauge("sluicegate_instance_state", ("instance", "state"))
    health = _gauge("sluicegate_instance_health", ("instance", "health"))
    load = _gauge("sluicegate_instance_load_seconds", ("instance", "phase"))
    memory = _gauge("sluicegate_instance_memory_bytes", ("instance", "kind"))
    batch = _gauge("sluicegate_batch_utilisation_ratio", ("instance",))
    for one in instances:
        for possible in State:
            state.add_metric((one.id, possible.name), one.state == possible.name)
        for opinion in Health:
            health.add_metric((one.id, opinion.value), one.health == opinion.value)
        for phase, took_ms in (
            ("load", one.load_ms),
            ("compile", one.compile_ms),
            ("warmup", one.warmup_ms),
        ):
            if took_ms > 0:
                load.add_metric((one.id, phase), took_ms / 1000)
        if one.device is not None:
            for kind in ("total", "used", "reserved", "free", "peak"):
                memory.add_metric((one.id, kind), getattr(one.device, f"memory_{kind}_bytes"))
        batch.add_metric((one.id,), one.batch_utilisation_ratio)
    yield from (state, health, load, memory, batch)


def _versions(models: tuple[ModelView, ...]) -> Iterator[Metric]:
    ready = _gauge("sluicegate_instances_ready_ratio", ("model", "version"))
    weight = _gauge("sluicegate_weight_ratio", ("model", "version", "kind"))
    for model in models:
        whole = sum(version.weight for version in model.versions)
        for version in model.versions:
            key = (model.name, version.version)
            asked = max(version.replicas, version.instances)  # one not yet started is not ready
            if asked:
                ready.add_metric(key, version.ready / asked)
            weight.add_metric((*key, "set"), version.weight / whole if whole else 0.0)
            weight.add_metric((*key, "effective"), version.effective)
            weight.add_metric((*key, "observed"), version.observed)
    yield from (ready, weight)


def _generations(status: StatusView) -> Metric:
    """`served` is what every worker serves at least."""
    family = _gauge("sluicegate_generation", ("kind",))
    family.add_metric(("published",), status.generation)
    family.add_metric(("served",), min((one.generation for one in status.workers), default=0))
    return family


def _workers(status: StatusView) -> Metric:
    """A worker that has just been started has not said which it is, and is not counted."""
    family = _gauge("sluicegate_workers", ("data_plane",))
    for kind, compiled in (("compiled", True), ("interpreted", False)):
        family.add_metric((kind,), sum(one.compiled is compiled for one in status.workers))
    return family
