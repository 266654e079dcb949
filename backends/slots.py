"""Which generation each slot of the engine holds, how far it is, and who waits for one.

Floor 2, I/O only through the engine.   Owner: the model thread.
Flow: submitted > waiting > [prefill > decode ...] > ended > kept, until the slot is needed.
A decode runs all slots at once and writes to each. A slot that it is not for, because its prompt
is not whole yet or because it is free and keeps a prefix, is given its own first id at position 0:
what is there depends on that id alone, so the decode writes what is there already (and is no longer
than the streams need). So whatever a sequence reads was computed from its own ids, whoever did it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.batching import Decode, Occupied, Prefill, Step, plan
from backends.engines.base import Engine, Finish, Generation, Token
from backends.placing import NOTHING_KEPT, Kept, place
from backends.sampling import Sampler, score

SEED_BITS: Final = 64
NOT_NUMBERS: Final = "the model gave logits that are not numbers"


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
    prompt_tokens: int = 0  # computed in this step
    reused: tuple[int, int] | None = None  # whose prompt became whole, ids of it found in the slot


NOTHING: Final = Outcome()


class _Held:
    """A generation in its slot. Positions 0 to `filled` of the slot's cache are of `ids`."""

    __slots__ = ("filled", "ids", "order", "produced", "request", "reused", "sampler")

    def __init__(self, request: Request, order: int, sampler: Sampler, reused: int) -> None:
        self.request = request
        self.order = order
        self.sampler = sampler
        self.ids = list(request.generation.prompt_ids)  # and what was drawn since
        self.reused = reused  # of `filled`, found when the slot was taken
        self.filled = reused
        self.produced = 0

    @property
    def prompt_left(self) -> int:
        return max(0, len(self.request.generation.prompt_ids) - self.filled)


