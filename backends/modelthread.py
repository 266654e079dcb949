"""The one thread that may touch a graph: jobs go in, futures come out.

Floor 3, I/O (a thread).   Owner: the event loop it was made on.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from backends.errors import InstanceError

log = logging.getLogger(__name__)

T = TypeVar("T")


class ModelThread(threading.Thread):
    """Runs jobs one after another, in the order they were given."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # A daemon: a process told to end at once must not wait for a run that hangs.
        super().__init__(name="model", daemon=True)
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None]
        self._jobs = SimpleQueue()

    def call(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        """What `job` returns or raises on the thread."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, answer))
        return answer

    def end(self) -> None:
        """Returns when the thread has ended; every job has ended before."""
        self._jobs.put(None)
        self.join()

    def run(self) -> None:
        while (given := self._jobs.get()) is not None:
            job, answer = given
            found = attempt(job)
            # A loop that is closed has nobody left to be told.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_settle, answer, found)


def attempt(call: Callable[[], T]) -> T | Exception:
    """What `call` returns or raises.

    The one broad except of a model thread: whatever an engine raises is a fault to record and to
    tell the requests it concerns, not the end of the thread.
    """
    try:
        return call()
    except Exception as exc:
        if not isinstance(exc, InstanceError):
            log.exception("engine raised")
        return exc


def sentence(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}"


def _settle(answer: asyncio.Future[Any], found: Any) -> None:
    if answer.done():  # nobody waits for it any more
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
