"""A deterministic graph without MindSpore, and an instance's parts around it.

`y` is a row's values times two, `n` how many rows the run had: an answer tells whom it ran with.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backends.batcher import Batcher
from backends.engines.base import Report
from backends.facts import Facts, LoadedGraph
from backends.life import Life
from backends.signature import Signature, TensorSpec
from backends.status import Identity
from sluicegate.v1.states import Phase
from tests.backends.fakes import Gate
from tests.backends.rig import MEMORY, WatchedGate

WIDTH: Final = 3
PAIR: Final = Signature(
    inputs=(TensorSpec("x", "FP32", (-1, WIDTH)),),
    outputs=(TensorSpec("y", "FP32", (-1, WIDTH)), TensorSpec("n", "INT64", (-1,))),
    max_batch=4,
)


def row(*values: float) -> dict[str, NDArray[Any]]:
    """One row of inputs, filled up with zeros."""
    return {"x": np.array([[*values, *[0.0] * (WIDTH - len(values))]], np.float32)}


class ScriptedGraph:
    """A TensorEngine. `fault` looks at the inputs of each run and may raise."""

    def __init__(self, signature: Signature = PAIR, gate: Gate | None = None) -> None:
        self.signature = signature
        self.runs: list[int] = []  # rows of each
        self.fault: Callable[[NDArray[Any]], None] = lambda x: None
        self.load_failure: Exception | None = None
        self.closed = False
        self._gate = gate

    def load(self, report: Report) -> None:
        for phase in (Phase.LOADING_MODEL, Phase.COMPILING, Phase.WARMING_UP):
            report(phase, 0.0, phase.name.lower())
        if self.load_failure is not None:
            raise self.load_failure
        report(Phase.WARMING_UP, 1.0, "verified")

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        if self._gate is not None:
            self._gate.pass_through()
        x = inputs["x"]
        self.runs.append(len(x))
        self.fault(x)
        return {"y": x * 2, "n": np.full(len(x), len(x), np.int64)}

    def memory_bytes(self) -> int:
        return 1000

    def close(self) -> None:
        self.closed = True


class GraphRig:
    """Parts of an instance that serves a graph; INITIALIZING until `ready`."""

    def __init__(self, engine: ScriptedGraph, queue_max: int = 4) -> None:
        self.engine = engine
        self.gate = WatchedGate()
        self.life = Life("g-1-0", self.gate)
        self.facts = Facts(
            Identity("g-1-0", "life-1", "g", "1"), self.gate, self.life, lambda: MEMORY
        )
        self.batcher = Batcher(engine, 0.0, queue_max)
        self._queue_max = queue_max

    async def ready(self) -> "GraphRig":
        await self.batcher.start(lambda *_: None)
        self.facts.load(LoadedGraph(self.batcher, self.engine.signature), self._queue_max)
        self.life.progress(Phase.WARMING_UP, 1.0, "", 0.0)
        self.life.verified(0.0)
        return self


@asynccontextmanager
async def ready_graph(
    engine: ScriptedGraph | None = None, gate: Gate | None = None
) -> AsyncIterator[GraphRig]:
    """A READY instance; `gate` is opened at the end: a failed test must end too."""
    made = GraphRig(engine or ScriptedGraph(gate=gate))
    try:
        yield await made.ready()
    finally:
        if gate is not None:
            gate.open()
        await made.batcher.close()
