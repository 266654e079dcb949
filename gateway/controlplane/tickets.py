"""Who waits for which answer: a number that travels through the control loop and comes back.

Floor 2, no I/O.   Owner: the control process's event loop.
"""

import asyncio
from itertools import count
from typing import Any


class Tickets:
    def __init__(self) -> None:
        self._numbers = count(1)  # 0: nobody waits
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    def draw(self) -> tuple[int, "asyncio.Future[Any]"]:
        """A number to post, and the future that its answer fulfils."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        return number, future

    def answer(self, number: int, value: object) -> None:
        """Fulfil it; an exception is raised where it is awaited. Late answers find nobody."""
        future = self._waiting.get(number)
        if future is None or future.done():
            return
        if isinstance(value, Exception):
            future.set_exception(value)
        else:
            future.set_result(value)
