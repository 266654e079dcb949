"""Whether a loaded engine may be called ready: it answers, and two ways of asking it agree.

Floor 1, pure but for the engine that is asked.
A graph read back from a cache, or compiled wrongly, can run and be wrong. Decodes that build on a
prefill must say what one prefill of all the ids says: a wrong row, mask or position shows there.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.engines.base import Engine
from backends.errors import LoadFailed

DECODES: Final = 4  # the later ones read what the first wrote
# Share of the largest logit by which a decode may differ from a prefill of the same ids. Measured
# on CPU in float32: 1e-6; a wrong cache row or mask gives 1e-1 and more.
DRIFT_MAX: Final = 1e-2


def verify(engine: Engine) -> None:
    """Raises: LoadFailed."""
    slot = engine.slots - 1  # the last: a row that is off by a slot falls out of the cache
    chunk_max = engine.chunks[-1]
    ids = [i % engine.vocab for i in range(max(1, chunk_max // 2))]
    logits = engine.prefill(slot, ids, 0)
    for _ in range(min(DECODES, chunk_max - len(ids))):
        expect_finite(logits)
        step, positions = np.zeros((2, engine.slots), np.int32)
        step[slot], positions[slot] = np.argmax(logits), len(ids)
        ids.append(int(step[slot]))
        logits = engine.decode(step, positions)[slot]
    again = engine.prefill(slot, ids, 0)
    expect_finite(logits)
    expect_finite(again)
    drift = float(
        np.abs(again - logits).max() / max(np.abs(again).max(), np.finfo(np.float32).tiny)
    )
    if drift > DRIFT_MAX:
        raise LoadFailed(f"verification: a decode differs from a prefill by {drift:.1e}")


def expect_finite(logits: NDArray[np.float32]) -> None:
    """Raises: LoadFailed."""
    if not np.isfinite(logits).all():
        raise LoadFailed("verification: the model gave logits that are not numbers")
