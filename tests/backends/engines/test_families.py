"""From a manifest to an engine, without running one."""

from pathlib import Path

import pytest

from backends.engines import families
from backends.engines.base import Sampling
from backends.engines.families import FAMILIES, Family, LlmFamily, MindirFamily, defaults_of
from backends.errors import DependencyMissing, SnapshotInvalid
from backends.settings import Settings
from backends.signature import Signature, TensorSpec
from backends.snapshots.manifest import ENGINES
from backends.snapshots.mindir import import_graph
from backends.snapshots.repository import Repository, Snapshot
from backends.snapshots.steps import silent
from backends.snapshots.wanted import WantedGraph
from tests.backends.mindir_files import write_graph
from tests.backends.rig import write_snapshot


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    """A copy that can be written to."""
    sealed = write_snapshot(tmp_path / "models")
    folder = tmp_path / "copy"
    folder.mkdir()
    return Snapshot(folder, sealed.manifest)


def test_every_engine_that_a_manifest_may_name_has_a_family() -> None:
    assert set(FAMILIES) == set(ENGINES)


@pytest.mark.parametrize("family", [LlmFamily(), MindirFamily()])
def test_what_is_missing_is_said_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, family: Family
) -> None:
    monkeypatch.setattr(families, "find_spec", lambda module: None)
    with pytest.raises(DependencyMissing, match=r"MindSpore .* pip install 'sluicegate\[mindsp"):
        family.require()


def graph_snapshot(folder: Path) -> Snapshot:
    imported = import_graph(
        Repository(folder / "models"),
        write_graph(folder / "g.mindir"),
        WantedGraph("g", "1", max_batch=4, max_delay_ms=20.0),
        "2026-01-01T00:00:00+00:00",
        silent,
    )
    return imported.snapshot


def settings(**given: int) -> Settings:
    return Settings(model="g", version="1", root=Path("models"), instance_id="g-1", **given)  # type: ignore[arg-type]


def test_a_graph_is_served_as_its_manifest_says(tmp_path: Path) -> None:
    parts = MindirFamily().build(graph_snapshot(tmp_path), settings())
    assert parts.max_delay_s == 0.02
    assert parts.engine.signature == Signature(
        (TensorSpec("x", "FP32", (-1, 2)),), (TensorSpec("output_0", "FP32", (-1, 2)),), 4
    )


@pytest.mark.parametrize("option", ["slots", "max_seq_len"])
def test_a_graph_has_neither_slots_nor_a_length(tmp_path: Path, option: str) -> None:
    with pytest.raises(SnapshotInvalid, match="its max_batch is chosen when it is imported"):
        MindirFamily().build(graph_snapshot(tmp_path), settings(**{option: 4}))


def test_a_snapshot_without_a_generation_config_is_sampled_as_openai_does(
    snapshot: Snapshot,
) -> None:
    assert defaults_of(snapshot) == Sampling(temperature=1.0)


def test_a_snapshots_own_sampling_is_the_default(snapshot: Snapshot) -> None:
    config = snapshot.folder / "generation_config.json"
    config.write_text('{"temperature": 0.6, "top_p": 0.95, "eos_token_id": 2}')
    assert defaults_of(snapshot) == Sampling(temperature=0.6, top_p=0.95)


@pytest.mark.parametrize("text", ["{", "[]", '{"temperature": "hot"}', '{"top_p": 7}'])
def test_a_generation_config_that_makes_no_sense_is_named(snapshot: Snapshot, text: str) -> None:
    (snapshot.folder / "generation_config.json").write_text(text)
    with pytest.raises(SnapshotInvalid, match=r"generation_config\.json: "):
        defaults_of(snapshot)
