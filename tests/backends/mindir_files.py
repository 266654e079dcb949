"""MindIR files that declare a signature and compute nothing: enough to be imported."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backends.engines.mindir_file import _format

Declared = tuple[str, str, Sequence[int]]


def write_graph(
    path: Path,
    inputs: Sequence[Declared] = (("n:x", "FLOAT", (-1, 2)),),
    outputs: Sequence[tuple[str, Sequence[int]]] = (("FLOAT", (-1, 2)),),
) -> Path:
    """Inputs by name, outputs without one, as MindSpore writes them."""
    model = _format().ModelProto()
    model.graph.node.add(op_type="nothing")
    for name, kind, dims in inputs:
        value = model.graph.input.add(name=name)
        _declare(value.tensor.add(), kind, dims)
    if len(outputs) == 1:
        _declare(model.graph.output.add(name="n:1").tensor.add(), *outputs[0])
    else:
        together = model.graph.output.add(name="n:1", denotation="Tuple").attr_info
        for kind, dims in outputs:
            _declare(together.values.add().tensors.add(), kind, dims)
    path.write_bytes(model.SerializeToString())
    return path


def _declare(tensor: Any, kind: str, dims: Sequence[int]) -> None:
    tensor.data_type = tensor.DataType.Value(kind)
    tensor.dims.extend(dims)
