"""A load from its first report to its verification, and what it refuses."""

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from backends.engines.llm.engine import LlmEngine
from backends.errors import DependencyMissing, LoadFailed, SnapshotInvalid
from sluicegate.v1.states import Phase
from tests.backends.conftest import tiny_snapshot

Reports = list[tuple[Phase, float, str]]


def quiet(phase: Phase, share: float, words: str) -> None:
    pass


def engine(folder: Path, max_seq_len: int | None = None) -> LlmEngine:
    snapshot = tiny_snapshot(folder / "model", "llama", 16, 2)
    return LlmEngine(snapshot, folder / "cache", max_seq_len=max_seq_len)


@pytest.mark.mindspore
def test_a_load_reports_every_phase_with_progress_that_only_grows(tmp_path: Path) -> None:
    reports: Reports = []
    loaded = engine(tmp_path)
    loaded.load(lambda *report: reports.append(report))
    phases = list(dict.fromkeys(phase for phase, _, _ in reports))
    assert phases == [
        Phase.LOADING_MODEL,
        Phase.ALLOCATING_CACHE,
        Phase.COMPILING,
        Phase.WARMING_UP,
    ]
    assert reports == sorted(reports, key=lambda report: report[:2])
    assert reports[-1] == (Phase.WARMING_UP, 1.0, "verified")
    assert (Phase.LOADING_MODEL, 1.0) in [report[:2] for report in reports]
    shapes = [share for phase, share, _ in reports if phase is Phase.COMPILING]
    assert shapes == [0.0, 0.5]  # a prefill and a decode
    assert loaded.memory_bytes() > 0
    loaded.close()
    loaded.close()


@pytest.mark.mindspore
def test_a_model_whose_logits_are_not_numbers_is_not_ready(tmp_path: Path) -> None:
    broken = engine(tmp_path)
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"][0] = np.nan
    save_file(tensors, file)
    with pytest.raises(LoadFailed, match="not numbers"):
        broken.load(quiet)
    broken.close()


@pytest.mark.mindspore
def test_a_damaged_snapshot_is_named_when_it_is_loaded(tmp_path: Path) -> None:
    damaged = engine(tmp_path)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"short")
    with pytest.raises(SnapshotInvalid, match=r"model\.safetensors"):
        damaged.load(quiet)


def test_a_length_beyond_the_snapshots_promise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SnapshotInvalid, match="promises 16 positions, not 17"):
        engine(tmp_path, max_seq_len=17)
    assert engine(tmp_path, max_seq_len=8).max_seq_len == 8


@pytest.fixture
def without_mindspore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mindspore", None)  # as Python marks what cannot be imported


@pytest.mark.usefixtures("without_mindspore")
def test_without_mindspore_a_load_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(DependencyMissing, match=r"pip install 'sluicegate\[mindspore\]'"):
        engine(tmp_path).load(quiet)
