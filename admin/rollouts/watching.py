"""A rollout, followed to its end on a terminal.

Floor 3, I/O.
Asks again every REFRESH_S, for the eye only: the rollout waits for nobody who looks at it. It can
last hours, so a gateway that does not answer for a while (its control starts anew, another takes
over) is asked again before the look is given up.
"""

from collections.abc import Callable
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from admin.calls import Unanswered
from admin.rollouts import tables
from admin.terminal import NOBODY
from gateway.control import RolloutView, TransitionView

REFRESH_S: Final = 0.5  # smooth to the eye, nothing to the gateway
PATIENCE: Final = 240  # refreshes without an answer: two minutes, longer than a restart takes

Read = Callable[[], RolloutView]
Pause = Callable[[float], None]


def watch(read: Read, console: Console, pause: Pause) -> RolloutView:
    """The rollout once it has ended: a page that changes, or a line a transition.

    Raises: Unanswered when the gateway refuses, or has not answered for long.
    """
    return _page(read, console, pause) if console.is_terminal else _lines(read, console, pause)


class _Patient:
    """Reads; None while nobody answers."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._missed = 0

    def view(self) -> RolloutView | None:
        try:
            view = self._read()
        except Unanswered as exc:
            self._missed += 1
            if exc.code not in NOBODY or self._missed > PATIENCE:
                raise
            return None
        self._missed = 0
        return view


def _page(read: Read, console: Console, pause: Pause) -> RolloutView:
    patient = _Patient(read)
    shown: RenderableType = Text()
    with Live(shown, console=console, auto_refresh=False) as live:
        while True:
            view = patient.view()
            if view is None:
                silent = Text("the gateway does not answer, asking again", style="yellow")
                live.update(Group(shown, Text(), silent), refresh=True)
            else:
                shown = tables.rollout(view)
                live.update(shown, refresh=True)
                if view.ended is not None:
                    return view
            pause(REFRESH_S)


def _lines(read: Read, console: Console, pause: Pause) -> RolloutView:
    patient = _Patient(read)
    told: set[TransitionView] = set()
    while True:
        view = patient.view()
        if view is not None:
            for one in view.transitions:
                if one not in told:
                    console.print(tables.transition(one))
            told |= set(view.transitions)
            if view.ended is not None:
                return view
        pause(REFRESH_S)
