"""An instance that registers itself: what it says, and how it is answered."""

from gateway.fleet.commands import (
    Answer,
    Command,
    RegisterAnswer,
)
from gateway.fleet.events import (
    Observed,
    Registered,
)
from gateway.fleet.snapshot import FleetSnapshot
from tests.gateway.fleet.builders import (
    begun,
    observed,
    only,
    play,
    status,
    texts,
)


def register(now: float = 1.0, **fields: object) -> Registered:
    return Registered(5, status("r", **fields), "", 0.0, 0, now)  # type: ignore[arg-type]


def registered() -> FleetSnapshot:
    fleet, _ = play(begun(), register(), answered("r"))
    return fleet


def answered(name: str, now: float = 1.5, **fields: object) -> Observed:
    return observed(name, now=now, **fields)  # type: ignore[arg-type]


def refused(commands: list[Command]) -> RegisterAnswer:
    (answer,) = only(Answer, commands)
    assert isinstance(answer.value, RegisterAnswer)
    assert answer.value.refusal
    assert any(answer.value.refusal in text for text in texts(commands))
    return answer.value
