"""An exported graph on its way into the repository: what is promised of it, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from backends.signature import TensorSpec
from backends.snapshots.importing import Imported
from backends.snapshots.manifest import MindirManifest
from backends.snapshots.mindir import ALLOWANCE_BYTES, import_graph
from backends.snapshots.repository import Repository
from backends.snapshots.source import ImportFailed
from backends.snapshots.steps import silent
from backends.snapshots.wanted import WantedGraph
from tests.backends.mindir_files import write_graph

NOW = "2026-01-02T03:04:05+00:00"
OPEN = TensorSpec("x", "FP32", (-1, 2))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "models")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return write_graph(tmp_path / "mnist.mindir")


def imported(repository: Repository, path: Path, **wanted: Any) -> Imported:
    return import_graph(repository, path, WantedGraph("g", "1", **wanted), NOW, silent)


def manifest(repository: Repository, path: Path, **wanted: Any) -> MindirManifest:
    found = imported(repository, path, **wanted).snapshot.manifest
    assert isinstance(found, MindirManifest)
    return found


def test_a_graph_becomes_a_snapshot_that_verifies(repository: Repository, graph: Path) -> None:
    snapshot = imported(repository, graph).snapshot
    repository.verify(snapshot, lambda count: None)
    assert repository.locate("g", "1") == snapshot
    found = snapshot.manifest
    assert isinstance(found, MindirManifest)
    assert (snapshot.folder / "model.mindir").read_bytes() == graph.read_bytes()
    assert found.inputs == (OPEN,)
    assert found.outputs == (TensorSpec("output_0", "FP32", (-1, 2)),)
    assert (found.max_batch, found.max_delay_ms, found.graph_rows) == (8, 2.0, 0)
    assert found.source.startswith("mindir mnist.mindir sha256:")
    assert found.memory_needed_bytes > ALLOWANCE_BYTES


def test_a_shape_that_is_fixed_is_never_taken_for_a_batch_unasked(
    repository: Repository, tmp_path: Path
) -> None:
    fixed = write_graph(tmp_path / "f.mindir", [("n:x", "FLOAT", [4, 2])], [("FLOAT", [4, 2])])
    found = manifest(repository, fixed)
    assert (found.max_batch, found.graph_rows) == (0, 0)
    assert found.inputs == (TensorSpec("x", "FP32", (4, 2)),)


def test_a_fixed_batch_is_filled_up_when_rows_are_asked_for(
    repository: Repository, tmp_path: Path
) -> None:
    fixed = write_graph(tmp_path / "f.mindir", [("n:x", "FLOAT", [4, 2])], [("FLOAT", [4, 2])])
    found = manifest(repository, fixed, max_batch=3)
    assert (found.max_batch, found.graph_rows) == (3, 4)
    assert found.inputs == (OPEN,)


def test_a_file_beside_it_says_what_it_is_and_options_go_before_it(
    repository: Repository, graph: Path
) -> None:
    graph.with_suffix(".toml").write_text(
        "max_batch = 16\nmax_delay_ms = 5\n"
        '[[outputs]]\nname = "logits"\ndatatype = "FP32"\nshape = [-1, 2]\n'
    )
    found = manifest(repository, graph, max_delay_ms=0.0)
    assert (found.max_batch, found.max_delay_ms) == (16, 0.0)
    assert found.inputs == (OPEN,)
    assert found.outputs == (TensorSpec("logits", "FP32", (-1, 2)),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_batch = -1", r"mnist\.toml: max_batch: must be a whole number of at least 0, not -1"),
        ("max_bach = 1", r"mnist\.toml: max_bach: is not a key"),
        ("max_batch = ", r"mnist\.toml: must be TOML"),
        ('[[inputs]]\nname = "x"', r"mnist\.toml: inputs\[0\]\.datatype: is missing"),
        (
            '[[outputs]]\nname = "a"\ndatatype = "FP32"\nshape = [-1]\n' * 2,
            r"outputs\[1\]\.name: must be a name of its own",
        ),
        (
            '[[outputs]]\nname = "a"\ndatatype = "FP32"\nshape = [-1]\n'
            '[[outputs]]\nname = "b"\ndatatype = "FP32"\nshape = [-1]\n',
            "outputs: must be the 1 of the graph, not 2",
        ),
    ],
)
def test_what_is_wrong_with_the_file_beside_it_is_named(
    repository: Repository, graph: Path, text: str, words: str
) -> None:
    graph.with_suffix(".toml").write_text(text)
    with pytest.raises(ImportFailed, match=words):
        imported(repository, graph)
    assert not repository.holds("g", "1")


@pytest.mark.parametrize(
    ("inputs", "outputs", "wanted", "words"),
    [
        ([("n:x", "FLOAT", [4, 2])], [("FLOAT", [4])], 5, "max_batch: must be at most 4, the rows"),
        (
            [("n:x", "FLOAT", [4, 2]), ("n:k", "FLOAT", [2])],
            [("FLOAT", [4])],
            2,
            "max_batch: must be 0, not 2: the first dimensions of the inputs differ",
        ),
        ([("n:x", "FLOAT", [])], [("FLOAT", [])], 2, "max_batch: must be 0, not 2"),
        ([("n:x", "FLOAT", [-2])], [("FLOAT", [-1])], None, r"inputs\[0\]\.shape: must be a list"),
        ([("n:x", "STRING", [1])], [("FLOAT", [-1])], None, "'x' holds STRING"),
        (
            [("a:x", "FLOAT", [1]), ("b:x", "FLOAT", [1])],
            [("FLOAT", [1])],
            None,
            r"inputs\[1\]\.name: must be a name of its own, not 'x' again; say .* g\.toml",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(
    repository: Repository, tmp_path: Path, inputs: Any, outputs: Any, wanted: Any, words: str
) -> None:
    file = write_graph(tmp_path / "g.mindir", inputs, outputs)
    with pytest.raises(ImportFailed, match=words):
        imported(repository, file, max_batch=wanted)


def test_the_same_again_is_there_already_and_another_is_refused(
    repository: Repository, graph: Path, tmp_path: Path
) -> None:
    first = imported(repository, graph)
    again = imported(repository, graph)
    assert (first.was_there, again.was_there) == (False, True)
    with pytest.raises(ImportFailed, match="it has max_batch 8, not 4: import it under another"):
        imported(repository, graph, max_batch=4)
    other = write_graph(tmp_path / "other.mindir", [("n:x", "FLOAT", (-1, 3))])
    with pytest.raises(ImportFailed, match=r"it was made from mindir mnist\.mindir sha256:"):
        imported(repository, other)
