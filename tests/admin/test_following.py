from dataclasses import replace

from rich.console import Console

from admin.following import REFRESH_S, follow
from gateway.control import DrainView
from tests.admin.fakes import DRAIN, ENDED

STEPS = (
    replace(DRAIN, phase="publishing"),
    DRAIN,
    replace(DRAIN, remaining_s=28.0),
    replace(DRAIN, held=1, active_requests=1, remaining_s=20.0),
    ENDED,
)


def _followed(is_terminal: bool) -> tuple[DrainView, str, list[float]]:
    console = Console(width=100, force_terminal=is_terminal, no_color=True)
    steps = iter(STEPS)
    pauses: list[float] = []
    with console.capture() as captured:
        ended = follow(lambda: next(steps), console, pauses.append)
    return ended, captured.get(), pauses


def test_away_from_a_terminal_each_change_is_a_line() -> None:
    ended, text, pauses = _followed(is_terminal=False)
    assert ended == ENDED
    assert text.splitlines() == [
        "m-1-0: publishing, 3 requests held, 29 s left",
        "m-1-0: waiting, 3 requests held, 29 s left",
        "m-1-0: waiting, 1 request held, 20 s left",
        "m-1-0: done after 4.0 s",
    ]
    assert pauses == [REFRESH_S] * 4


def test_on_a_terminal_a_bar_ends_full() -> None:
    ended, text, pauses = _followed(is_terminal=True)
    assert ended == ENDED
    assert "m-1-0: done after 4.0 s" in text
    assert len(pauses) == 4


def test_a_drain_that_has_ended_is_not_waited_for() -> None:
    pauses: list[float] = []
    assert follow(lambda: ENDED, Console(quiet=True), pauses.append) == ENDED
    assert pauses == []
