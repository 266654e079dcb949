"""What the batcher needs of an engine that turns tensors into tensors.

Floor 0, pure.
Synchronous, and all of its methods are called on one thread: the one that owns the graph.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from backends.engines.base import Report
from backends.signature import Signature


class TensorEngine(Protocol):
    """A loaded graph."""

    signature: Signature

    def load(self, report: Report) -> None:
        """The graph in memory, every batch size it will be run with compiled and run again.

        Raises: SnapshotInvalid (naming the file), DependencyMissing, LoadFailed.
        """

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """The outputs by name; with as many rows as the inputs where the signature has rows."""

    def memory_bytes(self) -> int:
        """Device memory that this engine holds now (resident set on CPU)."""

    def close(self) -> None:
        """Release the device; nothing may be called after it."""
