"""A deterministic engine without a model, and a gate to hold its steps.

It keeps what a real engine keeps, one cell for each position of each slot, and answers from those
alone. A cell is made of an id and of all the cells before it as they were then, as keys and values
are: whoever reads one that is not what the cells before it say gets another answer. So a batch that
writes to a wrong position, or reuses a slot badly, cannot go unnoticed.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.engines.base import Report
from sluicegate.v1.states import Phase

VOCAB: Final = 512
SLOT_BYTES: Final = 1000

SPOILT: Final = -1  # what a cell was made of, after a step that broke or gave no numbers

# The whole sequence so far -> the next id.
Rule = Callable[[tuple[int, ...]], int]


def digest(ids: tuple[int, ...]) -> int:
    """The default rule: depends on every id and its place, so nothing can change unnoticed."""
    total = 7
    for position, id_ in enumerate(ids):
        total = (total * 31 + id_ * (position + 3)) % 104_729  # a prime far above VOCAB
    return total % VOCAB


def successor(ids: tuple[int, ...]) -> int:
    """A rule that is easy to follow by eye: 5 is followed by 6, 7, 8, ..."""
    return (ids[-1] + 1) % VOCAB


def answer(prompt: Sequence[int], length: int, rule: Rule = digest) -> list[int]:
    """What a ScriptedEngine generates greedily after `prompt`, without any engine."""
    ids = list(prompt)
    for _ in range(length):
        ids.append(rule(tuple(ids)))
    return ids[len(prompt) :]


def script(text_ids: Sequence[int], prompt_length: int, end_id: int) -> Rule:
    """The rule that says `text_ids` after a prompt of that length, then `end_id` for ever."""

    def rule(ids: tuple[int, ...]) -> int:
        said = len(ids) - prompt_length
        return text_ids[said] if 0 <= said < len(text_ids) else end_id

    return rule


class Gate:
    """Holds each step of an engine until the test lets it go. Starts closed."""

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._allowed = 0
        self._open = False
        self._arrived = 0
        self._held = 0

    def pass_through(self) -> None:
        """Called by the engine before it does anything."""
        with self._moved:
            self._arrived += 1
            self._held += 1
            self._moved.notify_all()
            self._moved.wait_for(lambda: self._open or self._allowed > 0)
            self._held -= 1
            self._allowed -= 0 if self._open else 1

    def let(self, steps: int = 1) -> None:
        """Let so many more steps run."""
        with self._moved:
            self._allowed += steps
            self._moved.notify_all()

    def open(self) -> None:
        """Let everything run from now on."""
        with self._moved:
            self._open = True
            self._moved.notify_all()

    def close(self) -> None:
        """Hold the next step again."""
        with self._moved:
            self._open = False
            self._allowed = 0

    def await_held(self) -> None:
        """Blocks (use `asyncio.to_thread`) until a step is held."""
        with self._moved:
            assert self._moved.wait_for(lambda: self._held > 0, timeout=300)

    def await_arrivals(self, count: int) -> None:
        """Blocks (use `asyncio.to_thread`) until `count` steps have come to the gate in all."""
        with self._moved:
            assert self._moved.wait_for(lambda: self._arrived >= count, timeout=300)


class ScriptedEngine:
    """An Engine whose greedy answers are `answer(prompt, n, rule)`.

    `calls` records each step as a value. `faults` is asked before each step and may raise, which
    spoils every cell that the step would have written; `blank` names slots whose logits are not
    numbers, and neither are their cells; `poison` is an id that makes a slot so until a `clear`.
    """

    def __init__(
        self,
        slots: int = 2,
        max_seq_len: int = 64,
        chunks: tuple[int, ...] = (8,),
        rule: Rule = digest,
        gate: Gate | None = None,
        load_gate: Gate | None = None,
        load_failure: Exception | None = None,
    ) -> None:
        self.slots = slots
        self.max_seq_len = max_seq_len
        self.chunks = chunks
        self.vocab = VOCAB
        self.calls: list[tuple[object, ...]] = []
        self.threads: set[int] = set()
        self.faults: Callable[[str], None] = lambda step: None
        self.blank: set[int] = set()
        self.closed = False
        self.poison = -1  # the id whose keys and values are not numbers
        self._poisoned: set[int] = set()  # slots with such in their cache, wherever in it
        self._rule = rule
        self._gate = gate
        self._load_gate = load_gate
        self._load_failure = load_failure
        self._ids = np.zeros((slots, max_seq_len), np.int64)
        self._made_of = np.full((slots, max_seq_len), SPOILT, np.int64)

    def load(self, report: Report) -> None:
        self.threads.add(threading.get_ident())
        for phase in (Phase.LOADING_MODEL, Phase.COMPILING, Phase.WARMING_UP):
            report(phase, 0.0, phase.name.lower())
            if self._load_gate is not None:
                self._load_gate.pass_through()
        if self._load_failure is not None:
            raise self._load_failure
        report(Phase.WARMING_UP, 1.0, "verified")

    def prefill(self, slot: int, ids: Sequence[int], start: int) -> NDArray[np.float32]:
        assert 1 <= len(ids) <= self.chunks[-1]
        assert start + len(ids) <= self.max_seq_len
        with self._spoiling([(slot, start + i) for i in range(len(ids))]):
            self._begin("prefill", slot, tuple(ids), start)
        for i, id_ in enumerate(ids):
            self._write(slot, start + i, id_)
        return self._logits(slot, start + len(ids))

    def decode(self, ids: NDArray[np.int32], positions: NDArray[np.int32]) -> NDArray[np.float32]:
        assert ids.shape == positions.shape == (self.slots,)
        assert positions.max() < self.max_seq_len
        with self._spoiling(list(enumerate(positions.tolist()))):
            self._begin("decode", tuple(ids.tolist()), tuple(positions.tolist()))
        for slot in range(self.slots):  # idle ones write too, as in the real one
            self._write(slot, int(positions[slot]), int(ids[slot]))
        return np.stack(
            [self._logits(slot, int(positions[slot]) + 1) for slot in range(self.slots)]
        )

    def clear(self, slot: int) -> None:
        self.threads.add(threading.get_ident())
        self._poisoned.discard(slot)
        self._made_of[slot] = SPOILT

    def memory_bytes(self) -> int:
        return SLOT_BYTES * self.slots

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed = True

    def _begin(self, step: str, *details: object) -> None:
        assert not self.closed, "a step after close"
        self.threads.add(threading.get_ident())
        if self._gate is not None:
            self._gate.pass_through()
        self.calls.append((step, *details))
        self.faults(step)

    @contextmanager
    def _spoiling(self, cells: Sequence[tuple[int, int]]) -> Iterator[None]:
        try:
            yield
        except Exception:
            for slot, position in cells:
                self._made_of[slot, position] = SPOILT
            raise

    def _write(self, slot: int, position: int, id_: int) -> None:
        before = int(self._made_of[slot, position - 1]) if position else 0
        is_blank = slot in self.blank and position > 0
        if slot in self.blank or id_ == self.poison:
            self._poisoned.add(slot)
        self._ids[slot, position] = id_
        self._made_of[slot, position] = SPOILT if is_blank else _made_of(before, id_)

    def _logits(self, slot: int, length: int) -> NDArray[np.float32]:
        if slot in self.blank or slot in self._poisoned:
            return np.full(VOCAB, np.nan, np.float32)
        ids, made_of = tuple(self._ids[slot, :length].tolist()), [0]
        for id_ in ids:
            made_of.append(_made_of(made_of[-1], id_))
        if self._made_of[slot, :length].tolist() != made_of[1:]:
            ids = (*ids, VOCAB)
        logits = np.zeros(VOCAB, np.float32)
        logits[self._rule(ids)] = 10.0
        return logits


def _made_of(before: int, id_: int) -> int:
    return (before * 1_000_003 + id_ + 1) % (2**61 - 1)
