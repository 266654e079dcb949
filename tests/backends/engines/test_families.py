"""From a manifest to an engine, without running one."""

from pathlib import Path

import pytest

from backends.engines import families
from backends.engines.base import Sampling
from backends.engines.families import FAMILIES, LlmFamily, defaults_of
from backends.errors import DependencyMissing, SnapshotInvalid
from backends.snapshots.manifest import ENGINES
from backends.snapshots.repository import Snapshot
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


def test_what_is_missing_is_said_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "find_spec", lambda module: None)
    with pytest.raises(DependencyMissing, match=r"MindSpore .* pip install 'sluicegate\[mindsp"):
        LlmFamily().require()


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
