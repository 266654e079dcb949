"""What is missing is said before the minutes are spent, with what to do about it."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends import checks
from backends.checks import GIB, Needed
from backends.errors import DependencyMissing, LoadFailed
from backends.settings import Settings
from backends.snapshots import measured
from backends.snapshots.manifest import LlmManifest
from backends.snapshots.repository import Snapshot
from backends.snapshots.transformer import memory_needed_bytes, read_config
from backends.status import Memory
from tests.backends.conftest import tiny_snapshot
from tests.backends.rig import write_snapshot

NEEDS = Needed(3 * GIB, "as measured")


def settings(**more: Any) -> Settings:
    return Settings(model="m", version="1", root=Path("models"), instance_id="m-1-0", **more)


@pytest.mark.parametrize(("kind", "node"), [("ascend", "davinci0"), ("gpu", "nvidia1")])
def test_a_device_is_there_when_its_driver_made_a_node(
    tmp_path: Path, kind: str, node: str
) -> None:
    (tmp_path / f"{node[:-1]}_manager").touch()  # the driver alone is no device
    with pytest.raises(DependencyMissing, match=f"no {kind} here .* --device-kind cpu"):
        checks.device(kind, tmp_path)
    (tmp_path / node).touch()
    assert checks.device(kind, tmp_path) == f"device: {tmp_path / node}"


def test_a_cpu_is_always_there(tmp_path: Path) -> None:
    assert checks.device("cpu", tmp_path) == "device: the CPUs of this machine"


def test_a_cache_that_can_be_written_is_made(tmp_path: Path) -> None:
    assert str(tmp_path / "a" / "b") in checks.cache(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DependencyMissing, match=r"file/cache cannot be written: .* --cache-root"):
        checks.cache(tmp_path / "file" / "cache")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_of_somebody_elses_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(DependencyMissing, match="this user may not write there"):
        checks.cache(tmp_path)


def test_memory_that_fits_is_told_with_its_numbers() -> None:
    there = Memory("cpu", "cpu0", 16 * GIB, 3 * GIB)
    assert checks.memory(NEEDS, there) == (
        "memory: 3.0 GiB needed (as measured), 3.0 GiB of 16.0 GiB free on cpu0"
    )


def test_memory_that_does_not_fit_says_the_numbers_and_what_to_do() -> None:
    there = Memory("cpu", "", 16 * GIB, 3 * GIB - 1)
    with pytest.raises(LoadFailed) as caught:
        checks.memory(NEEDS, there)
    words = str(caught.value)
    assert words.startswith("memory: 3.0 GiB needed (as measured), 3.0 GiB of 16.0 GiB free: ")
    assert "--slots" in words


@pytest.mark.parametrize("there", [Memory("ascend", "npu0"), Memory("cpu", "cpu0")])
def test_memory_that_nobody_knows_stops_nobody(there: Memory) -> None:
    assert "not known" in checks.memory(NEEDS, there)


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return write_snapshot(tmp_path)


def test_a_manifests_word_holds_until_an_instance_was_measured(snapshot: Snapshot) -> None:
    assert checks.needed(snapshot, settings()) == Needed(1, "by its manifest")
    measured.keep(snapshot.folder, "cpu", 123)
    assert checks.needed(snapshot, settings()) == Needed(123, "as measured")
    assert checks.needed(snapshot, settings(slots=2)) == Needed(123, "as measured")
    assert checks.needed(snapshot, settings(device_kind="gpu")) == Needed(1, "by its manifest")


def test_what_is_configured_goes_before_what_was_measured(snapshot: Snapshot) -> None:
    measured.keep(snapshot.folder, "cpu", 123)
    assert checks.needed(snapshot, settings(memory_gb=0.5)) == Needed(GIB // 2, "as configured")


def test_fewer_slots_than_promised_need_less(tmp_path: Path) -> None:
    snapshot = tiny_snapshot(tmp_path / "t", "llama", 64, 4)
    all_, few = (checks.needed(snapshot, settings(slots=n, max_seq_len=32)) for n in (4, 1))
    assert (all_.source, few.source) == (
        "computed for 4 slots of 32",
        "computed for 1 slots of 32",
    )
    per_slot = 32 * 2 * 2 * 2 * 16 * 4  # positions, key and value, layers, heads, their size, bytes
    assert all_.bytes - few.bytes == 3 * per_slot


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_stored_in_halves_need_as_much_as_others_whatever_an_old_manifest_says(
    tmp_path: Path, dtype: str
) -> None:
    whole = tiny_snapshot(tmp_path / "t", "llama", 64, 4)
    assert isinstance(whole.manifest, LlmManifest)
    halved = replace(whole, manifest=replace(whole.manifest, dtype=dtype))
    shape = read_config(json.loads((halved.folder / "config.json").read_bytes()))
    held = memory_needed_bytes(shape, 4, 64)
    assert checks.needed(halved, settings()) == Needed(held, "computed for 4 slots of 64")
    measured.keep(halved.folder, "cpu", 123)
    assert checks.needed(halved, settings()) == Needed(123, "as measured")
    (halved.folder / "config.json").unlink()
    assert checks.needed(halved, settings(device_kind="gpu")) == Needed(1, "by its manifest")


def test_a_config_that_cannot_be_read_is_not_this_checks_business(snapshot: Snapshot) -> None:
    assert checks.needed(snapshot, settings(slots=1)) == Needed(1, "by its manifest")


@pytest.mark.parametrize(
    "words",
    [
        "the engine did not load: MemoryError: ",
        "RuntimeError: std::bad_alloc",
        "RuntimeError: Device(id:0) memory isn't enough and alloc failed, kernel name: x",
        "RuntimeError: Out of memory!",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: Malloc for kernel output failed, Allocate memory failed",
    ],
)
def test_a_load_that_ran_out_of_memory_says_the_numbers(words: str) -> None:
    there = Memory("cpu", "cpu0", 16 * GIB, GIB)
    told = str(checks.told(LoadFailed(words), NEEDS, there, 2 * GIB))
    assert told.startswith(
        "out of memory: 3.0 GiB needed (as measured), 2.0 GiB held, 1.0 GiB of 16.0 GiB free on"
    )
    assert "--slots" in told
    assert words.strip() in told


def test_what_an_allocator_said_is_told_in_one_line() -> None:
    words = "RuntimeError: \n---\n- Memory not enough:\n" + "C++ call stack\n" * 1000
    told = str(checks.told(LoadFailed(words), NEEDS, Memory("cpu", "cpu0"), 0))
    assert "RuntimeError: --- - Memory not enough: C++" in told
    assert "\n" not in told
    assert len(told) < 600


def test_any_other_failure_is_told_as_it_is() -> None:
    failure = LoadFailed("verification: the model gave logits that are not numbers")
    assert checks.told(failure, NEEDS, Memory("cpu", "cpu0"), 0) is failure
