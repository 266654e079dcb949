"""Operators, clients and misfortune at random, on virtual time: the laws hold at every step.

More of them: `make sim SCHEDULES=20000`. A failure says how to play it again, shortened.
"""

import os

import pytest

from tests.sim.__main__ import command
from tests.sim.deeds import ORDERLY, draw
from tests.sim.schedule import failure, shortened

SCHEDULES = int(os.environ.get("SCHEDULES", "1000"))
FIRST = int(os.environ.get("FIRST", "0"))
CHUNK = 50  # a second or two: small enough that two cores end together


@pytest.mark.parametrize("first", range(FIRST, FIRST + SCHEDULES, CHUNK))
def test_the_laws_hold_whatever_happens(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FIRST + SCHEDULES)):
        steps = draw(seed)
        how = failure(seed, steps)
        if how:
            kept = shortened(seed, steps)
            again = failure(seed, [steps[index] for index in kept])
            deeds = ", ".join(steps[index].deed for index in kept)
            pytest.fail(f"{again or how}\n  {deeds}\n  {command(seed, kept)}", pytrace=False)


def test_a_schedule_is_the_same_each_time_and_some_are_without_misfortune() -> None:
    assert draw(5) == draw(5)
    assert {step.deed for step in draw(8)} <= ORDERLY.keys()
    assert not {step.deed for step in draw(9)} <= ORDERLY.keys()
