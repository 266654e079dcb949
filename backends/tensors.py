"""KServe v2 tensors <-> numpy arrays, checked against a signature.

Floor 1, pure.
A tensor comes as JSON values, flat or nested, or as raw bytes behind the JSON (the binary tensor
extension), in row-major order and little-endian. What passes here cannot make the graph fail by
its form: names, datatypes, shapes and sizes are what was promised.
Source: KServe, Open Inference Protocol; Triton, extension_binary_data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from backends.errors import RequestInvalid
from backends.signature import ANY, DATATYPES, Signature, TensorSpec

JSON_LENGTH: Final = "Inference-Header-Content-Length"
_BINARY_SIZE: Final = "binary_data_size"
VALUES_MAX: Final = 2**31 - 1  # sizes are int32 in kernels; far more than a body has room for

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One output of an answer."""

    name: str
    binary: bool


@dataclass(frozen=True, slots=True)
class Inference:
    """A request that can be run."""

    id: str  # the client's own; empty: none
    inputs: Arrays
    outputs: tuple[Wanted, ...]


def parse(body: bytes, json_length: str | None, signature: Signature) -> Inference:
    """The request that a body spells; `json_length` is the field of that name, if there is one.

    Raises: RequestInvalid with the path of the first mistake.
    """
    text, rest = _split(body, json_length)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise RequestInvalid("", f"the body must be JSON: {exc}") from None
    if not isinstance(document, dict):
        raise RequestInvalid("", "the body must be a JSON object")
    id_ = document.get("id", "")
    if not isinstance(id_, str):
        raise RequestInvalid("id", f"must be a text, not {_shown(id_)}")
    all_binary = _flag(_parameters(document, ""), "binary_data_output", "", False)
    inputs = _inputs(_tables(document, "inputs"), rest, signature)
    return Inference(id_, inputs, _outputs(document, signature, all_binary))


def rows_of(inputs: Arrays, signature: Signature) -> int:
    """Rows of a request that passed; 1 where requests are not batched."""
    return next(iter(inputs.values())).shape[0] if signature.max_batch else 1


def zeros(signature: Signature, rows: int) -> dict[str, NDArray[Any]]:
    """Inputs of nothing but zeros; a dimension of any size has one of 1 in them."""
    found = {}
    for spec in signature.inputs:
        shape = [1 if size == ANY else size for size in spec.shape]
        if signature.max_batch:
            shape[0] = rows
        found[spec.name] = np.zeros(shape, DATATYPES[spec.datatype])
    return found


def not_numbers(arrays: Arrays) -> tuple[str, ...]:
    """Names of the outputs that hold something that is no finite number."""
    return tuple(
        name
        for name, array in arrays.items()
        if array.dtype.kind == "f" and not np.isfinite(array).all()
    )


def render(
    model: str, version: str, inference: Inference, arrays: Arrays, signature: Signature
) -> tuple[bytes, int | None]:
    """The body of the answer, and the length of its JSON if something follows it.

    JSON has no word for what is no finite number: there it is null, in the binary form itself.
    """
    datatypes = {spec.name: spec.datatype for spec in signature.outputs}
    told, chunks = [], []
    for wanted in inference.outputs:
        datatype = datatypes[wanted.name]
        array = np.ascontiguousarray(arrays[wanted.name], DATATYPES[datatype])
        tensor: dict[str, object] = {
            "name": wanted.name,
            "datatype": datatype,
            # Not the copy's: a scalar would have become a vector.
            "shape": list(arrays[wanted.name].shape),
        }
        if wanted.binary:
            chunks.append(array.tobytes())
            tensor["parameters"] = {_BINARY_SIZE: array.nbytes}
        else:
            tensor["data"] = array.ravel()
        told.append(tensor)
    document: dict[str, object] = {"model_name": model, "model_version": version, "outputs": told}
    if inference.id:
        document["id"] = inference.id
    text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return (text + b"".join(chunks), len(text)) if chunks else (text, None)


def mismatch(arrays: Arrays, signature: Signature, rows: int) -> str:
    """In what the graph's answer for so many rows differs from its signature; "": in nothing."""
    for spec in signature.outputs:
        array = arrays[spec.name]
        expected = np.dtype(DATATYPES[spec.datatype])
        shape = (rows, *spec.shape[1:]) if signature.max_batch else spec.shape
        if array.dtype != expected or not _fits(array.shape, shape):
            return (
                f"output {spec.name!r} is {array.dtype} {list(array.shape)}, "
                f"not {expected} {list(shape)}"
            )
    return ""


# --- a request, part by part ---------------------------------------------------------------------


