"""A drain, followed to its end on a terminal.

Floor 3, I/O.
Asks again every REFRESH_S, for the eye only: the drain itself waits for nobody who looks at it, and
goes on when the one who looks is gone.
"""

from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from admin import tables
from gateway.control import DrainView

REFRESH_S: Final = 0.25  # smooth to the eye, nothing to the gateway


def follow(
    read: Callable[[], DrainView], console: Console, pause: Callable[[float], None]
) -> DrainView:
    """The drain once it has ended. Shows a bar on a terminal, elsewhere a line per change."""
    return _bar(read, console, pause) if console.is_terminal else _lines(read, console, pause)


def _lines(
    read: Callable[[], DrainView], console: Console, pause: Callable[[float], None]
) -> DrainView:
    shown: tuple[str, int] | None = None
    while True:
        drain = read()
        now = (drain.phase, max(drain.held, drain.active_requests))
        if now != shown:
            console.print(tables.drain(drain))
            shown = now
        if drain.ended is not None:
            return drain
        pause(REFRESH_S)


def _bar(
    read: Callable[[], DrainView], console: Console, pause: Callable[[float], None]
) -> DrainView:
    """The bar fills as requests end; the deadline counts down beside it."""
    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=None)
        most = 1
        while True:
            drain = read()
            held = max(drain.held, drain.active_requests)
            most = max(most, held)
            progress.update(
                task, total=most, completed=most - held, description=tables.drain(drain)
            )
            if drain.ended is not None:
                return drain
            pause(REFRESH_S)
