"""A load from its first report to its verification, and what it refuses."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from backends.engines import runtime
from backends.engines.llm.engine import LlmEngine
from backends.errors import DependencyMissing, LoadFailed, SnapshotInvalid
from backends.snapshots.manifest import FileEntry
from backends.snapshots.repository import Snapshot
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


def test_graphs_of_other_weights_slots_lengths_shapes_or_programs_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tiny_snapshot(tmp_path / "model", "llama", 300, 2)
    manifest = snapshot.manifest
    entry = FileEntry("model.safetensors", 1, "0" * 64)
    weighed = Snapshot(snapshot.folder, replace(manifest, files=(entry,)))
    engines = {
        "as it is": LlmEngine(snapshot, tmp_path),
        "weights": LlmEngine(weighed, tmp_path),
        "slots": LlmEngine(snapshot, tmp_path, slots=3),
        "length": LlmEngine(snapshot, tmp_path, max_seq_len=299),
        "device": LlmEngine(snapshot, tmp_path, device_target="Ascend"),
    }
    names = {what: engine.cache_name() for what, engine in engines.items()}
    monkeypatch.setattr(runtime, "version", lambda: "2.99")
    names["version"] = engines["as it is"].cache_name()
    monkeypatch.undo()
    monkeypatch.setattr("backends.engines.llm.shapes.WINDOWS", (100,))
    names["shapes"] = LlmEngine(snapshot, tmp_path).cache_name()
    assert len(set(names.values())) == len(names)
    monkeypatch.undo()
    assert LlmEngine(snapshot, tmp_path / "elsewhere").cache_name() == names["as it is"]


LIFE = """
import pathlib, sys
from backends.engines.llm.engine import LlmEngine
from sluicegate.v1.states import Phase
from tests.backends.conftest import tiny_snapshot
folder = pathlib.Path(sys.argv[1])
engine = LlmEngine(tiny_snapshot(folder / "model", "llama", 16, 2), folder / "cache",
                   slots=int(sys.argv[2]))
words = {}
engine.load(lambda phase, share, said: words.setdefault(phase, said))
print("said:", words[Phase.COMPILING])
"""


def life(folder: Path, slots: int = 2) -> str:
    """Whether a process of its own, whose load succeeded, read its graphs or compiled them."""
    script = folder / "life.py"  # MindSpore reads the file that argv[0] names
    script.write_text(LIFE)
    done = subprocess.run(
        [sys.executable, str(script), str(folder), str(slots)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    said = next(line for line in done.stdout.splitlines() if line.startswith("said:"))
    return said.rpartition(" ")[2]


@pytest.mark.mindspore
def test_a_damaged_cache_and_one_of_other_slots_lead_to_compiling_and_not_to_a_crash(
    tmp_path: Path,
) -> None:
    assert life(tmp_path) == "compiled"
    assert life(tmp_path, slots=3) == "compiled"  # in the same root; MindSpore would not notice
    assert life(tmp_path) == "read"
    graphs = list((tmp_path / "cache").rglob("*.mindir"))
    assert graphs
    for graph in graphs:
        graph.write_bytes(graph.read_bytes()[: graph.stat().st_size // 2])
    assert life(tmp_path) == "compiled"
