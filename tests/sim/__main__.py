"""Play one schedule and tell what happens: `python -m tests.sim [rollouts] SEED [INDEX,INDEX...]`.

The indices are those of the steps that are kept; without them, all are. What is decided is printed
as it is recorded for operators, between the steps.
"""

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace

from gateway.fleet.commands import Record
from tests.sim import rollout_deeds
from tests.sim.deeds import draw
from tests.sim.rollout_deeds import ROLLOUTS
from tests.sim.rollout_world import RolloutWorld
from tests.sim.schedule import PLAIN, play
from tests.sim.world import World


def command(seed: int, kept: Sequence[int], kind: str = "") -> str:
    """The one that plays these steps of the schedule."""
    return f"PYTHONPATH=proto python -m tests.sim {kind}{seed} {','.join(map(str, kept))}"


class Telling(World):
    """A world that says what it records."""

    def recorded(self, one: Record) -> None:
        print(f"{self.agenda.now:10.4f}  {one.text}")
        super().recorded(one)

    def start_control(self) -> None:
        print(f"{self.agenda.now:10.4f}  a control begins")
        super().start_control()


class TellingRollouts(Telling, RolloutWorld):
    """The same of rollouts."""


def main(arguments: Sequence[str]) -> int:
    logging.disable(logging.CRITICAL)
    kind, drawn = replace(PLAIN, make=Telling), draw
    if arguments[0] == "rollouts":
        kind, drawn = replace(ROLLOUTS, make=TellingRollouts), rollout_deeds.draw
        arguments = arguments[1:]
    seed = int(arguments[0])
    steps = drawn(seed)
    if len(arguments) > 1:
        steps = tuple(steps[int(index)] for index in arguments[1].split(",") if index)
    try:
        play(seed, steps, kind, lambda step: print(f"--- {step.deed}"))
    except Exception as exc:
        print(f"{type(exc).__name__}: {exc}")
        return 1
    print("every law holds")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
