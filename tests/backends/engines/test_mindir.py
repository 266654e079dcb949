"""A trained graph behind the TensorEngine protocol, in real MindSpore."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.engines.mindir import MindirEngine
from backends.engines.mindir_file import declared
from backends.errors import LoadFailed, SnapshotInvalid
from backends.signature import Signature, TensorSpec
from sluicegate.v1.states import Phase
from tests.digits import PIXELS, draw, export_digits

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs")


@pytest.fixture(scope="module")
def trained(folder: Path) -> Any:
    """The trained cell; `digits.mindir` in the folder is what was exported of it."""
    return export_digits(folder / "digits.mindir")


def quiet(phase: Phase, share: float, words: str) -> None:
    pass


def loaded(file: Path, max_batch: int, graph_rows: int = 0) -> MindirEngine:
    inputs, outputs = declared(file)
    rows = () if not max_batch else (-1,)
    opened = [
        tuple(TensorSpec(s.name, s.datatype, (*(rows or s.shape[:1]), *s.shape[1:])) for s in specs)
        for specs in (inputs, outputs)
    ]
    engine = MindirEngine(file, Signature(opened[0], opened[1], max_batch), graph_rows)
    engine.load(quiet)
    return engine


def test_the_file_tells_the_signature_of_the_cell(trained: Any, folder: Path) -> None:
    assert declared(folder / "digits.mindir") == (
        (TensorSpec("pictures", "FP32", (-1, PIXELS)),),
        (TensorSpec("output_0", "FP32", (-1, 10)), TensorSpec("output_1", "INT32", (-1,))),
    )


def test_it_reads_digits_that_it_has_never_seen(trained: Any, folder: Path) -> None:
    engine = loaded(folder / "digits.mindir", 0)
    pictures, labels = draw(512, seed=1_000_000)
    found = engine.run({"pictures": pictures})["output_1"]
    assert (found == labels).mean() > 0.9


def test_a_row_has_the_same_answer_alone_among_others_and_from_the_cell_that_was_exported(
    trained: Any, folder: Path
) -> None:
    import mindspore as ms

    engine = loaded(folder / "digits.mindir", 8)
    pictures, _ = draw(8, seed=7)
    expected = trained(ms.Tensor(pictures))[0].asnumpy()
    for rows in range(1, 9):  # 3, 5, 6 and 7 are filled up to a size that was warmed up
        logits = engine.run({"pictures": pictures[:rows]})["output_0"]
        assert logits.shape == (rows, 10)
        assert np.allclose(logits, expected[:rows], atol=1e-4)


def test_no_number_of_rows_reaches_the_graph_that_it_did_not_meet_while_it_was_loaded(
    trained: Any, folder: Path
) -> None:
    engine = loaded(folder / "digits.mindir", 6)
    met, graph = set[int](), engine._graph

    def watched(*given: Any) -> Any:
        met.add(given[0].shape[0])
        return graph(*given)

    engine._graph = watched
    pictures, _ = draw(6, seed=7)
    for rows in range(1, 7):
        engine.run({"pictures": pictures[:rows]})
    assert met == {1, 2, 4, 6}


def test_a_load_tells_each_batch_size_twice_and_ends_verified(trained: Any, folder: Path) -> None:
    inputs, outputs = declared(folder / "digits.mindir")
    engine = MindirEngine(folder / "digits.mindir", Signature(inputs, outputs, 6), 0)
    reports: list[tuple[Phase, float, str]] = []
    engine.load(lambda *report: reports.append(report))
    assert reports == sorted(reports, key=lambda report: report[:2])
    sizes = [words for phase, _, words in reports if phase is Phase.COMPILING]
    assert sizes == [f"{count} of 4 batch sizes compiled" for count in range(4)]  # 1, 2, 4, 6
    assert reports[-1] == (Phase.WARMING_UP, 1.0, "verified")
    assert engine.memory_bytes() > 0
    engine.close()
    engine.close()


def test_a_graph_of_a_fixed_batch_is_filled_up(trained: Any, folder: Path) -> None:
    import mindspore as ms

    given = ms.Tensor(np.zeros((4, PIXELS), np.float32))
    ms.export(trained, given, file_name=str(folder / "fixed"), file_format="MINDIR")
    engine = loaded(folder / "fixed.mindir", 4, graph_rows=4)
    pictures, _ = draw(4, seed=9)
    expected = trained(ms.Tensor(pictures))[0].asnumpy()
    for rows in range(1, 5):
        logits = engine.run({"pictures": pictures[:rows]})["output_0"]
        assert np.allclose(logits, expected[:rows], atol=1e-4)


def export(folder: Path, name: str) -> Path:
    """A graph of x [rows, 2]: `mixing` adds the mean of all, `dividing` divides 1 by it."""
    import mindspore as ms

    class Mixing(ms.nn.Cell):  # type: ignore[misc]
        def construct(self, x: Any) -> Any:
            return x + x.mean()

    class Dividing(ms.nn.Cell):  # type: ignore[misc]
        def construct(self, x: Any) -> Any:
            return 1.0 / x

    cell = {"mixing": Mixing, "dividing": Dividing}[name]()
    given = ms.Tensor(shape=[None, 2], dtype=ms.float32)
    ms.export(cell, given, file_name=str(folder / name), file_format="MINDIR")
    return folder / f"{name}.mindir"


def test_a_graph_whose_rows_touch_each_other_is_not_batched(trained: Any, folder: Path) -> None:
    file = export(folder, "mixing")
    with pytest.raises(LoadFailed, match="import it again with --max-batch 0"):
        loaded(file, 4)
    whole = loaded(file, 0)
    assert whole.run({"x": np.array([[1, 3]], np.float32)})["output_0"].tolist() == [[3.0, 5.0]]


def test_a_graph_that_gives_no_numbers_for_zeros_is_not_ready(trained: Any, folder: Path) -> None:
    file = export(folder, "dividing")
    with pytest.raises(LoadFailed, match="zeros in, no finite numbers out in output_0"):
        loaded(file, 2)


def test_a_signature_that_is_not_the_graphs_is_not_ready(trained: Any, folder: Path) -> None:
    wrong = Signature(
        (TensorSpec("x", "FP32", (-1, PIXELS)),),
        (TensorSpec("logits", "FP32", (-1, 11)), TensorSpec("best", "INT32", (-1,))),
        2,
    )
    with pytest.raises(LoadFailed, match=r"output 'logits' is float32 \[1, 10\]"):
        MindirEngine(folder / "digits.mindir", wrong, 0).load(quiet)
    few = Signature(wrong.inputs, wrong.outputs[:1], 2)
    with pytest.raises(LoadFailed, match="gives 2 outputs, not the 1 of its manifest"):
        MindirEngine(folder / "digits.mindir", few, 0).load(quiet)


def test_a_file_that_mindspore_cannot_read_is_named(trained: Any, folder: Path) -> None:
    broken = folder / "broken.mindir"
    broken.write_bytes((folder / "digits.mindir").read_bytes()[:500])
    inputs, outputs = declared(folder / "digits.mindir")
    with pytest.raises(SnapshotInvalid, match=r"broken\.mindir: MindSpore cannot load it"):
        MindirEngine(broken, Signature(inputs, outputs, 2), 0).load(quiet)
