import json
from pathlib import Path

import pytest

from backends.snapshots.transformer import (
    ALLOWANCE_BYTES,
    Transformer,
    memory_needed_bytes,
    weights_bytes,
    write_config,
)
from gateway.launch import needs
from gateway.launch.needs import read_needs, where

# Of the numbers of a model of 0.5 B parameters: weights and cache are not lost in the allowance.
SHAPE = Transformer("qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e-6, 1e6, True)
SLOTS, LENGTH = 8, 4096
TRUTH = memory_needed_bytes(SHAPE, SLOTS, LENGTH)
HEADER_BYTES = 30_000  # of the weights' file: names and shapes


def test_needs_come_from_manifests_and_a_broken_one_holds_nothing_back(tmp_path: Path) -> None:
    texts = {"1": "memory_needed_bytes = 5\n", "2": "not = [toml", "3": "model = 'm'\n"}
    for version, text in texts.items():
        folder = tmp_path / "m" / version
        folder.mkdir(parents=True)
        (folder / "manifest.toml").write_text(text)
    pairs = [("m", version) for version in ("1", "2", "3", "4")]
    assert read_needs(tmp_path, pairs, ["cpu"]) == {
        ("m", "1"): 5,
        **{("m", version): 0 for version in ("2", "3", "4")},
    }


def test_what_was_measured_here_goes_before_what_the_manifest_computes(tmp_path: Path) -> None:
    for version in ("1", "2", "3", "4"):
        folder = tmp_path / "m" / version
        folder.mkdir(parents=True)
        (folder / "manifest.toml").write_text("memory_needed_bytes = 5\n")
    notes = {
        "1": "[bytes]\ncpu = 3\nascend = 9\n",
        "2": "[bytes]\nascend = 9\n",
        "3": "not = [toml",
    }
    for version, text in notes.items():
        (tmp_path / "m" / f".measured-{version}.toml").write_text(text)
    pairs = [("m", version) for version in ("1", "2", "3", "4")]
    here = read_needs(tmp_path, pairs, ["cpu"])
    assert [here[pair] for pair in pairs] == [3, 5, 5, 5]
    both = read_needs(tmp_path, pairs, ["cpu", "ascend"])
    assert [both[pair] for pair in pairs] == [9, 9, 5, 5]
    assert read_needs(tmp_path, pairs, []) == dict.fromkeys(pairs, 5)


@pytest.mark.parametrize(
    ("root", "folder"),
    [
        ("var/models", "var/models"),
        ("file:///mnt/models", "/mnt/models"),
        ("s3://bucket/models", "var/cache/snapshots"),
    ],
)
def test_of_a_repository_elsewhere_what_was_fetched_is_looked_at(root: str, folder: str) -> None:
    assert where(root, "var/cache") == Path(folder)


def imported(root: Path, version: str, dtype: str, promised: int) -> None:
    """A snapshot of SHAPE, whose manifest promises that many bytes of memory."""
    folder = root / "m" / version
    folder.mkdir(parents=True)
    stored = weights_bytes(SHAPE, dtype) + HEADER_BYTES
    (folder / "config.json").write_text(json.dumps(write_config(SHAPE, dtype, 1, [2])))
    (folder / "manifest.toml").write_text(
        f'engine = "llm"\ndtype = "{dtype}"\nslots = {SLOTS}\nmax_seq_len = {LENGTH}\n'
        f"memory_needed_bytes = {promised}\n"
        f'[[files]]\nname = "config.json"\nbytes = 500\n'
        f'[[files]]\nname = "model.safetensors"\nbytes = {stored}\n'
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_manifest_that_counted_halves_is_never_below_what_is_held(
    tmp_path: Path, dtype: str
) -> None:
    """Such a snapshot was admitted where half of it has room, until an instance had been READY."""
    halves = ALLOWANCE_BYTES + (TRUTH - ALLOWANCE_BYTES) // 2
    imported(tmp_path, "1", dtype, halves)
    imported(tmp_path, "2", dtype, TRUTH)
    imported(tmp_path, "3", dtype, 3 * TRUTH)
    found = read_needs(tmp_path, [("m", version) for version in "123"], ["cpu"])
    assert TRUTH <= found["m", "1"] <= TRUTH + 2 * HEADER_BYTES
    assert TRUTH <= found["m", "2"] <= TRUTH + 2 * HEADER_BYTES
    assert found["m", "3"] == 3 * TRUTH
    assert needs.ALLOWANCE_BYTES == ALLOWANCE_BYTES


def test_what_is_stored_as_it_is_held_needs_what_its_manifest_says(tmp_path: Path) -> None:
    imported(tmp_path, "1", "float32", TRUTH - 1)
    assert read_needs(tmp_path, [("m", "1")], ["cpu"]) == {("m", "1"): TRUTH - 1}


@pytest.mark.parametrize("config", [None, "[", "[1]", '{"head_dim": -1}', "[" * 100_000])
def test_halves_without_a_config_count_their_weights(tmp_path: Path, config: str | None) -> None:
    imported(tmp_path, "1", "bfloat16", 5)
    file = tmp_path / "m" / "1" / "config.json"
    file.unlink() if config is None else file.write_text(config)
    weights = weights_bytes(SHAPE, "float32") + 2 * HEADER_BYTES
    assert read_needs(tmp_path, [("m", "1")], ["cpu"])["m", "1"] == weights + ALLOWANCE_BYTES
