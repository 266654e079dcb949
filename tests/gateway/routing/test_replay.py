"""The whole table of what may be sent again."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.replay import BUDGET_RESERVE, Decision, Failure, affordable, decide

FLAGS = list(product([False, True], repeat=3))


def expected(failure: Failure, begun: bool, held: bool, harmless: bool) -> Decision:
    """The table as prose has it, row by row."""
    if begun:
        return Decision.CUT
    rows = {
        Failure.CONNECT_FAILED: held,  # nothing was sent; a body that is gone cannot be sent now
        Failure.REFUSED: held,
        Failure.RESET_REUSED: held and harmless,
        Failure.RESET_FRESH: False,
        Failure.DEADLINE: False,
        Failure.BROKEN: False,
    }
    return Decision.REPLAY if rows[failure] else Decision.FAIL


@pytest.mark.parametrize("failure", list(Failure))
@pytest.mark.parametrize(("begun", "held", "harmless"), FLAGS)
def test_every_row_of_the_table(failure: Failure, begun: bool, held: bool, harmless: bool) -> None:
    assert decide(failure, begun, held, harmless) is expected(failure, begun, held, harmless)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_replays_stay_within_a_tenth_and_the_reserve(replays: float, requests: float) -> None:
    if affordable(replays, requests):
        assert replays < 0.1 * requests + BUDGET_RESERVE