def _split(body: bytes, json_length: str | None) -> tuple[bytes, memoryview]:
    """JSON, and what follows it."""
    if json_length is None:
        return body, memoryview(b"")
    if not json_length.isascii() or not json_length.isdigit() or len(json_length) > 18:
        raise RequestInvalid(JSON_LENGTH, f"must be a number of bytes, not {json_length[:40]!r}")
    length = int(json_length)
    if length > len(body):
        raise RequestInvalid(JSON_LENGTH, f"is {length}, but the body has {len(body)} bytes")
    return body[:length], memoryview(body)[length:]


def _inputs(tables: Sequence[Any], rest: memoryview, signature: Signature) -> Arrays:
    specs = {spec.name: spec for spec in signature.inputs}
    found: dict[str, NDArray[Any]] = {}
    for i, table in enumerate(tables):
        path = f"inputs[{i}]"
        spec = _named(table, specs, path)
        if spec.name in found:
            raise RequestInvalid(f"{path}.name", f"{spec.name!r} is there twice")
        shape = _shape(table, spec, path)
        size = _parameters(table, path).get(_BINARY_SIZE)
        if size is None:
            found[spec.name] = _from_json(table, spec, shape, path)
            continue
        if "data" in table:
            raise RequestInvalid(f"{path}.data", f"cannot stand beside {_BINARY_SIZE}")
        chunk = _chunk(size, rest, f"{path}.parameters.{_BINARY_SIZE}")
        rest = rest[len(chunk) :]
        found[spec.name] = _from_bytes(chunk, spec, shape, path)
    for spec in signature.inputs:
        if spec.name not in found:
            raise RequestInvalid("inputs", f"{spec.name!r} is missing, must be {spec}")
    if len(rest):
        raise RequestInvalid("", f"{len(rest)} bytes follow the last tensor: nothing tells whose")
    if signature.max_batch:
        _check_rows(found, tables, signature.max_batch)
    return found


def _outputs(
    document: Mapping[str, Any], signature: Signature, all_binary: bool
) -> tuple[Wanted, ...]:
    specs = {spec.name: spec for spec in signature.outputs}
    if document.get("outputs") is None:
        return tuple(Wanted(name, all_binary) for name in specs)
    found: dict[str, Wanted] = {}
    for i, table in enumerate(_tables(document, "outputs")):
        path = f"outputs[{i}]"
        name = _named(table, specs, path).name
        if name in found:
            raise RequestInvalid(f"{path}.name", f"{name!r} is there twice")
        parameters = _parameters(table, path)
        if parameters.get("classification"):
            raise RequestInvalid(f"{path}.parameters.classification", "is not supported")
        found[name] = Wanted(name, _flag(parameters, "binary_data", path, all_binary))
    return tuple(found.values())


def _check_rows(found: Arrays, tables: Sequence[Any], max_batch: int) -> None:
    rows = next(iter(found.values())).shape[0]
    for i, table in enumerate(tables):
        mine = table["shape"][0]
        path = f"inputs[{i}].shape[0]"
        if mine != rows:
            raise RequestInvalid(path, f"must be the same in all inputs, not {mine} and {rows}")
        if not 1 <= mine <= max_batch:
            raise RequestInvalid(path, f"must be from 1 to {max_batch} rows, not {mine}")


def _named(table: Any, specs: Mapping[str, TensorSpec], path: str) -> TensorSpec:
    if not isinstance(table, dict):
        raise RequestInvalid(path, f"must be an object, not {_shown(table)}")
    name = table.get("name")
    spec = specs.get(name) if isinstance(name, str) else None
    if spec is None:
        known = " or ".join(map(repr, specs))
        raise RequestInvalid(f"{path}.name", f"must be {known}, not {_shown(name)}")
    return spec


def _shape(table: Mapping[str, Any], spec: TensorSpec, path: str) -> tuple[int, ...]:
    datatype, shape = table.get("datatype"), table.get("shape")
    if datatype != spec.datatype:
        raise RequestInvalid(f"{path}.datatype", f"must be {spec.datatype}, not {_shown(datatype)}")
    if not isinstance(shape, list) or not all(type(one) is int and one >= 0 for one in shape):
        raise RequestInvalid(f"{path}.shape", f"must be a list of sizes, not {_shown(shape)}")
    # Also of what is empty: [0, 2**62] cannot be made, though it would hold nothing.
    if prod(size or 1 for size in shape) > VALUES_MAX:
        raise RequestInvalid(f"{path}.shape", f"must be of no more than {VALUES_MAX} values")
    if not _fits(shape, spec.shape):
        raise RequestInvalid(f"{path}.shape", f"must be {list(spec.shape)}, not {_shown(shape)}")
    return tuple(shape)


def _fits(shape: Sequence[int], promised: Sequence[int]) -> bool:
    return len(shape) == len(promised) and all(
        there in (ANY, here) for here, there in zip(shape, promised, strict=True)
    )


