"""One thread owns the model; generations go in, streams of tokens come out.

Floor 3, I/O (a thread).
Flow: submit > inbox > [model thread: admit, step, step ...] > event loop > stream.
The thread blocks on its inbox only when it holds nothing, and a queue remembers what is put into
it, so no wake-up can be lost. Everything the thread learns goes to the loop as one call a step;
counts and streams are touched on the loop alone, slots and engine on the thread alone.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from random import Random
from typing import Final

from backends.batching import Step
from backends.engines.base import Engine, Generation, Report
from backends.errors import (
    EngineFailed,
    InstanceError,
    LoadFailed,
    NotReady,
    QueueFull,
    RequestInvalid,
)
from backends.modelthread import attempt, sentence
from backends.readings import MS_NS, Meter, Readings
from backends.slots import NOTHING, Outcome, Request, Slots
from backends.stream import Bell, Stream
from sluicegate.v1.states import Phase

log = logging.getLogger(__name__)

FAULTS_MAX: Final = 3  # in one slot, with nothing served in between: one may be the request's fault
MEMORY_EVERY: Final = 64  # steps; reading it costs a system call, and it moves slowly
CLOSED: Final = "the instance was stopped"
DIED: Final = "the model thread died"


@dataclass(frozen=True, slots=True)
class _Cancel:
    number: int


@dataclass(frozen=True, slots=True)
class _Forget:
    pass


@dataclass(frozen=True, slots=True)
class _Close:
    pass


@dataclass(frozen=True, slots=True)
class _StepDone:
    """What the thread tells the loop after a step, or when it let go of something."""

    outcome: Outcome = NOTHING
    admitted: tuple[tuple[int, int], ...] = ()  # number, nanoseconds waited
    released: tuple[int, ...] = ()  # gone at their consumers' wish
    busy: int = 0
    span_ns: int = 0  # 0: no step ran
    memory_bytes: int | None = None
    positions: tuple[int, int] | None = None  # of the cache: held, kept
    failure: str = ""  # set once: no step will run any more


class Executor:
    """The loop's side. Owner: the event loop that called `start`."""

    def __init__(
        self,
        engine: Engine,
        queue_max: int,
        *,
        prefix_reuse: bool = True,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        rng: Random | None = None,
    ) -> None:
        self._engine = engine
        self._prefix_reuse = prefix_reuse
        self._queue_max = queue_max
        self._now_ns = monotonic_ns
        self._rng = rng or Random()
        self._streams: dict[int, Stream] = {}  # held
        self._left: set[int] = set()  # of these: told to the thread, which lets go before it takes
        self._numbers = 0
        self._meter = Meter(engine.slots, monotonic_ns())
        self._failure = ""
        self.on_given_up: Callable[[], None] = lambda: None  # on the loop: no step will run
        self._model: _Model | None = None
        self._loaded: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    async def start(self, report: Report) -> None:
        """Returns once the engine is loaded; `report` is called on this loop, in order.

        Raises: what `Engine.load` raises; LoadFailed for anything it did not foresee.
        """
        assert self._model is None, "an executor has one life"
        loop = asyncio.get_running_loop()
        self._loaded, self._ended = loop.create_future(), loop.create_future()
        slots = Slots(self._engine, self._rng, self._prefix_reuse)
        self._model = _Model(self._engine, slots, loop, self, report, self._now_ns)
        self._model.start()
        await asyncio.shield(self._loaded)

    @property
    def vocab(self) -> int:
        """Token ids are below it; known once it is loaded."""
        return self._engine.vocab

    def submit(self, generation: Generation) -> Stream:
        """Raises: QueueFull, EngineFailed once no step will run, RequestInvalid, NotReady."""
        return self.submit_all((generation,))[0]

    def submit_all(self, generations: Sequence[Generation]) -> tuple[Stream, ...]:
        """Streams of one consumer, a generation each: all of them, or none is taken.

        Raises: as `submit`.
        """
        if self._failure:
            raise EngineFailed(self._failure)
        if self._model is None or self._loaded is None or not self._loaded.done():
            raise NotReady("the model is still loading")
        for generation in generations:
            _check(generation, self._engine.max_seq_len, self._engine.vocab)
        room = self._engine.slots + self._queue_max
        held = len(self._streams) - len(self._left)
        if held + len(generations) > room:
            raise QueueFull(f"no room: {held} of {room} slots and places are held")
        bell = Bell()
        return tuple(self._take(generation, bell) for generation in generations)

    def _take(self, generation: Generation, bell: Bell) -> Stream:
        assert self._model is not None
        self._numbers += 1
        stream = Stream(self._numbers, self._leave, bell)
        stream.submitted_ns = self._now_ns()
        self._streams[stream.number] = stream
        self._model.inbox.put(Request(stream.number, generation, stream.submitted_ns))
        return stream

    def now_ns(self) -> int:
        """By the clock that its streams are stamped with."""
        return self._now_ns()

    def forget(self) -> None:
        """Nothing that was asked until now is what later prompts begin with."""
        assert self._model is not None
        self._model.inbox.put(_Forget())

    def time_from_now(self) -> None:
        """What ran until now counts in no rate and no distribution."""
        self._meter.time_from(self._now_ns())

    def readings(self) -> Readings:
        now = self._now_ns()
        held = self._streams.values()
        active = sum(stream.admitted for stream in held)
        # Numbers grow, so the first that waits is the oldest.
        oldest = next((stream.submitted_ns for stream in held if not stream.admitted), now)
        waiting = len(self._streams) - active
        return self._meter.read(now, active, waiting, now - oldest, self._failure)

    async def close(self) -> None:
        """Returns when the thread has ended; what it held has failed. Idempotent."""
        if self._model is None or self._ended is None:
            self._failure = self._failure or CLOSED
            return
        self._model.closing.set()
        self._model.inbox.put(_Close())
        await asyncio.shield(self._ended)
        self._model.join()  # it has nothing left to do but return

    # --- called on the loop, for the model thread ------------------------------------------

    def load_ended(self, failure: Exception | None) -> None:
        assert self._loaded is not None
        if failure is None:
            self._loaded.set_result(None)
            return
        self._failure = str(failure)
        self._loaded.set_exception(failure)
        self._loaded.exception()  # marks it as seen: whoever awaited `start` may be gone

    def step_done(self, done: _StepDone) -> None:
        now = self._now_ns()
        for number, wait_ns in done.admitted:
            stream = self._streams[number]
            stream.admitted = True
            stream.queue_wait_ms = wait_ns / MS_NS
            self._meter.waited(now, wait_ns)
        if done.span_ns:
            given, read = len(done.outcome.tokens), done.outcome.prompt_tokens
            self._meter.step_ran(now, done.span_ns, done.busy, given, read)
        if done.outcome.reused is not None:
            number, reused = done.outcome.reused
            self._streams[number].reused = reused
            self._meter.prompt_became_whole(reused)
        if done.memory_bytes is not None:
            self._meter.memory_seen(done.memory_bytes)
        if done.positions is not None:
            room = self._engine.slots * self._engine.max_seq_len
            self._meter.kv_held_ratio = done.positions[0] / room
            self._meter.kv_kept_ratio = done.positions[1] / room
        given_up = bool(done.failure) and not self._failure
        self._failure = self._failure or done.failure
        for number, token in done.outcome.tokens:
            stream = self._streams[number]
            wanted = stream.push(token)
            stream.count += 1
            if stream.count == 1:
                stream.first_ns = now
                self._meter.first_token_came(now - stream.submitted_ns)
            if token.finish is not None:
                self._let_go(number)
                if wanted:
                    self._served(stream, now)
        for number, why in done.outcome.failed:
            self._let_go(number).fail(why)
        for number in done.released:
            self._let_go(number)
        if given_up:
            self.on_given_up()

    def thread_ended(self) -> None:
        assert self._loaded is not None
        assert self._ended is not None
        assert self._model is not None
        died = not self._failure and not self._model.closing.is_set()
        self._failure = self._failure or (DIED if died else CLOSED)
        for stream in self._streams.values():
            stream.fail(self._failure)
        self._streams.clear()
        self._left.clear()
        if not self._loaded.done():
            self.load_ended(LoadFailed(f"{DIED} while loading"))
        elif died:
            self.on_given_up()
        self._ended.set_result(None)

    def _leave(self, number: int, served: bool) -> None:
        """The stream's consumer wants no more of it. It is held until the thread let go."""
        assert self._model is not None
        if served:
            self._served(self._streams[number], self._now_ns())
        self._left.add(number)
        self._model.inbox.put(_Cancel(number))

    def _served(self, stream: Stream, now: int) -> None:
        latency, decoding = now - stream.submitted_ns, now - stream.first_ns
        self._meter.ended_well(latency, stream.count - 1, decoding)

    def _let_go(self, number: int) -> Stream:
        self._left.discard(number)
        return self._streams.pop(number)


