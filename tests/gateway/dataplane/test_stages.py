"""Every (stage, event) pair of an exchange."""

from itertools import product

import pytest

from gateway.dataplane import stages
from gateway.dataplane.stages import (
    CLIENT_LOST,
    CUT,
    EVENTS,
    INSTANCE_LOST,
    MOVES,
    SETTLED,
    STAGE_NAMES,
    UNPLACED,
    IllegalMove,
    next_stage,
)
from gateway.records import Stage

PAIRS = list(product(range(len(STAGE_NAMES)), range(EVENTS)))


@pytest.mark.parametrize(("stage", "event"), PAIRS)
def test_an_event_moves_as_the_table_says_or_is_a_bug(stage: int, event: int) -> None:
    if (stage, event) in MOVES:
        assert next_stage(stage, event) == MOVES[(stage, event)]
    else:
        with pytest.raises(IllegalMove):
            next_stage(stage, event)


@pytest.mark.parametrize("stage", range(len(STAGE_NAMES)))
def test_every_stage_can_lose_its_client_or_its_time(stage: int) -> None:
    for event in (CLIENT_LOST, CUT):
        assert next_stage(stage, event) == SETTLED


@pytest.mark.parametrize("stage", [s for s in range(len(STAGE_NAMES)) if s != UNPLACED])
def test_every_stage_with_an_instance_can_lose_it(stage: int) -> None:
    assert next_stage(stage, INSTANCE_LOST) == SETTLED


def test_every_stage_can_be_reached() -> None:
    reached = {SETTLED}
    while more := {to for (at, _), to in MOVES.items() if at in reached} - reached:
        reached |= more
    assert reached == set(range(len(STAGE_NAMES)))


def test_a_stage_that_holds_a_lease_is_called_as_the_lease_calls_it() -> None:
    """What a drain lost and what `leases` lists are the same words."""
    held = [stages.DIALLING, stages.SENDING, stages.AWAITING, stages.STREAMING]
    leased = [Stage.CONNECTING, Stage.SENDING, Stage.WAITING, Stage.STREAMING]
    assert [STAGE_NAMES[one] for one in held] == [one.name.lower() for one in leased]


def test_no_replay_once_the_response_has_begun() -> None:
    assert (stages.STREAMING, stages.REPLAYED) not in MOVES
