"""Our engine as a contender: FOLDER of a snapshot, SLOTS, LENGTH, THREADS, CACHE folder.

Floor 5, I/O.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.engines.llm.engine import LlmEngine
from backends.snapshots.repository import Repository
from tests.bench.engine_child import Contender, serve


class Ours:
    def __init__(self, engine: LlmEngine) -> None:
        self.slots = engine.slots
        self._engine = engine

    def prefill(self, slot: int, ids: Sequence[int]) -> NDArray[np.float32]:
        chunk = self._engine.chunks[-1]
        for start in range(0, len(ids), chunk):
            logits = self._engine.prefill(slot, ids[start : start + chunk], start)
        return logits

    def decode(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._engine.decode(ids, positions)


def load() -> tuple[Contender, dict[str, Any]]:
    named, slots, length, threads, cache = sys.argv[1:]
    folder = Path(named)
    snapshot = Repository(folder.parents[1]).locate(folder.parent.name, folder.name)
    engine = LlmEngine(snapshot, Path(cache), int(threads), int(slots), int(length))
    engine.load(lambda phase, share, words: None)
    return Ours(engine), {}


if __name__ == "__main__":
    serve(load)
