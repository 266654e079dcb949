"""The rollout's table: total, every refusal says why, and nothing leads past its order."""

import pytest

from gateway.rollout.machine import (
    ENDED,
    MOVES,
    TABLE,
    Happened,
    Phase,
    Refusal,
    diagram,
    transition,
)

# DESIGN.md section 7, spelled a second time.
FORWARD = (
    (Phase.PENDING, Happened.BEGUN, Phase.CHECKING_CAPACITY),
    (Phase.CHECKING_CAPACITY, Happened.ROOM, Phase.STARTING),
    (Phase.STARTING, Happened.READY, Phase.VALIDATING),
    (Phase.VALIDATING, Happened.VALIDATED, Phase.STEP),
    (Phase.STEP, Happened.PASSED, Phase.STEP),
    (Phase.STEP, Happened.PASSED_LAST, Phase.PROMOTING),
    (Phase.PROMOTING, Happened.KEPT, Phase.DONE),
    (Phase.ROLLING_BACK, Happened.EMPTIED, Phase.ROLLED_BACK),
)
BY_OPERATORS = (
    (Phase.STEP, Happened.PAUSED, Phase.PAUSED),
    (Phase.STEP, Happened.OVERRIDDEN, Phase.PAUSED),
    (Phase.STEP, Happened.PROMOTED, Phase.STEP),
    (Phase.STEP, Happened.PROMOTED_FULLY, Phase.PROMOTING),
    (Phase.PAUSED, Happened.RESUMED, Phase.STEP),
    (Phase.PAUSED, Happened.OVERRIDDEN, Phase.PAUSED),
    (Phase.PAUSED, Happened.PROMOTED, Phase.STEP),
    (Phase.PAUSED, Happened.PROMOTED_FULLY, Phase.PROMOTING),
    (Phase.DONE, Happened.STARTED, Phase.PENDING),
    (Phase.ROLLED_BACK, Happened.STARTED, Phase.PENDING),
    (Phase.ROLLED_BACK, Happened.RETRIED, Phase.PENDING),
)
BACK = tuple(
    (phase, happened, Phase.ROLLING_BACK)
    for phase in set(Phase) - ENDED - {Phase.ROLLING_BACK}
    for happened in (Happened.FAILED, Happened.ABORTED)
)
STAYS = tuple(
    (phase, Happened.WINDOW_LOST, phase) for phase in (Phase.STEP, Phase.PAUSED, Phase.PROMOTING)
)
LEGAL = {(phase, one): after for phase, one, after in (*FORWARD, *BY_OPERATORS, *BACK, *STAYS)}


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("happened", Happened)
def test_every_pair_has_an_entry_and_a_refusal_says_why(phase: Phase, happened: Happened) -> None:
    after = transition(phase, happened)
    if (phase, happened) in LEGAL:
        assert after is LEGAL[phase, happened]
    else:
        assert isinstance(after, Refusal)
        needs, _, is_now = after.text.partition(": ")
        assert needs
        assert is_now


def test_from_everywhere_but_an_end_there_is_a_way_back_and_a_way_on() -> None:
    for phase in set(Phase) - ENDED:
        reached = {phase}
        for _ in Phase:
            reached |= {
                after
                for one in reached - ENDED
                for after in TABLE[one].values()
                if isinstance(after, Phase)
            }
        assert Phase.ROLLED_BACK in reached
        assert (Phase.DONE in reached) is (phase is not Phase.ROLLING_BACK)


def test_the_diagram_has_every_move() -> None:
    drawn = diagram()
    for phase, moves in MOVES.items():
        for happened, after in moves.items():
            (line,) = [
                one
                for one in drawn.splitlines()
                if one.strip().startswith(f"{phase.value} --> {after.value} :")
            ]
            assert happened.value in line
