from dataclasses import replace

import pytest

from gateway.control import InstanceView, StatusView
from gateway.telemetry.fleet import fleet_metrics
from tests.admin.fakes import INSTANCE, LOADING, MODEL, STATUS


def _values(
    status: StatusView = STATUS, instances: tuple[InstanceView, ...] = (INSTANCE, LOADING)
) -> dict[tuple[str, ...], float]:
    """By name and label values, in the order of the labels."""
    return {
        (sample.name.removeprefix("sluicegate_"), *sample.labels.values()): sample.value
        for family in fleet_metrics(status, instances)
        for sample in family.samples
    }


def test_exactly_the_state_that_holds_is_one() -> None:
    values = _values()
    assert values["instance_state", "m-2-0", "INITIALIZING"] == 1
    assert values["instance_state", "m-2-0", "READY"] == 0
    held = [key for key, value in values.items() if key[0] == "instance_state" and value]
    assert held == [
        ("instance_state", "m-1-0", "READY"),
        ("instance_state", "m-2-0", "INITIALIZING"),
    ]
    assert values["instance_health", "m-1-0", "good"] == 1
    assert values["instance_health", "m-2-0", "unknown"] == 1


def test_an_instance_that_has_said_nothing_has_no_state() -> None:
    values = _values(instances=(replace(LOADING, state=""),))
    assert [v for key, v in values.items() if key[0] == "instance_state"] == [0] * 5


def test_load_times_are_seconds_and_shown_once_they_are_known() -> None:
    values = _values()
    assert values["instance_load_seconds", "m-1-0", "compile"] == 2.5
    assert ("instance_load_seconds", "m-2-0", "compile") not in values


def test_memory_is_shown_where_there_is_a_device() -> None:
    values = _values()
    assert values["instance_memory_bytes", "m-1-0", "peak"] == 7000
    assert ("instance_memory_bytes", "m-2-0", "peak") not in values
    assert values["batch_utilisation_ratio", "m-1-0"] == 0.75


def test_the_ready_ratio_counts_replicas_that_are_not_there_yet() -> None:
    awaited = replace(MODEL.versions[0], replicas=4)
    status = replace(STATUS, models=(replace(MODEL, versions=(awaited, MODEL.versions[1])),))
    assert _values(status)["instances_ready_ratio", "m", "1"] == 0.25
    assert _values(status)["instances_ready_ratio", "m", "2"] == 0.0


def test_a_version_without_instances_has_no_ready_ratio() -> None:
    bare = replace(MODEL.versions[0], replicas=0, instances=0, ready=0)
    values = _values(replace(STATUS, models=(replace(MODEL, versions=(bare,)),)))
    assert ("instances_ready_ratio", "m", "1") not in values


def test_weights_are_shares() -> None:
    values = _values()
    assert values["weight_ratio", "m", "2", "set"] == pytest.approx(0.05)
    assert values["weight_ratio", "m", "2", "effective"] == 0.0
    assert values["weight_ratio", "m", "2", "observed"] == 0.03
    none = tuple(replace(one, weight=0.0) for one in MODEL.versions)
    values = _values(replace(STATUS, models=(replace(MODEL, versions=none),)))
    assert values["weight_ratio", "m", "1", "set"] == 0.0


def test_the_generation_served_is_the_one_that_all_workers_reach() -> None:
    behind = replace(STATUS.workers[0], index=1, generation=5)
    values = _values(replace(STATUS, workers=(*STATUS.workers, behind)))
    assert values["generation", "published"] == 7
    assert values["generation", "served"] == 5
    assert _values(replace(STATUS, workers=()))["generation", "served"] == 0


def test_workers_are_counted_by_what_they_say_of_their_data_plane() -> None:
    first = STATUS.workers[0]
    silent, slow = replace(first, compiled=None), replace(first, compiled=False)
    values = _values(replace(STATUS, workers=(first, first, silent, slow)))
    assert (values["workers", "compiled"], values["workers", "interpreted"]) == (2, 1)
