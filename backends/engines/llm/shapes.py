"""Which shapes an engine compiles, and which of them serves a given step.

Floor 1, pure.
Each shape costs seconds to compile and a request must never pay for one, so they are few, fixed by
the slots and the length, and always compiled in the same order (MindSpore's cache counts on it).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# A short question fits 32 ids; 128 keeps the multiplications large while a chunk still takes well
# under half a second, which is what a neighbour's stream pauses for.
PREFILL_LENGTHS: Final = (32, 128)
# Most answers end within 255 positions, and a step over them reads a quarter of a 1024 cache. The
# cache is kept in parts that end where a window ends, each with a spare row: 255 make 256 rows.
WINDOWS: Final = (255,)
WINDOW_SAVES_MIN: Final = 32  # positions; for fewer a window is not worth its compiling


@dataclass(frozen=True, slots=True)
class PrefillShape:
    ids: int
    window: int  # positions attended to


@dataclass(frozen=True, slots=True)
class DecodeShape:
    window: int  # positions attended to


@dataclass(frozen=True, slots=True)
class Shapes:
    """`prefills` and `windows` ascend; the last window is the whole length."""

    prefills: tuple[int, ...]
    windows: tuple[int, ...]

    def __iter__(self) -> Iterator[PrefillShape | DecodeShape]:
        """All of them, in the order in which they are compiled."""
        for ids in self.prefills:
            yield from (PrefillShape(ids, window) for window in self._read_by(ids))
        yield from (DecodeShape(window) for window in self.windows)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def parts_of(self, window: int) -> int:
        """How many parts of the cache a step over `window` reads."""
        return self.windows.index(window) + 1

    def prefill_for(self, count: int, last_position: int) -> PrefillShape:
        ids = next(ids for ids in self.prefills if ids >= count)
        return PrefillShape(ids, _above(last_position, self._read_by(ids)))

    def window_for(self, last_position: int) -> int:
        return _above(last_position, self.windows)

    def _read_by(self, ids: int) -> tuple[int, ...]:
        """The windows of a prefill: each for the longest, which it saves a third of its work."""
        return self.windows if ids == self.prefills[-1] else self.windows[-1:]


def _above(position: int, windows: tuple[int, ...]) -> int:
    return next(window for window in windows if window > position)


def promised(length: int) -> Shapes:
    """The shapes of an engine whose slots hold `length` positions."""
    prefills = tuple(ids for ids in PREFILL_LENGTHS if ids < length)
    if len(prefills) < len(PREFILL_LENGTHS):
        prefills += (length,)  # shorter than the longest chunk: one chunk holds any prompt
    windows = tuple(each for each in WINDOWS if each + WINDOW_SAVES_MIN <= length)
    return Shapes(prefills, (*windows, length))
