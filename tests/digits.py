"""A small trained model for tests of graphs: an MLP that reads noisy 8 x 8 pictures of digits.

Floor 3, I/O.
Pictures are drawn here, so nothing is fetched; MindSpore trains it in seconds. Whoever calls
`export_digits` has MindSpore in its process from then on.
"""

from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from backends.engines import runtime

SIDE: Final = 8
PIXELS: Final = SIDE * SIDE
# Each digit in 5 rows of 3.
GLYPHS: Final = (
    "### #.# #.# #.# ###|.#. ##. .#. .#. ###|### ..# ### #.. ###|### ..# .## ..# ###|"
    "#.# #.# ### ..# ..#|### #.. ### ..# ###|### #.. ### #.# ###|### ..# .#. .#. .#.|"
    "### #.# ### #.# ###|### #.# ### ..# ###"
)
STEPS: Final = 1000
BATCH: Final = 64

Pictures = tuple[NDArray[np.float32], NDArray[np.int32]]


def draw(count: int, seed: int) -> Pictures:
    """Pictures [count, PIXELS] and what is on them; the same arguments give the same pictures."""
    rng, noise = Random(seed), np.random.default_rng(seed)
    pictures = noise.normal(0.0, 0.15, (count, SIDE, SIDE)).astype(np.float32)
    labels = np.array([rng.randrange(10) for _ in range(count)], np.int32)
    for picture, label in zip(pictures, labels, strict=True):
        rows = GLYPHS.split("|")[label].split(" ")
        glyph = np.array([[mark == "#" for mark in row] for row in rows], np.float32)
        down, right = rng.randint(0, SIDE - 5), rng.randint(0, SIDE - 3)
        picture[down : down + 5, right : right + 3] += glyph
    return pictures.reshape(count, PIXELS), labels


def export_digits(path: Path, rows: int | None = None, steps: int = STEPS) -> Any:
    """Train for so long, and write the graph to `path`; `rows` None leaves its first one open.

    Gives the trained cell: pictures -> logits [rows, 10] and the digit [rows].
    """
    ms = runtime.prepare("CPU", 0, None)
    nn, ops = ms.nn, ms.ops
    ms.set_seed(1)

    class Reader(nn.Cell):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.SequentialCell(nn.Dense(PIXELS, 128), nn.ReLU(), nn.Dense(128, 10))
            self.best = ops.Argmax(axis=1, output_type=ms.int32)

        def construct(self, pictures: Any) -> Any:
            logits = self.layers(pictures)
            return logits, self.best(logits)

    reader = Reader()
    loss = nn.WithLossCell(reader.layers, nn.CrossEntropyLoss())
    step = nn.TrainOneStepCell(loss, nn.Momentum(reader.trainable_params(), 0.1, 0.9))
    step.set_train()
    for seed in range(steps):
        pictures, labels = draw(BATCH, seed)
        step(ms.Tensor(pictures), ms.Tensor(labels))
    reader.set_train(False)
    if rows is None:
        given = ms.Tensor(shape=[None, PIXELS], dtype=ms.float32)
    else:
        given = ms.Tensor(np.zeros((rows, PIXELS), np.float32))
    ms.export(reader, given, file_name=str(path.with_suffix("")), file_format="MINDIR")
    return reader
