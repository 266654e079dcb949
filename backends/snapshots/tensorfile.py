"""Weights on disk in the safetensors format: written tensor by tensor, read tensor by tensor.

Floor 3, I/O.
The format: 8 bytes little-endian length of the header, the header (JSON: name -> dtype, shape, byte
range in what follows), then the values, row-major, little-endian. We write it ourselves because the
library wants all tensors in memory at once, and read it ourselves because numpy has no bfloat16.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from backends.snapshots.manifest import DTYPES
from backends.snapshots.source import ImportFailed
from backends.snapshots.steps import OnBytes
from backends.snapshots.transformer import TensorSpec

_CODES: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_STORED: Final[Mapping[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
_ALIGN: Final = 8  # the library pads its headers to this, so that values can be mapped
_HEADER_MAX_BYTES: Final = 100_000_000  # the library's own limit


def write(
    file: Path,
    specs: Sequence[TensorSpec],
    dtype: str,
    read: Callable[[str], NDArray[np.float32]],
    on_bytes: OnBytes,
) -> None:
    """`file`, holding the tensors in the order of `specs`; one of them is in memory at a time."""
    header: dict[str, Any] = {"__metadata__": {"format": "np"}}
    offset = 0
    for spec in specs:
        end = offset + spec.size * DTYPES[dtype]
        header[spec.name] = {
            "dtype": _CODES[dtype],
            "shape": spec.shape,
            "data_offsets": (offset, end),
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    with file.open("xb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for spec in specs:
            on_bytes(_write_one(out, spec, read(spec.name), dtype))


def _write_one(out: BinaryIO, spec: TensorSpec, values: NDArray[np.float32], dtype: str) -> int:
    # A function of its own, so that nothing holds these values while the next ones are read.
    assert values.shape == spec.shape, f"{spec.name}: {values.shape} is not {spec.shape}"
    stored = narrow(values, dtype, spec.name)
    out.write(stored.data)
    return stored.nbytes


def narrow(values: NDArray[np.float32], dtype: str, name: str) -> NDArray[Any]:
    """`values` as they are stored; bfloat16 as the uint16 of its bits.

    Raises: ImportFailed when a value is too large for the dtype, naming the tensor.
    """
    values = np.ascontiguousarray(values, "<f4")
    if dtype == "float32":
        return values
    if dtype == "float16":
        with np.errstate(over="ignore"):  # seen below
            halves = values.astype("<f2")
        if not np.array_equal(np.isfinite(halves), np.isfinite(values)):
            raise ImportFailed(f"{name} has values that float16 cannot hold: use bfloat16, float32")
        return halves
    bits = values.view("<u4")
    # bfloat16 is the upper half of a float32, rounded to nearest, ties to even: add just under half
    # of the last kept bit, and one more when that bit is set. A NaN could round to infinity.
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype("<u2")


def widen(stored: NDArray[Any], code: str) -> NDArray[np.float32]:
    """The stored values as float32; exact for every dtype that is read."""
    if code == "BF16":
        return (stored.astype("<u4") << 16).view("<f4")
    return stored.astype("<f4")


class TensorFile:
    """One .safetensors file, mapped; `shapes` holds what is in it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._entries, self._start = _read_header(file)
        self.shapes = {name: tuple(entry["shape"]) for name, entry in self._entries.items()}

    def read(self, name: str) -> NDArray[np.float32]:
        entry = self._entries[name]
        code, shape = entry["dtype"], tuple(entry["shape"])
        offset = self._start + entry["data_offsets"][0]
        count = math.prod(shape)
        stored = np.fromfile(self._file, _STORED[code], count, offset=offset)
        return widen(stored.reshape(shape), code)


def _read_header(file: Path) -> tuple[dict[str, Any], int]:
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > min(size - 8, _HEADER_MAX_BYTES):
            raise ImportFailed(f"{file.name} is cut short or not a safetensors file")
        try:
            header = json.loads(opened.read(length))
        except ValueError as exc:
            raise ImportFailed(f"{file.name} is not a safetensors file: {exc}") from exc
    if not isinstance(header, dict):
        raise ImportFailed(f"{file.name} is not a safetensors file: its header is no table")
    header.pop("__metadata__", None)
    start = 8 + length
    for name, entry in header.items():
        problem = _entry_problem(entry, size - start)
        if problem:
            raise ImportFailed(f"{file.name}: {name}: {problem}")
    return header, start


def _entry_problem(entry: Any, values_bytes: int) -> str | None:
    try:
        code, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        whole = all(isinstance(n, int) and n >= 0 for n in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        return "its header entry is not one of a safetensors file"
    if code not in _STORED:
        return f"has dtype {code}; float32, float16 and bfloat16 are read"
    if not whole or end - begin != math.prod(shape) * _STORED[code].itemsize:
        return "its byte range does not fit its shape"
    if end > values_bytes:
        return "the file is cut short"
    return None
