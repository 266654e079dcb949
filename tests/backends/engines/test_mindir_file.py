"""The signature out of a file, without MindSpore in this process."""

import subprocess
import sys
from pathlib import Path

import pytest

from backends.engines import mindir_file
from backends.engines.mindir_file import declared
from backends.errors import DependencyMissing
from backends.signature import TensorSpec
from tests.backends.mindir_files import write_graph


def test_names_datatypes_and_shapes_are_those_of_the_file(tmp_path: Path) -> None:
    file = write_graph(
        tmp_path / "g.mindir",
        inputs=[("12_1___main___Net_construct_8:x", "FLOAT", [-1, 64]), ("n:mask", "BOOL", [])],
        outputs=[("FLOAT16", [-1, 10]), ("INT32", [-1])],
    )
    assert declared(file) == (
        (TensorSpec("x", "FP32", (-1, 64)), TensorSpec("mask", "BOOL", ())),
        (TensorSpec("output_0", "FP16", (-1, 10)), TensorSpec("output_1", "INT32", (-1,))),
    )


def test_a_single_output_is_no_tuple_in_the_file(tmp_path: Path) -> None:
    file = write_graph(tmp_path / "g.mindir", outputs=[("DOUBLE", [2])])
    assert declared(file)[1] == (TensorSpec("output_0", "FP64", (2,)),)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff" * 64, "g.mindir is not a MindIR file, or it is encrypted"),
        (b"", "g.mindir holds no graph"),
    ],
)
def test_what_is_no_graph_is_said_in_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "g.mindir"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        declared(file)


def test_what_kserve_has_no_datatype_for_is_named(tmp_path: Path) -> None:
    file = write_graph(tmp_path / "g.mindir", inputs=[("n:words", "STRING", [1])])
    with pytest.raises(ValueError, match="'words' holds STRING"):
        declared(file)


def test_without_mindspore_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_graph(tmp_path / "g.mindir")
    monkeypatch.setattr(mindir_file, "find_spec", lambda module: None)
    with pytest.raises(DependencyMissing, match=r"pip install 'sluicegate\[mindspore\]'"):
        declared(file)


def test_reading_a_file_does_not_import_mindspore(tmp_path: Path) -> None:
    file = write_graph(tmp_path / "g.mindir")
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path\n"
            "from backends.engines.mindir_file import declared\n"
            "declared(Path(sys.argv[1])); print('mindspore' in sys.modules)",
            str(file),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "False"