def _from_bytes(
    chunk: memoryview, spec: TensorSpec, shape: tuple[int, ...], path: str
) -> NDArray[Any]:
    dtype = np.dtype(DATATYPES[spec.datatype])
    needed = prod(shape) * dtype.itemsize
    if len(chunk) != needed:
        raise RequestInvalid(
            f"{path}.parameters.{_BINARY_SIZE}",
            f"must be {needed} for {spec.datatype} {list(shape)}, not {len(chunk)}",
        )
    if spec.datatype == "BOOL" and len(chunk) and np.frombuffer(chunk, np.uint8).max() > 1:
        raise RequestInvalid(path, "a BOOL is a byte of 0 or 1")
    return np.frombuffer(chunk, dtype).reshape(shape)


def _from_json(
    table: Mapping[str, Any], spec: TensorSpec, shape: tuple[int, ...], path: str
) -> NDArray[Any]:
    path = f"{path}.data"
    values = table.get("data")
    if not isinstance(values, list):
        raise RequestInvalid(path, f"must be a list of values, not {_shown(values)}")
    flat = _flat(values, shape, path)
    # Never a text, nor what is nested on: numpy would make room for the longest of them each time.
    kinds = set(map(type, flat))
    is_plain = kinds <= {int, float} or kinds == {bool}
    array = np.asarray(flat) if is_plain else np.empty(1, object)  # which no datatype takes
    if spec.datatype == "UINT64" and array.dtype.kind == "f":
        array = _whole(flat, array)
    return _typed(array, spec.datatype, path).reshape(shape)


def _flat(values: list[Any], shape: tuple[int, ...], path: str) -> list[Any]:
    """The values one after the other, of a list that is nested as the shape says, or not at all."""
    found, count = [len(values)], prod(shape)
    while values and isinstance(values[0], list):
        size = len(values[0])
        alike = all(isinstance(one, list) and len(one) == size for one in values)
        if not alike or len(found) >= len(shape):
            raise RequestInvalid(path, f"must be nested as {list(shape)}, or flat")
        found.append(size)
        values = list(chain.from_iterable(values))
    if tuple(found) not in ((count,), shape) and not len(values) == count == 0:
        raise RequestInvalid(path, f"must hold {count} values for {list(shape)}, not {found}")
    return values


def _whole(values: list[Any], array: NDArray[Any]) -> NDArray[Any]:
    """`array`, unless its values were whole: numpy makes floats of a list that holds whole numbers
    on both sides of 2**63."""
    exact = np.asarray(values, object)
    limit = np.iinfo(np.uint64).max
    if all(type(value) is int and 0 <= value <= limit for value in exact.flat):
        return exact.astype(np.uint64)
    return array


def _typed(array: NDArray[Any], datatype: str, path: str) -> NDArray[Any]:
    """The values in their datatype, none of them changed by more than its precision."""
    dtype = np.dtype(DATATYPES[datatype])
    if not array.size:
        return array.astype(dtype)
    if dtype.kind == "b":
        if array.dtype.kind != "b":
            raise RequestInvalid(path, "must hold true and false only")
        return array
    if dtype.kind == "f":
        if array.dtype.kind not in "iuf":
            raise RequestInvalid(path, f"must hold numbers only, for {datatype}")
        with np.errstate(over="ignore"):
            typed = array.astype(dtype)
        if not np.isfinite(typed).all():
            raise RequestInvalid(path, f"holds a number that {datatype} cannot hold")
        return typed
    limits = np.iinfo(dtype)
    if array.dtype.kind not in "iu" or not (
        limits.min <= int(array.min()) and int(array.max()) <= limits.max
    ):
        rule = f"whole numbers from {limits.min} to {limits.max} only, for {datatype}"
        raise RequestInvalid(path, f"must hold {rule}")
    return array.astype(dtype)


def _chunk(size: Any, rest: memoryview, path: str) -> memoryview:
    if type(size) is not int or size < 0:
        raise RequestInvalid(path, f"must be a number of bytes, not {_shown(size)}")
    if size > len(rest):
        raise RequestInvalid(path, f"is {size}, but {len(rest)} bytes are left in the body")
    return rest[:size]


def _tables(document: Mapping[str, Any], key: str) -> Sequence[Any]:
    tables = document.get(key)
    if not isinstance(tables, list) or not tables:
        raise RequestInvalid(key, f"must be a list of at least one tensor, not {_shown(tables)}")
    return tables


def _parameters(table: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    parameters = table.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise RequestInvalid(
            f"{path}.parameters".lstrip("."), f"must be an object, not {_shown(parameters)}"
        )
    return parameters


def _flag(parameters: Mapping[str, Any], key: str, path: str, default: bool) -> bool:
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        where = f"{path}.parameters.{key}".lstrip(".")
        raise RequestInvalid(where, f"must be true or false, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """A value as a client wrote it, cut short; its kind for an object, and for a list that is long
    or holds such (JSON can be nested deeper than repr() can follow)."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list) and (
        len(value) > 16 or any(isinstance(one, list | dict) for one in value)
    ):
        return f"a list of {len(value)}"
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
