"""Requests for a graph, joined into runs; one thread owns the graph.

Floor 3, I/O (a thread).   Owner: the event loop that called `start`.
Flow: infer > queue > [plan: run or wait] > model thread > split > answers.
Queue and decision stay on the loop; the thread is given one run at a time. A run that fails is
taken apart, and each of its requests runs alone: one client's values must not fail another's.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from backends.engines.base import Report
from backends.engines.tensor import TensorEngine
from backends.errors import EngineFailed, InstanceError, LoadFailed, NotReady, QueueFull
from backends.microbatching import Run, Waiting, WaitUntil, plan
from backends.modelthread import ModelThread, attempt, sentence
from backends.readings import Meter, Readings
from backends.tensors import Arrays, mismatch, rows_of, zeros
from sluicegate.v1.states import Phase

log = logging.getLogger(__name__)

FAULTS_MAX: Final = 3  # in a row; then zeros are run, and they decide whose fault it was
MEMORY_EVERY: Final = 64  # runs; reading it costs a system call, and it moves slowly
CLOSED: Final = "the instance was stopped"

T = TypeVar("T")


class Thread(Protocol):
    """Where a graph is run; in tests, time itself."""

    def call(self, job: Callable[[], T]) -> "asyncio.Future[T]": ...

    def end(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Asked:
    """A request that waits or is being run."""

    inputs: Arrays
    waiting: Waiting
    since_ns: int
    answer: "asyncio.Future[Arrays]"


@dataclass(frozen=True, slots=True)
class _Ran:
    """What the thread brings back: an answer for each request of the run."""

    answers: tuple[Arrays, ...]
    memory_bytes: int | None


class Batcher:
    def __init__(
        self,
        engine: TensorEngine,
        max_delay_s: float,
        queue_max: int,
        *,
        thread: Callable[[asyncio.AbstractEventLoop], Thread] | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._engine = engine
        self._signature = engine.signature
        self.slots = max(1, engine.signature.max_batch)  # requests that one run can hold
        self._max_delay_s = max_delay_s
        self._room = self.slots + queue_max
        self._make_thread = thread or _started
        self._now_ns = monotonic_ns
        self._meter = Meter(self.slots, monotonic_ns())
        self._queue: deque[_Asked] = deque()
        self._running: Sequence[_Asked] = ()
        self._began_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: Thread | None = None
        self._loaded = False
        self._closing = threading.Event()  # read by the thread while it loads
        self._faults = 0
        self._failure = ""
        self.on_given_up: Callable[[], None] = lambda: None  # on the loop: no run will begin

    async def start(self, report: Report) -> None:
        """Returns once the graph is loaded; `report` is called on this loop, in order.

        Raises: what `TensorEngine.load` raises; LoadFailed for anything it did not foresee.
        """
        assert self._thread is None, "a batcher has one life"
        loop = asyncio.get_running_loop()
        self._thread = self._make_thread(loop)

        def pass_on(phase: Phase, share: float, words: str) -> None:
            if self._closing.is_set():
                raise LoadFailed(f"{CLOSED} while it was loading")
            loop.call_soon_threadsafe(report, phase, share, words)
            loop.call_soon_threadsafe(self._meter.memory_seen, self._engine.memory_bytes())

        try:
            await asyncio.shield(self._thread.call(partial(_load, self._engine, pass_on)))
        except InstanceError as exc:
            self._failure = str(exc)
            raise
        self._loaded = True

    async def infer(self, inputs: Arrays) -> Arrays:
        """The outputs by name. Whoever is cancelled here gives up its place.

        Raises: QueueFull, NotReady, EngineFailed.
        """
        if self._failure:
            raise EngineFailed(self._failure)
        if not self._loaded:
            raise NotReady("the model is still loading")
        held = len(self._queue) + len(self._running)
        if held >= self._room:
            raise QueueFull(f"no room: {held} of {self._room} places are held")
        loop = asyncio.get_running_loop()
        rows = rows_of(inputs, self._signature)
        shapes = tuple(inputs[spec.name].shape[1:] for spec in self._signature.inputs)
        waiting = Waiting(rows, shapes, loop.time())
        asked = _Asked(inputs, waiting, self._now_ns(), loop.create_future())
        self._queue.append(asked)
        self._turn()
        try:
            return await asked.answer
        finally:
            if asked in self._queue:  # only if it was cancelled
                self._queue.remove(asked)
                self._turn()

    def time_from_now(self) -> None:
        """What ran until now counts in no rate and no distribution."""
        self._meter.time_from(self._now_ns())

    def readings(self) -> Readings:
        now = self._now_ns()
        oldest = self._queue[0].since_ns if self._queue else now
        return self._meter.read(
            now, len(self._running), len(self._queue), now - oldest, self._failure
        )

    async def close(self) -> None:
        """Returns when the thread has ended; what it held has failed. Idempotent."""
        self._give_up(CLOSED)
        self._closing.set()
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        closed = thread.call(self._engine.close)
        await asyncio.wait([closed])
        closed.exception()  # it is in the log, and there is nothing left to do about it
        thread.end()

    # --- runs ---------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Begin what can begin. Called after everything that may change the answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running or self._failure:
            return
        loop, max_batch = asyncio.get_running_loop(), self._signature.max_batch
        seen = [asked.waiting for asked in islice(self._queue, max_batch + 1)]
        match plan(seen, loop.time(), max_batch, self._max_delay_s):
            case Run(count):
                self._begin([self._queue.popleft() for _ in range(count)])
            case WaitUntil(at):
                self._timer = loop.call_at(at, self._turn)

    def _begin(self, run: Sequence[_Asked]) -> None:
        assert self._thread is not None
        self._running = run
        self._began_ns = now = self._now_ns()
        for asked in run:
            if not asked.waiting.alone:  # it waited once
                self._meter.waited(now, now - asked.since_ns)
        measures = self._meter.progress % MEMORY_EVERY == 0
        job = partial(_run, self._engine, [asked.inputs for asked in run], measures)
        self._thread.call(job).add_done_callback(self._ran)

    def _ran(self, done: "asyncio.Future[_Ran]") -> None:
        run, exc = self._running, done.exception()
        if exc is None:
            self._answer(run, done.result())
        elif len(run) > 1:
            log.warning("run failed", extra={"requests": len(run), "reason": sentence(exc)})
            for asked in reversed(run):
                if not asked.answer.done():
                    asked.waiting = replace(asked.waiting, alone=True)
                    self._queue.appendleft(asked)
        else:
            self._failed(run[0], f"the graph failed: {sentence(exc)}")
            return
        self._rest()

    def _answer(self, run: Sequence[_Asked], ran: _Ran) -> None:
        now = self._now_ns()
        rows = sum(asked.waiting.rows for asked in run)
        self._meter.step_ran(now, now - self._began_ns, rows, 0)
        self._faults = 0
        if ran.memory_bytes is not None:
            self._meter.memory_seen(ran.memory_bytes)
        for asked, arrays in zip(run, ran.answers, strict=True):
            if not asked.answer.done():  # else its client is gone
                asked.answer.set_result(arrays)
                self._meter.ended_well(now - asked.since_ns)

    def _failed(self, asked: _Asked, why: str) -> None:
        self._faults += 1
        log.warning("request failed", extra={"reason": why})
        if self._faults < FAULTS_MAX or self._failure:
            self._fail(asked, why)
            self._rest()
            return
        assert self._thread is not None

        def zeros_ran(done: "asyncio.Future[_Ran]") -> None:
            self._faults = 0
            if done.exception() is not None:
                self._give_up(f"{why} ({FAULTS_MAX} times, and zeros fail too)")
                log.error("graph given up", extra={"reason": self._failure})
            self._fail(asked, self._failure or why)
            self._rest()
            if self._failure:
                self.on_given_up()

        job = partial(_run, self._engine, [zeros(self._signature, 1)], False)
        self._thread.call(job).add_done_callback(zeros_ran)

    def _rest(self) -> None:
        """The graph is idle."""
        self._running = ()
        self._turn()

    def _give_up(self, why: str) -> None:
        """No run begins any more."""
        self._failure = self._failure or why
        for asked in (*self._running, *self._queue):
            self._fail(asked, self._failure)
        self._queue.clear()

    def _fail(self, asked: _Asked, why: str) -> None:
        if not asked.answer.done():
            asked.answer.set_exception(EngineFailed(why))


def _started(loop: asyncio.AbstractEventLoop) -> Thread:
    thread = ModelThread(loop)
    thread.start()
    return thread


def _load(engine: TensorEngine, report: Report) -> None:
    """On the thread. Raises: InstanceError."""
    failure = attempt(lambda: engine.load(report))
    if failure is not None and not isinstance(failure, InstanceError):
        raise LoadFailed(f"the engine did not load: {sentence(failure)}")
    if failure is not None:
        raise failure


def _run(engine: TensorEngine, parts: Sequence[Arrays], measures: bool) -> _Ran:
    """On the thread: join, run, check, take apart."""
    signature = engine.signature
    counts = [rows_of(part, signature) for part in parts]
    outputs = engine.run(_joined(parts))
    problem = mismatch(outputs, signature, sum(counts))
    if problem:
        raise EngineFailed(problem)
    if len(parts) == 1:
        answers: tuple[Arrays, ...] = (outputs,)
    else:
        borders = np.cumsum(counts)[:-1]
        split = {name: np.split(array, borders) for name, array in outputs.items()}
        answers = tuple({name: split[name][i] for name in split} for i in range(len(parts)))
    return _Ran(answers, engine.memory_bytes() if measures else None)


def _joined(parts: Sequence[Arrays]) -> Mapping[str, NDArray[Any]]:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
