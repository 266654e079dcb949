"""The control loop: one variable, one writer.

Floor 3, I/O.   Owner: the control process.
Events queue up; one at a time goes to a pure `decide` together with the state, and the commands
that come back are carried out by effects. What comes of an effect is just another event, so a slow
call never holds up the loop and nothing is decided from a reading that has gone stale.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

S = TypeVar("S")
E = TypeVar("E")
log = logging.getLogger(__name__)

INBOX_MAX: Final = 100_000  # far above the events of one second; reaching it is a bug, not load


class ControlLoop(Generic[S, E]):
    """Owner of the control state.

    decide: pure; the next state and the commands to carry out, in order.
    effects: how each kind of command is carried out, at once or awaited; may return an event.
    broken: the event that says that a command broke in a way nobody foresaw.
    """

    def __init__(
        self,
        state: S,
        decide: Callable[[S, E], tuple[S, Sequence[object]]],
        effects: Mapping[type, Callable[[Any], Any]],
        broken: Callable[[object, Exception], E],
    ) -> None:
        self.state = state  # anyone may read; only run() assigns
        self.after: list[Callable[[S], None]] = []  # called after each decision
        self._decide = decide
        self._effects = effects
        self._broken = broken
        self._inbox: asyncio.Queue[E] = asyncio.Queue(INBOX_MAX)

    def post(self, event: E) -> None:
        """Queue an event, from any callback of this loop's thread. Never waits."""
        self._inbox.put_nowait(event)

    async def run(self) -> None:
        """Serve events until cancelled; effects still running are cancelled with it."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self.state, commands = self._decide(self.state, await self._inbox.get())
                # Tasks take their first step in the order in which they were made, so effects
                # that do not wait happen in the order of the commands, over all decisions.
                for command in commands:
                    tasks.create_task(self._carry_out(command))
                for then in self.after:
                    then(self.state)

    async def _carry_out(self, command: object) -> None:
        effect = self._effects[type(command)]  # outside the try: a missing effect is our bug
        try:
            event = effect(command)
            if inspect.isawaitable(event):
                event = await event
        except Exception as exc:  # the shell's edge: what the world broke becomes an event
            log.exception("effect failed", extra={"command": repr(command)})
            event = self._broken(command, exc)
        if event is not None:
            self.post(event)
