"""One generation as its consumer sees it: tokens as they come, then an end or a failure.

Floor 2, no I/O.   Owner: the instance's event loop.
What waits here is bounded by the generation's own max_tokens, so a slow reader costs its own
answer's size and never holds up a step. One consumer may read several streams at once, those of one
request: they share a bell.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from backends.engines.base import Token
from backends.errors import EngineFailed


class Bell:
    """Wakes the one consumer of the streams that ring it."""

    def __init__(self) -> None:
        self._reader: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Returns at the next ring. Look for what is there before: nothing is remembered."""
        assert self._reader is None, "a stream has one consumer"
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def ring(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Stream:
    """An async iterator of Token for one consumer.

    The consumer calls `cancel` when it leaves early, or `stop` when it has all it wants; both are
    harmless after the end.
    """

    def __init__(self, number: int, leave: Callable[[int, bool], None], bell: Bell) -> None:
        self.number = number
        self.bell = bell
        self.admitted = False  # holds a slot, or held one
        self.queue_wait_ms = 0.0  # known once the first token is there
        self.reused = 0  # ids of the prompt that were not computed; likewise
        self.submitted_ns = 0
        self.first_ns = 0  # when the first token came; 0: none has
        self.count = 0  # of tokens that came
        self._leave = leave
        self._tokens: deque[Token] = deque()
        self._ended = False
        self._failure: str | None = None

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Token:
        """Raises: EngineFailed, once the tokens that came before the failure were taken."""
        while (token := self.take()) is None:
            if self.is_over:
                raise StopAsyncIteration
            await self.bell.wait()
        return token

    @property
    def is_over(self) -> bool:
        """It ended well, or its consumer left: no token is here, and none will come."""
        return self._ended and not self._tokens and self._failure is None

    def take(self) -> Token | None:
        """The next token if it is here. Raises: EngineFailed, as iterating does."""
        if self._tokens:
            return self._tokens.popleft()
        if self._failure is not None:
            raise EngineFailed(self._failure)
        return None

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
        self.bell.ring()
        return True

    def fail(self, why: str) -> None:
        if not self._ended:
            self._failure = why
            self._ended = True
            self.bell.ring()

    def _leave_early(self, served: bool) -> None:
        # Also what had come already, the end or a failure, is no more than was wanted.
        self._tokens.clear()
        self._failure = None
        if self._ended:
            return
        self._ended = True
        self.bell.ring()
        self._leave(self.number, served)


async def merged(streams: Sequence[Stream]) -> AsyncIterator[tuple[int, Token]]:
    """The tokens of streams that share a bell, as they come, each with its stream's index.

    Raises: EngineFailed when one of them fails.
    """
    going = list(enumerate(streams))
    while going:
        idle = True
        for index, stream in going:
            token = stream.take()
            if token is not None:
                idle = False
                yield index, token
        going = [(index, stream) for index, stream in going if not stream.is_over]
        if going and idle:
            await streams[0].bell.wait()