class Slots:
    """The engine's slots and the queue before them."""

    def __init__(self, engine: Engine, rng: Random, keeps: bool = True) -> None:
        """`keeps`: what a slot holds at the end of a generation is there for the next one."""
        self._engine = engine
        self._rng = rng
        self._keeps = keeps
        self._held: list[_Held | None] = [None] * engine.slots
        self._kept: list[Kept] = [NOTHING_KEPT] * engine.slots  # of slots that are free
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
                self._leave(slot)
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
        self.forget()
        return tuple(numbers)

    def forget(self) -> None:
        """Nothing is kept of what was."""
        self._kept = [NOTHING_KEPT] * len(self._held)

    def active(self) -> int:
        return sum(held is not None for held in self._held)

    def positions(self) -> tuple[int, int]:
        """Cache positions that generations hold, and those kept of what has ended."""
        held = sum(held.filled for held in self._held if held is not None)
        return held, sum(len(kept.ids) for kept in self._kept)

    def is_idle(self) -> bool:
        return not self._waiting and not self.active()

    def admit(self) -> tuple[Request, ...]:
        """The requests that took a slot now, in the order in which they came."""
        free = {slot: self._kept[slot] for slot, held in enumerate(self._held) if held is None}
        prompts = [
            self._waiting[i].generation.prompt_ids
            for i in range(min(len(self._waiting), len(free)))
        ]
        places = place(prompts, free, self._admissions)
        return tuple(self._take(taken.slot, taken.reused) for taken in places)

    def plan(self) -> Step | None:
        """What to run now; None: there is nothing to do."""
        views = [
            None if held is None else Occupied(held.order, held.prompt_left) for held in self._held
        ]
        return plan(views, self._engine.chunks, self._after_prefill)

    def run(self, step: Step) -> Outcome:
        """Raises: whatever the engine raises; `fail` must follow then."""
        match step:
            case Prefill(slot, count):
                self._after_prefill = True
                return self._prefill(slot, count)
            case Decode(slots):
                self._after_prefill = False
                return self._decode(slots)

    def fail(self, step: Step, why: str) -> Outcome:
        """The step broke: all that it was for have failed, and their slots are free."""
        if isinstance(step, Prefill):
            return Outcome(failed=(self._fail(step.slot, why),))
        failed = tuple(self._fail(slot, why) for slot in step.slots)
        # What a broken decode left in the slots that it was not for, nobody knows.
        self.forget()
        for held in self._held:
            if held is not None:
                held.filled = held.reused = 0
        return Outcome(failed=failed)

    def _take(self, slot: int, reused: int) -> Request:
        assert self._held[slot] is None, "a slot that is held was given away"
        request = self._waiting.popleft()
        sampler = Sampler(request.generation.sampling, self._rng.getrandbits(SEED_BITS))
        self._held[slot] = _Held(request, self._admissions, sampler, reused)
        self._kept[slot] = NOTHING_KEPT
        self._admissions += 1
        return request

    def _leave(self, slot: int) -> None:
        """The slot is free; what is true of its cache is kept."""
        held = self._at(slot)
        self._held[slot] = None
        if self._keeps:
            self._kept[slot] = Kept(tuple(held.ids[: held.filled]), self._admissions)

    def _prefill(self, slot: int, count: int) -> Outcome:
        held = self._at(slot)
        chunk = held.request.generation.prompt_ids[held.filled : held.filled + count]
        logits = self._engine.prefill(slot, chunk, held.filled)
        held.filled += len(chunk)
        if not held.prompt_left:
            reused = held.request.number, held.reused
            return replace(self._advance({slot: logits}), prompt_tokens=len(chunk), reused=reused)
        # Whoever finds these positions kept must be able to trust them.
        failed = () if np.isfinite(logits).all() else (self._fail_blank(slot),)
        return Outcome(failed=failed, prompt_tokens=len(chunk))

    def _decode(self, slots: Sequence[int]) -> Outcome:
        ids = np.zeros(self._engine.slots, np.int32)
        positions = np.zeros(self._engine.slots, np.int32)
        for slot in range(self._engine.slots):
            if slot in slots:
                held = self._at(slot)
                ids[slot], positions[slot] = held.ids[held.filled], held.filled
            else:
                ids[slot] = self._first_id(slot)
        logits = self._engine.decode(ids, positions)
        for slot in slots:
            self._at(slot).filled += 1
        return self._advance({slot: logits[slot] for slot in slots})

    def _first_id(self, slot: int) -> int:
        """Of the sequence whose keys and values the slot's cache holds; any id if there is none."""
        held = self._held[slot]
        ids = self._kept[slot].ids if held is None else held.ids
        return ids[0] if ids else 0

    def _advance(self, rows: dict[int, NDArray[np.float32]]) -> Outcome:
        """Draw the next token of each slot in `rows`."""
        tokens, failed = [], []
        for slot, logits in rows.items():
            if not np.isfinite(logits).all():
                failed.append(self._fail_blank(slot))
                continue
            held = self._at(slot)
            tokens.append((held.request.number, self._draw(held, logits)))
            if tokens[-1][1].finish is not None:
                self._leave(slot)
                self.faults[slot] = 0
        return Outcome(tuple(tokens), tuple(failed))

    def _draw(self, held: _Held, logits: NDArray[np.float32]) -> Token:
        generation = held.request.generation
        id_ = held.sampler.draw(logits)
        held.ids.append(id_)
        held.produced += 1
        wanted = generation.logprobs
        scores = None if wanted is None else score(logits, id_, wanted)
        if id_ in generation.stop_ids:
            return Token(id_, Finish.STOP, scores)
        full = held.filled + 1 >= self._engine.max_seq_len  # + 1: the token just drawn
        if full or held.produced >= generation.max_tokens:
            return Token(id_, Finish.LENGTH, scores)
        return Token(id_, None, scores)

    def _fail_blank(self, slot: int) -> tuple[int, str]:
        """What is not a number in the cache would spoil the next ones too."""
        self._engine.clear(slot)
        return self._fail(slot, NOT_NUMBERS)

    def _fail(self, slot: int, why: str) -> tuple[int, str]:
        """Nothing is kept of a slot that faulted."""
        number = self._at(slot).request.number
        self._held[slot] = None
        self.faults[slot] += 1
        return number, why

    def _at(self, slot: int) -> _Held:
        held = self._held[slot]
        assert held is not None, "a step was planned for a free slot"
        return held
