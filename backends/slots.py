"""Which generation each slot of the engine holds, how far it is, and who waits for one.

Floor 2, I/O only through the engine.   Owner: the model thread.
Flow: submitted > waiting > [prefill > decode ...] > ended.
A slot whose prompt is not whole yet takes part in every decode of its neighbours, because a decode
runs all slots at once. It does so at the position its next chunk begins at, so that what the decode
writes there is overwritten before anything reads it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.batching import Decode, Occupied, Plan, Prefill, Step, plan
from backends.engines.base import Engine, Finish, Generation, Token
from backends.sampling import Sampler, score

SEED_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Request:
    """A generation under the number that the executor knows it by (request ids may repeat)."""

    number: int
    generation: Generation
    submitted_ns: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step gave. A number is in `tokens` or in `failed`, never in both."""

    tokens: tuple[tuple[int, Token], ...] = ()
    failed: tuple[tuple[int, str], ...] = ()
    prompt_tokens: int = 0


NOTHING: Final = Outcome()


class _Held:
    """A generation in its slot."""

    __slots__ = ("filled", "last", "order", "produced", "request", "sampler")

    def __init__(self, request: Request, order: int, sampler: Sampler) -> None:
        self.request = request
        self.order = order
        self.sampler = sampler
        self.filled = 0  # positions of the slot's cache that are true
        self.produced = 0
        self.last = 0  # id that the next decode step feeds

    @property
    def prompt_left(self) -> int:
        return max(0, len(self.request.generation.prompt_ids) - self.filled)


class Slots:
    """The engine's slots and the queue before them."""

    def __init__(self, engine: Engine, rng: Random) -> None:
        self._engine = engine
        self._rng = rng
        self._held: list[_Held | None] = [None] * engine.slots
        self._waiting: deque[Request] = deque()
        self._admissions = 0
        self._after_prefill = False
        # Failures of a slot since a generation last ended well in it.
        self.faults = [0] * engine.slots

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def drop(self, number: int) -> bool:
        """True if the generation was here; its slot or place is free now. Cost: O(queue)."""
        for slot, held in enumerate(self._held):
            if held is not None and held.request.number == number:
                self._held[slot] = None
                return True
        found = next((waits for waits in self._waiting if waits.number == number), None)
        if found is not None:
            self._waiting.remove(found)
        return found is not None

    def clear(self) -> tuple[int, ...]:
        """Numbers of all that were here; nothing is, afterwards."""
        numbers = [held.request.number for held in self._held if held is not None]
        numbers += [request.number for request in self._waiting]
        self._held = [None] * len(self._held)
        self._waiting.clear()
        return tuple(numbers)

    def active(self) -> int:
        return sum(held is not None for held in self._held)

    def plan(self) -> Plan:
        views = [
            None if held is None else Occupied(held.order, held.prompt_left) for held in self._held
        ]
        return plan(views, len(self._waiting), self._after_prefill)

    def admit(self, admitted: Sequence[int]) -> tuple[Request, ...]:
        """The requests that took the slots, in the order of the slots."""
        taken = []
        for slot in admitted:
            assert self._held[slot] is None, "a slot that is held was given away"
            request = self._waiting.popleft()
            sampler = Sampler(request.generation.sampling, self._rng.getrandbits(SEED_BITS))
            self._held[slot] = _Held(request, self._admissions, sampler)
            self._admissions += 1
            taken.append(request)
        return tuple(taken)

    def run(self, step: Step) -> Outcome:
        """Raises: whatever the engine raises; `fail` must follow then."""
        match step:
            case Prefill(slot):
                self._after_prefill = True
                return self._prefill(slot)
            case Decode(slots):
                self._after_prefill = False
                return self._decode(slots)

    def fail(self, step: Step, why: str) -> Outcome:
        """The step broke: all that it was for have failed, and their slots are free."""
        slots = (step.slot,) if isinstance(step, Prefill) else step.slots
        return Outcome(failed=tuple(self._fail(slot, why) for slot in slots))

    def _prefill(self, slot: int) -> Outcome:
        held = self._at(slot)
        ids = held.request.generation.prompt_ids
        chunk = ids[held.filled : held.filled + self._engine.chunk_max]
        logits = self._engine.prefill(slot, chunk, held.filled)
        held.filled += len(chunk)
        if held.prompt_left:
            return Outcome(prompt_tokens=len(chunk))
        return self._advance({slot: logits}, len(chunk))

    def _decode(self, slots: Sequence[int]) -> Outcome:
        ids = np.zeros(self._engine.slots, np.int32)
        positions = np.zeros(self._engine.slots, np.int32)
        for slot, held in enumerate(self._held):
            if held is not None:
                positions[slot] = held.filled
                ids[slot] = held.last if slot in slots else 0
        logits = self._engine.decode(ids, positions)
        for slot in slots:
            self._at(slot).filled += 1
        return self._advance({slot: logits[slot] for slot in slots}, 0)

    def _advance(self, rows: dict[int, NDArray[np.float32]], prompt_tokens: int) -> Outcome:
        """Draw the next token of each slot in `rows`."""
        tokens, failed = [], []
        for slot, logits in rows.items():
            if not np.isfinite(logits).all():
                failed.append(self._fail(slot, "the model gave logits that are not numbers"))
                continue
            held = self._at(slot)
            tokens.append((held.request.number, self._draw(held, logits)))
            if tokens[-1][1].finish is not None:
                self._held[slot] = None
                self.faults[slot] = 0
        return Outcome(tuple(tokens), tuple(failed), prompt_tokens)

    def _draw(self, held: _Held, logits: NDArray[np.float32]) -> Token:
        generation = held.request.generation
        held.last = held.sampler.draw(logits)
        held.produced += 1
        wanted = generation.logprobs
        scores = None if wanted is None else score(logits, held.last, wanted)
        if held.last in generation.stop_ids:
            return Token(held.last, Finish.STOP, scores)
        full = held.filled + 1 >= self._engine.max_seq_len  # + 1: the token just drawn
        if full or held.produced >= generation.max_tokens:
            return Token(held.last, Finish.LENGTH, scores)
        return Token(held.last, None, scores)

    def _fail(self, slot: int, why: str) -> tuple[int, str]:
        number = self._at(slot).request.number
        self._held[slot] = None
        self.faults[slot] += 1
        return number, why

    def _at(self, slot: int) -> _Held:
        held = self._held[slot]
        assert held is not None, "a step was planned for a free slot"
        return held
