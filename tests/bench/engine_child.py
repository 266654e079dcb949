"""A contender of `make bench-engine`: it is told what to do on stdin and answers on stdout.

Floor 3, I/O.   Imported by both contenders, so it needs nothing but Python and numpy.
Lines of JSON. What a library prints goes to stderr. Times are taken here, around the steps alone.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Contender(Protocol):
    """A model with its weights and cache in memory, every shape compiled."""

    slots: int

    def prefill(self, slot: int, ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits [vocab] after the last of `ids`, which go to positions 0.. of the slot."""

    def decode(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        """Logits [slots, vocab] for one step of every slot."""


def serve(load: Callable[[], tuple[Contender, dict[str, Any]]]) -> None:
    """Load, say so, and do as told until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    contender, about = load()
    print(json.dumps(about), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(DOES[order["do"]](contender, order)), file=answers, flush=True)


def _prefill(contender: Contender, order: dict[str, Any]) -> dict[str, Any]:
    ids = order["ids"]
    began, cpu = time.perf_counter(), time.process_time()
    logits = contender.prefill(0, ids)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return {"tokens": len(ids), "wall_s": wall_s, "cpu_s": cpu_s, "id": int(logits.argmax())}


def _decode(contender: Contender, order: dict[str, Any]) -> dict[str, Any]:
    """The likeliest after `ids`, in every slot, again and again; the prompt is not in the time."""
    slots, steps = contender.slots, order["steps"]
    if order["fill"]:
        for slot in range(slots):
            contender.prefill(slot, order["ids"])
    ids = np.full(slots, order["first"], np.int32)
    position = len(order["ids"])
    said = []
    began, cpu = time.perf_counter(), time.process_time()
    for step in range(steps):
        logits = contender.decode(ids, np.full(slots, position + step, np.int32))
        ids = logits.argmax(axis=-1).astype(np.int32)
        said.append(int(ids[-1]))
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return {"tokens": slots * steps, "wall_s": wall_s, "cpu_s": cpu_s, "ids": said}


DOES: dict[str, Callable[[Contender, dict[str, Any]], dict[str, Any]]] = {
    "prefill": _prefill,
    "decode": _decode,
}
