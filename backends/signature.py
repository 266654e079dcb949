"""What a graph takes and gives: names, datatypes and shapes, in the words of KServe v2.

Floor 0, pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

# KServe's name of a value -> numpy's, little-endian as the protocol's binary form is.
DATATYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BOOL": "?",
        "UINT8": "u1",
        "UINT16": "<u2",
        "UINT32": "<u4",
        "UINT64": "<u8",
        "INT8": "i1",
        "INT16": "<i2",
        "INT32": "<i4",
        "INT64": "<i8",
        "FP16": "<f2",
        "FP32": "<f4",
        "FP64": "<f8",
    }
)
ANY: Final = -1  # a dimension of any size


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.datatype} {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Signature:
    """In the order of the graph.

    `max_batch` at least 1: the first dimension of every tensor counts rows that have nothing to do
    with each other, and rows of several requests may share a run. 0: each request is a run.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_batch: int