class _Model(threading.Thread):
    """The thread's side: it alone calls the engine."""

    def __init__(
        self,
        engine: Engine,
        slots: Slots,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        report: Report,
        now_ns: Callable[[], int],
    ) -> None:
        # A daemon: a process told to end at once must not wait for a step that hangs.
        super().__init__(name="model", daemon=True)
        self.inbox: SimpleQueue[Request | _Cancel | _Forget | _Close] = SimpleQueue()
        self.closing = threading.Event()
        self._engine = engine
        self._loop = loop
        self._executor = executor
        self._report = report
        self._now_ns = now_ns
        self._slots = slots
        self._steps = 0
        self._failure = ""

    def run(self) -> None:
        try:
            if self._load():
                while self._read_inbox():
                    self._step()
            attempt(self._engine.close)
        finally:
            self._tell(self._executor.thread_ended)

    def _load(self) -> bool:
        failure = attempt(lambda: self._engine.load(self._pass_on))
        if failure is not None and not isinstance(failure, InstanceError):
            failure = LoadFailed(f"the engine did not load: {sentence(failure)}")
        self._tell(self._executor.load_ended, failure)
        return failure is None

    def _pass_on(self, phase: Phase, share: float, words: str) -> None:
        if self.closing.is_set():
            raise LoadFailed(f"{CLOSED} while it was loading")
        memory_bytes = self._engine.memory_bytes()
        self._tell(self._report, phase, share, words)
        self._tell(self._executor.step_done, _StepDone(memory_bytes=memory_bytes))

    def _read_inbox(self) -> bool:
        """False when it is time to end. Waits for a message only if there is nothing to run."""
        released = []
        block = self._slots.is_idle()
        while True:
            try:
                message = self.inbox.get(block)
            except Empty:
                break
            block = False
            match message:
                case _Close():
                    return False
                case _Cancel(number):
                    if self._slots.drop(number):
                        released.append(number)
                case Request():
                    self._take(message)
                case _Forget():
                    self._slots.forget()
        if released:
            done = _StepDone(released=tuple(released), positions=self._slots.positions())
            self._tell(self._executor.step_done, done)
        return True

    def _take(self, request: Request) -> None:
        if self._failure:  # submitted before the loop heard of it
            outcome = Outcome(failed=((request.number, self._failure),))
            self._tell(self._executor.step_done, _StepDone(outcome))
        else:
            self._slots.add(request)

    def _step(self) -> None:
        began = self._now_ns()
        admitted = self._slots.admit()
        step = self._slots.plan()
        if step is None:
            return
        waits = tuple((request.number, began - request.submitted_ns) for request in admitted)
        busy = self._slots.active()
        outcome, failure = self._run(step)
        self._steps += 1
        memory = self._engine.memory_bytes() if self._steps % MEMORY_EVERY == 1 else None
        span = max(1, self._now_ns() - began)
        positions = self._slots.positions()
        done = _StepDone(outcome, waits, (), busy, span, memory, positions, failure)
        self._tell(self._executor.step_done, done)

    def _run(self, step: Step) -> tuple[Outcome, str]:
        """What the step gave, and why no other will run (empty: others will)."""
        outcome = attempt(lambda: self._slots.run(step))
        if isinstance(outcome, Exception):
            outcome = self._slots.fail(step, f"the model failed: {sentence(outcome)}")
        for number, why in outcome.failed:
            log.warning("generation failed", extra={"number": number, "reason": why})
        if max(self._slots.faults) < FAULTS_MAX:
            return outcome, ""
        self._failure = f"{outcome.failed[-1][1]} ({FAULTS_MAX} times in one slot)"
        log.error("model given up", extra={"reason": self._failure})
        rest = tuple((number, self._failure) for number in self._slots.clear())
        return replace(outcome, failed=outcome.failed + rest), self._failure

    def _tell(self, call: Callable[..., None], *values: object) -> None:
        # A loop that is closed has nobody left to be told.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *values)


def _check(generation: Generation, max_seq_len: int, vocab: int) -> None:
    """A request that the engine would choke on must not count as the engine's fault."""
    length = len(generation.prompt_ids)
    if not length:
        raise RequestInvalid("prompt", "must hold at least one token")
    if length >= max_seq_len:
        raise RequestInvalid(
            "prompt", f"holds {length} tokens; with one to generate, {max_seq_len} is the limit"
        )
    if min(generation.prompt_ids) < 0 or max(generation.prompt_ids) >= vocab:
        raise RequestInvalid("prompt", f"must hold token ids from 0 to {vocab - 1}")
    if generation.max_tokens < 1:
        raise RequestInvalid("max_tokens", f"must be at least 1, not {generation.max_tokens}")
    for id_, _ in generation.sampling.logit_bias:
        if id_ >= vocab:
            raise RequestInvalid(f"logit_bias.{id_}", f"must be a token id from 0 to {vocab - 1}")
