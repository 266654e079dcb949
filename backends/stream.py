"""One generation as its consumer sees it: tokens as they come, then an end or a failure.

Floor 2, no I/O.   Owner: the instance's event loop.
What waits here is bounded by the generation's own max_tokens, so a slow reader costs its own
answer's size and never holds up a step.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from backends.engines.base import Token
from backends.errors import EngineFailed


class Stream:
    """An async iterator of Token for one consumer.

    The consumer calls `cancel` when it leaves early, or `stop` when it has all it wants; both are
    harmless after the end.
    """

    def __init__(self, number: int, leave: Callable[[int, bool], None]) -> None:
        self.number = number
        self.admitted = False  # holds a slot, or held one
        self.queue_wait_ms = 0.0  # known once the first token is there
        self._leave = leave
        self._tokens: deque[Token] = deque()
        self._ended = False
        self._failure: str | None = None
        self._reader: asyncio.Future[None] | None = None

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Token:
        """Raises: EngineFailed, once the tokens that came before the failure were taken."""
        while not self._tokens and not self._ended:
            assert self._reader is None, "a stream has one consumer"
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        if self._tokens:
            return self._tokens.popleft()
        if self._failure is not None:
            raise EngineFailed(self._failure)
        raise StopAsyncIteration

    def cancel(self) -> None:
        """The client is gone: the slot is free from the next step on, and nothing more comes."""
        self._leave_early(served=False)

    def stop(self) -> None:
        """The consumer has all it wants (a stop string): as `cancel`, but counted as served."""
        self._leave_early(served=True)

    # --- called by the executor -------------------------------------------------------------

    def push(self, token: Token) -> bool:
        """False if the consumer had left: the step was under way then."""
        if self._ended:
            return False
        self._tokens.append(token)
        self._ended = token.finish is not None
        self._wake()
        return True

    def fail(self, why: str) -> None:
        if not self._ended:
            self._failure = why
            self._ended = True
            self._wake()

    def _leave_early(self, served: bool) -> None:
        if self._ended:
            return
        self._ended = True
        self._tokens.clear()
        self._wake()
        self._leave(self.number, served)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
