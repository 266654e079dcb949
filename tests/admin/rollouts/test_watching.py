import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console

from admin.calls import Unanswered
from admin.rollouts import watching
from gateway.control import RolloutView, TransitionView
from tests.admin.fakes import ROLLED_BACK, ROLLOUT

GONE = Unanswered("no_gateway", "no gateway answers")


def _reads(*given: RolloutView | Unanswered) -> Callable[[], RolloutView]:
    left = iter(given)

    def read() -> RolloutView:
        one = next(left)
        if isinstance(one, Unanswered):
            raise one
        return one

    return read


def _console(is_terminal: bool) -> tuple[Console, io.StringIO]:
    said = io.StringIO()
    console = Console(file=said, force_terminal=is_terminal, width=160, height=40)
    return console, said


def _end(view: RolloutView) -> RolloutView:
    last = TransitionView(1.7e9 + 90, "rolled_back", 1, "it failed", "gateway")
    return replace(ROLLED_BACK, id=view.id, transitions=(*view.transitions, last))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_it_is_followed_to_its_end_past_a_gateway_that_is_away(is_terminal: bool) -> None:
    console, said = _console(is_terminal)
    pauses: list[float] = []
    ended = _end(ROLLOUT)
    found = watching.watch(_reads(ROLLOUT, GONE, GONE, ended), console, pauses.append)
    assert found == ended
    assert pauses == [watching.REFRESH_S] * 3
    assert ("does not answer, asking again" in said.getvalue()) == is_terminal


def test_without_a_terminal_each_transition_is_told_once() -> None:
    console, said = _console(False)
    read = _reads(ROLLOUT, ROLLOUT, replace(ROLLOUT, hold_left_s=1.0), _end(ROLLOUT))
    watching.watch(read, console, lambda _: None)
    lines = [line.split("  ", 1)[1] for line in said.getvalue().splitlines()]
    assert lines == [
        "pending: asked for (ada at 127.0.0.1)",
        "step 1: validated (gateway)",
        "rolled_back: it failed (gateway)",
    ]


def test_a_gateway_that_stays_away_is_given_up() -> None:
    console, _ = _console(False)
    pauses: list[float] = []
    with pytest.raises(Unanswered):
        watching.watch(_reads(*[GONE] * 1000), console, pauses.append)
    assert len(pauses) == watching.PATIENCE


def test_a_refusal_ends_the_look_at_once() -> None:
    console, _ = _console(False)
    refused = Unanswered("unknown_rollout", "m/2 is not remembered any more")
    with pytest.raises(Unanswered, match="not remembered"):
        watching.watch(_reads(refused), console, lambda _: None)
