"""An exported MindSpore graph behind the TensorEngine protocol.

Floor 3, I/O.   Owner: the model thread, which makes every call.
Flow of a load: import MindSpore > read the graph > run each batch size > run each again > verify.
A graph meets no number of rows in service that it has not met while it was loaded: fewer rows are
filled up with zeros. Rows are joined only because `verify` saw that they do not touch each other.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
from numpy.typing import NDArray

from backends.engines import runtime
from backends.engines.base import Report
from backends.errors import LoadFailed, SnapshotInvalid
from backends.microbatching import sizes
from backends.signature import Signature
from backends.tensors import mismatch, not_numbers, zeros
from sluicegate.v1.states import Phase

# Kernels of other widths may add up in another order; rows that meet differ by far more.
TOLERANCE: Final = 1e-3


class MindirEngine:
    """One graph, loaded once."""

    def __init__(
        self,
        file: Path,
        signature: Signature,
        graph_rows: int,
        threads: int = 0,
        device_target: str = "CPU",
    ) -> None:
        """`graph_rows`: the only number of rows it takes; 0: any. `threads` 0: all."""
        self.signature = signature
        self._file = file
        self._sizes = sizes(signature.max_batch, graph_rows)
        self._threads = threads
        self._device_target = device_target
        self._ms: Any = None  # the mindspore module
        self._graph: Any = None
        self._process = psutil.Process()

    def load(self, report: Report) -> None:
        """Raises: DependencyMissing, SnapshotInvalid, LoadFailed."""
        report(Phase.LOADING_MODEL, 0.0, "importing MindSpore")
        runtime.version()
        self._ms = runtime.prepare(self._device_target, self._threads, None)
        report(Phase.LOADING_MODEL, 0.5, f"reading {self._file.name}")
        try:
            self._graph = self._ms.nn.GraphCell(self._ms.load(str(self._file)))
        except (RuntimeError, ValueError, TypeError) as exc:
            raise SnapshotInvalid(f"{self._file}: MindSpore cannot load it: {exc}") from exc
        self._run_sizes(report, Phase.COMPILING, "compiled")
        self._run_sizes(report, Phase.WARMING_UP, "run again")
        verify(self)
        report(Phase.WARMING_UP, 1.0, "verified")

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        arrays = [inputs[spec.name] for spec in self.signature.inputs]
        if not self.signature.max_batch:
            return self._call(arrays)
        rows = arrays[0].shape[0]
        size = next(size for size in self._sizes if size >= rows)
        outputs = self._call([_filled(array, size) for array in arrays])
        return {
            # What has not as many rows as it should is the batcher's to find.
            name: array[:rows] if array.shape[:1] == (size,) else array
            for name, array in outputs.items()
        }

    def memory_bytes(self) -> int:
        if self._ms is None or self._device_target == "CPU":
            return int(self._process.memory_info().rss)  # MindSpore's own count is 0 on CPU
        return int(self._ms.runtime.memory_allocated())

    def close(self) -> None:
        """On a CPU only the end of the process gives all memory back."""
        self._graph = None
        if self._ms is not None and self._device_target != "CPU":
            self._ms.runtime.empty_cache()

    def _call(self, arrays: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        # Tensor() of an array that is read-only (a view of a request's body) or strided copies it.
        given = self._graph(*(self._ms.Tensor(np.ascontiguousarray(array)) for array in arrays))
        tensors = given if isinstance(given, tuple | list) else (given,)
        if len(tensors) != len(self.signature.outputs):
            raise LoadFailed(
                f"{self._file.name} gives {len(tensors)} outputs, not the "
                f"{len(self.signature.outputs)} of its manifest"
            )
        names = (spec.name for spec in self.signature.outputs)
        return {name: tensor.asnumpy() for name, tensor in zip(names, tensors, strict=True)}

    def _run_sizes(self, report: Report, phase: Phase, done: str) -> None:
        every = self._sizes or (1,)
        for count, size in enumerate(every):
            report(phase, count / len(every), f"{count} of {len(every)} batch sizes {done}")
            outputs = self.run(zeros(self.signature, size))
            problem = mismatch(outputs, self.signature, size)
            if problem:
                raise LoadFailed(f"{self._file.name}: {problem}: the signature is wrong")


def verify(engine: MindirEngine) -> None:
    """Whether the graph gives numbers, and rows the same answer in company as alone.

    Raises: LoadFailed.
    """
    signature = engine.signature
    bad = not_numbers(engine.run(zeros(signature, 1)))
    if bad:
        raise LoadFailed(f"verification: zeros in, no finite numbers out in {', '.join(bad)}")
    if signature.max_batch < 2:
        return
    alone = engine.run(zeros(signature, 1))
    pair = zeros(signature, 2)
    for array in pair.values():
        array[1] = 1
    together = engine.run(pair)
    for name, array in together.items():
        if not np.allclose(array[:1], alone[name], rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            raise LoadFailed(
                f"verification: {name!r} of one row changes with the row beside it: "
                "import it again with --max-batch 0"
            )


def _filled(array: NDArray[Any], rows: int) -> NDArray[Any]:
    """`array` with zeros behind it, so many rows in all."""
    missing = rows - array.shape[0]
    if not missing:
        return array
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])
