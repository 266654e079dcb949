"""Rollouts among operators, clients and misfortune, on virtual time: their laws hold at every step.

More of them: `make sim-rollouts SCHEDULES=20000`. A failure says how to play it again, shortened.
"""

import os
from collections import Counter

import pytest

from tests.sim.__main__ import command
from tests.sim.rollout_deeds import ROLLOUTS, draw
from tests.sim.rollout_world import RolloutWorld
from tests.sim.schedule import failure, play, shortened

SCHEDULES = int(os.environ.get("SCHEDULES", "60"))
FIRST = int(os.environ.get("FIRST", "0"))
CHUNK = 5  # a few seconds


@pytest.mark.parametrize("first", range(FIRST, FIRST + SCHEDULES, CHUNK))
def test_the_laws_of_rollouts_hold_whatever_happens(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FIRST + SCHEDULES)):
        steps = draw(seed)
        how = failure(seed, steps, ROLLOUTS)
        if how:
            kept = shortened(seed, steps, ROLLOUTS)
            again = failure(seed, [steps[index] for index in kept], ROLLOUTS)
            deeds = ", ".join(steps[index].deed for index in kept)
            again_by = command(seed, kept, "rollouts ")
            pytest.fail(f"{again or how}\n  {deeds}\n  {again_by}", pytrace=False)


def test_schedules_see_rollouts_end_in_every_way() -> None:
    ends: Counter[str] = Counter()
    wanted = {"done", "rolled_back aborted", "rolled_back failures"}
    for seed in range(FIRST, FIRST + 20):
        world = play(seed, draw(seed), ROLLOUTS)
        assert isinstance(world, RolloutWorld)
        ends.update(world.ended_as.values())
        if wanted <= ends.keys():
            return
    pytest.fail(f"these only: {sorted(ends)}")


def test_a_schedule_is_the_same_each_time() -> None:
    assert draw(5) == draw(5) != draw(6)
