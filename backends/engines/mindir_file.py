"""What a MindIR file says of its graph: the names, datatypes and shapes that go in and come out.

Floor 3, I/O.
Read with MindSpore's own description of the format, which needs protobuf and not MindSpore itself:
seconds and half a gigabyte saved. An input's name is that of the argument it was exported from;
outputs have none, so they are `output_0`, `output_1` and so on.
"""

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from backends.errors import DependencyMissing
from backends.signature import TensorSpec

FILE_NAME: Final = "model.mindir"  # in a snapshot

# TensorProto.DataType of mind_ir.proto -> KServe's name of it.
_DATATYPES: Final = {
    "FLOAT": "FP32",
    "FLOAT16": "FP16",
    "DOUBLE": "FP64",
    "FLOAT64": "FP64",
    "BOOL": "BOOL",
    **{f"{sign}INT{bits}": f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
}


def declared(path: Path) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs as the file declares them.

    Raises: DependencyMissing; ValueError with a sentence; OSError.
    """
    model = _format().ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError:
        raise ValueError(f"{path.name} is not a MindIR file, or it is encrypted") from None
    if not model.graph.node:
        raise ValueError(f"{path.name} holds no graph")
    found = [(value.name.rpartition(":")[2], _only(value.tensor)) for value in model.graph.input]
    tensors = [tensor for value in model.graph.output for tensor in _flat(value)]
    inputs = tuple(_spec(name, tensor) for name, tensor in found)
    outputs = tuple(_spec(f"output_{i}", tensor) for i, tensor in enumerate(tensors))
    return inputs, outputs


def _flat(output: Any) -> list[Any]:
    """The tensors of an output, which may be a tuple of them."""
    if output.tensor:
        return [_only(output.tensor)]
    return [_only(value.tensors) for value in output.attr_info.values] or [_only(())]


def _only(tensors: Any) -> Any:
    if len(tensors) != 1:
        raise ValueError("only graphs whose inputs and outputs are tensors can be served")
    return tensors[0]


def _spec(name: str, tensor: Any) -> TensorSpec:
    kind = tensor.DataType.Name(tensor.data_type)
    if kind not in _DATATYPES:
        raise ValueError(f"{name!r} holds {kind}, which cannot be sent here")
    return TensorSpec(name, _DATATYPES[kind], tuple(tensor.dims))


def _format() -> Any:
    """MindSpore's generated module of mind_ir.proto, without MindSpore around it."""
    spec = find_spec("mindspore")
    if spec is None or not spec.submodule_search_locations:
        raise DependencyMissing("MindSpore is not installed: pip install 'sluicegate[mindspore]'")
    file = Path(spec.submodule_search_locations[0]) / "train" / "mind_ir_pb2.py"
    found = spec_from_file_location("mind_ir_pb2", file)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module
