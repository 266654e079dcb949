"""A Llama, Qwen2 or Qwen3 model in MindSpore behind the Engine protocol.

Floor 3, I/O.   Owner: the model thread, which makes every call.
Flow of a load: import MindSpore > weights > cache > compile each shape > run each again > verify.
READY may be said after `load` only because every shape a request can need has run twice by then,
and the model has answered: finite logits, and the same from a decode as from a prefill.
"""

import hashlib
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import psutil
from numpy.typing import NDArray

from backends.engines import runtime
from backends.engines.base import Report
from backends.engines.llm.cache import CompileCache, key
from backends.engines.llm.shapes import DecodeShape, PrefillShape, promised
from backends.engines.llm.verification import expect_finite, verify
from backends.engines.llm.weights import Weights
from backends.errors import SnapshotInvalid
from backends.snapshots import rope
from backends.snapshots.manifest import LlmManifest
from backends.snapshots.repository import Snapshot
from backends.snapshots.transformer import HELD, weights_bytes
from sluicegate.v1.states import Phase

MIB: Final = 2**20


class LlmEngine:
    """One snapshot, loaded once."""

    def __init__(
        self,
        snapshot: Snapshot,
        cache_root: Path,
        threads: int = 0,
        slots: int | None = None,
        max_seq_len: int | None = None,
        device_target: str = "CPU",
    ) -> None:
        """`slots` and `max_seq_len` default to what the manifest promises; `threads` 0: all."""
        manifest = snapshot.manifest
        assert isinstance(manifest, LlmManifest), "the family of another engine"
        self.slots = slots or manifest.slots
        self.max_seq_len = max_seq_len or manifest.max_seq_len
        if self.max_seq_len > manifest.max_seq_len:
            raise SnapshotInvalid(
                f"{snapshot.folder}: promises {manifest.max_seq_len} positions, "
                f"not {self.max_seq_len}: ask for less, or import it with more"
            )
        self._snapshot = snapshot
        self._cache_root = cache_root
        self._threads = threads
        self._device_target = device_target
        self._shapes = promised(self.max_seq_len)
        self.chunks = self._shapes.prefills
        self._ms: Any = None  # the mindspore module
        self._decoder: Any = None
        self.vocab = 0  # known once the config is read
        self._process = psutil.Process()

    # --- loading ---

    def load(self, report: Report) -> None:
        """Raises: DependencyMissing, SnapshotInvalid, LoadFailed."""
        report(Phase.LOADING_MODEL, 0.0, "importing MindSpore")
        name = self.cache_name()
        if runtime.is_fresh():
            with CompileCache(self._cache_root, name) as cache:
                self._load(report, cache, "read" if cache.warm else "compiled")
            runtime.stop_caching()
        else:  # MindSpore can no longer be told where its cache is
            self._load(report, None, "compiled")
        report(Phase.WARMING_UP, 1.0, "verified")

    def _load(self, report: Report, cache: CompileCache | None, done: str) -> None:
        folder, running = (cache.folder, cache.running) if cache else (None, nullcontext)
        self._ms = runtime.prepare(self._device_target, self._threads, folder)
        self._load_weights(report)
        report(Phase.ALLOCATING_CACHE, 0.0, f"{self.slots} slots of {self.max_seq_len}")
        self._decoder.allocate()
        self._run_shapes(report, Phase.COMPILING, done, running)
        self._run_shapes(report, Phase.WARMING_UP, "run again", running)
        with running():
            verify(self)

    def cache_name(self) -> str:
        """Of the folder of compiled graphs. Raises: DependencyMissing."""
        code = (Path(__file__).with_name("graph.py"), Path(rope.__file__))  # both are compiled in
        parts = {
            "weights": self._snapshot.manifest.digest,
            "slots": self.slots,
            "length": self.max_seq_len,
            "shapes": self._shapes,
            "mindspore": runtime.version(),
            "device": self._device_target,
            "machine": platform.machine(),
            "code": hashlib.sha256(b"".join(file.read_bytes() for file in code)).hexdigest(),
        }
        return key(self._snapshot.manifest.model, parts)

    def _load_weights(self, report: Report) -> None:
        read = 0

        def on_bytes(count: int) -> None:
            nonlocal read
            read += count
            words = f"{read // MIB} of {total // MIB} MiB"
            report(Phase.LOADING_MODEL, min(read / total, 1.0), words)

        weights = Weights(self._snapshot.folder, on_bytes)
        total = weights_bytes(weights.shape, HELD)
        graph = import_module("backends.engines.llm.graph")
        dtype = self._ms.float32  # CPU kernels of half precision are slower or absent
        self._decoder = graph.Decoder(weights.shape, self.slots, self._shapes.windows, dtype)
        self._decoder.fill(weights)
        self._decoder.set_train(False)
        self.vocab = weights.shape.vocab

    def _run_shapes(
        self,
        report: Report,
        phase: Phase,
        done: str,
        running: Callable[[], AbstractContextManager[None]],
    ) -> None:
        for count, shape in enumerate(self._shapes):
            report(
                phase, count / len(self._shapes), f"{count} of {len(self._shapes)} shapes {done}"
            )
            with running():
                self._run_shape(shape)

    def _run_shape(self, shape: PrefillShape | DecodeShape) -> None:
        match shape:
            case PrefillShape(ids, window):
                expect_finite(self.prefill(0, [0] * ids, window - ids))
            case DecodeShape(window):
                idle = np.zeros(self.slots, np.int32)
                expect_finite(self.decode(idle, idle + (window - 1)))

    # --- steps ---

    def prefill(self, slot: int, ids: Sequence[int], start: int) -> NDArray[np.float32]:
        shape = self._shapes.prefill_for(len(ids), start + len(ids) - 1)
        padded = np.full((1, shape.ids), ids[-1], np.int32)
        padded[0, : len(ids)] = ids
        logits = self._call(padded, [start], [slot], [len(ids) - 1], shape.window)
        return cast(NDArray[np.float32], logits[0])

    def decode(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        window = self._shapes.window_for(int(positions.max()))
        return self._call(ids, positions, [0], [0], window)

    def clear(self, slot: int) -> None:
        self._decoder.clear(slot)

    def _call(self, *inputs: Any) -> NDArray[np.float32]:
        *arrays, window = inputs
        tensors = [self._ms.Tensor(np.asarray(values, np.int32)) for values in arrays]
        parts = self._shapes.parts_of(window)
        logits: NDArray[np.float32] = self._decoder(*tensors, parts).asnumpy()
        return logits

    def memory_bytes(self) -> int:
        if self._ms is None or self._device_target == "CPU":
            return int(self._process.memory_info().rss)  # MindSpore's own count is 0 on CPU
        return int(self._ms.runtime.memory_allocated())

    def close(self) -> None:
        """On a CPU only the end of the process gives all memory back."""
        self._decoder = None
        if self._ms is not None and self._device_target != "CPU":
            self._ms.runtime.empty_cache()
