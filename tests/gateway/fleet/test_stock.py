"""A rollout of what the model repository has not: refused when it is asked for, not sent back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.control import Ask, Denied, Receipt
from gateway.fleet.capacity import to_start
from gateway.fleet.commands import Answer, Command, LookUp, Write
from gateway.fleet.decide import decide
from gateway.fleet.events import Asked, ChildExited
from gateway.fleet.rollout_asks import NAMED_MAX, listed
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.stock import Stock
from gateway.rollout.machine import Phase
from gateway.rollouts import AbortRollout, PauseRollout, RetryRollout
from tests.gateway.fleet.builders import follow_up, only, play
from tests.gateway.fleet.rolling import CONFIG, NEW, Traffic, asked, at, rollout, serving, start
from tests.gateway.fleet.test_rollout_asks import answered

OURS = CONFIG.replace('command = ["serve"]\n', "")
NONE = Stock("2", False, ("1", "3"))
UNSURE = Stock("2", None, doubt="no answer in 5 s")


def ask(
    fleet: FleetSnapshot, one: Ask, stock: Stock, now: float = 10.0, dry_run: bool = False
) -> tuple[FleetSnapshot, list[Command]]:
    """After the ask, when the repository says this of what it is asked for; it is asked once."""
    fleet, commands = decide(fleet, Asked(1, one, dry_run, None, now, "ann"))
    (look,) = only(LookUp, commands)
    assert not only(Write, commands)
    assert not only(Answer, commands)
    assert (look.model, look.version) == ("m", stock.version)
    assert fleet.asks == ()  # nobody waits for it
    fleet, commands = decide(fleet, replace(look.event, stock=stock))
    fleet, more = follow_up(fleet, commands, now)
    return fleet, [*commands, *more]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_version_that_is_not_there_is_refused_before_anything_is_written(dry_run: bool) -> None:
    """It was planned, begun, and only then sent back."""
    before = serving(OURS)
    fleet, commands = ask(before, start(), NONE, dry_run=dry_run)
    denied = answered(commands)
    assert isinstance(denied, Denied)
    assert denied.code == "unknown_version"
    assert denied.message == (
        "the model repository var/models has no version 2 of m, only 1 and 3: import it: "
        "sluicegate models import SOURCE --model m --version 2 --root var/models"
    )
    assert not only(Write, commands)
    assert (fleet.rollouts, fleet.revision) == ({}, before.revision)


def test_where_none_is_to_be_seen_none_is_named() -> None:
    _, commands = ask(serving(OURS), start(), Stock("2", False))
    denied = answered(commands)
    assert isinstance(denied, Denied)
    assert "has no version 2 of m: import it: sluicegate" in denied.message


@given(st.lists(st.text("ab1", min_size=1, max_size=3), min_size=1, max_size=30))
def test_a_refusal_names_a_bounded_number(names: list[str]) -> None:
    said = listed(names)
    count = said.replace(" and ", ", ").count(", ") + 1
    assert count == min(len(names), NAMED_MAX + 1)
    assert (f"{len(names) - NAMED_MAX} more" in said) == (len(names) > NAMED_MAX)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_repository_that_cannot_be_asked_is_a_warning_and_blocks_nothing(dry_run: bool) -> None:
    fleet, commands = ask(serving(OURS), start(), UNSURE, dry_run=dry_run)
    receipt = answered(commands)
    assert isinstance(receipt, Receipt)
    assert receipt.changes[-1] == (
        "warning: the model repository var/models cannot be looked at just now (no answer in 5 s): "
        "whether it has version 2 is seen when its instances start"
    )
    assert dry_run or at(fleet) == (Phase.STARTING, 0)


def test_what_is_there_is_started_and_nothing_more_is_said() -> None:
    fleet, commands = ask(serving(OURS), start(), Stock("2", True))
    receipt = answered(commands)
    assert isinstance(receipt, Receipt)
    assert not any("repository" in one for one in receipt.changes)
    assert at(fleet) == (Phase.STARTING, 0)


def test_a_retry_is_asked_the_same() -> None:
    fleet, _ = ask(serving(OURS), start(), Stock("2", True))
    fleet, _ = play(fleet, asked(AbortRollout("m"), 11.0))
    fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, 0, 12.0))
    assert at(fleet)[0] is Phase.ROLLED_BACK
    before = rollout(fleet)
    fleet, commands = ask(fleet, RetryRollout("m"), NONE, 20.0)
    denied = answered(commands)
    assert isinstance(denied, Denied)
    assert denied.code == "unknown_version"
    assert rollout(fleet) == before
    fleet, commands = ask(fleet, RetryRollout("m"), UNSURE, 20.0)
    assert isinstance(answered(commands), Receipt)
    assert rollout(fleet).number == before.number + 1


def test_the_repository_is_not_asked_where_it_is_not_needed() -> None:
    """A command of one's own loads what it likes; what others have started is there; and what
    nobody would start anyway is refused for that."""
    other = '[[instance]]\nid = "s"\nmodel = "m"\nversion = "2"\nhttp = "h:1"\ngrpc = "h:2"\n'
    theirs = OURS.replace('"1" = 100', '"1" = 100, "2" = 0') + other
    for text, one in (
        (CONFIG, start()),
        (theirs, start()),
        (theirs, start(replicas=0)),
        (OURS, start(steps=())),
        (OURS, PauseRollout("m")),
    ):
        _, commands = decide(serving(text), asked(one, 10.0))
        assert not only(LookUp, commands)


def test_moves_of_a_rollout_do_not_wait_for_it() -> None:
    """Its way back least of all."""
    fleet, _ = ask(serving(OURS), start(replicas=2), Stock("2", True))
    fleet, _ = play(fleet, ChildExited(f"instance.{NEW}", 9, 1, 11.0))
    assert to_start(fleet, rollout(fleet)) > 0
    fleet, commands = Traffic().play(fleet, asked(AbortRollout("m"), 12.0))
    assert not only(LookUp, commands)
    assert rollout(fleet).ground == "aborted"


def test_one_version_says_nothing_of_another() -> None:
    """The ask was answered for one version, and by then stands for another: it is asked again."""
    fleet, commands = decide(serving(OURS), replace(asked(start(), 10.0), stock=Stock("9", True)))
    (look,) = only(LookUp, commands)
    assert look.version == "2"
    assert fleet.rollouts == {}
