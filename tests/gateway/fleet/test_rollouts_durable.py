"""A control that dies anywhere in a rollout is followed by one that goes on from there.

No step is repeated, none is skipped, and what was counted before counts afterwards.
"""

import pytest

from gateway.fleet.drain import ROLLED_BACK
from gateway.rollout.machine import Phase
from gateway.rollouts import AbortRollout
from tests.gateway.fleet.rolling import CONFIG, asked, rollout, start
from tests.gateway.fleet.rolling import counts as of
from tests.gateway.fleet.rolling_world import World

Position = tuple[Phase, int]
STEPS = tuple({"weight": weight, "hold_s": 2, "requests_min": 20} for weight in (20, 50, 100))
SHORT = CONFIG.replace("keep_old_s = 20", "keep_old_s = 3")


def lived(world: World, fails_in: int = 0) -> list[Position]:
    """A whole rollout; from step `fails_in` on every third request to the new version fails."""
    while not any(world.fleet.routable(seen) for seen in world.fleet.instances.values()):
        world.second(of(), of())
        assert world.now < 50
    ask = start(steps=STEPS)
    world.happen(asked(ask, world.now))
    if world.fleet.rollout("m") is None:  # it died before it was written down: nobody was answered
        world.happen(asked(ask, world.now))
    while rollout(world.fleet).active:
        share = int(world.share("2"))
        bad = share // 3 if fails_in and rollout(world.fleet).step >= fails_in else 0
        world.second(of(share - bad, bad), of(100 - share))
        assert world.now < 400, rollout(world.fleet)
    return [(one.phase, one.step) for one in rollout(world.fleet).transitions]


def writes(fails_in: int) -> int:
    world = World(config=SHORT)
    lived(world, fails_in)
    return world.writes


GOOD = lived(World(config=SHORT))
BAD = lived(World(config=SHORT), fails_in=2)


def test_what_happens_when_nobody_dies() -> None:
    expected = [
        (Phase.PENDING, 0),
        (Phase.CHECKING_CAPACITY, 0),
        (Phase.STARTING, 0),
        (Phase.VALIDATING, 0),
        (Phase.STEP, 1),
        (Phase.STEP, 2),
        (Phase.STEP, 3),
        (Phase.PROMOTING, 3),
        (Phase.DONE, 3),
    ]
    assert tuple(GOOD) == tuple(expected)
    back = [*GOOD[:6], (Phase.ROLLING_BACK, 2), (Phase.ROLLED_BACK, 2)]
    assert tuple(BAD) == tuple(back)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("fails_in", "expected"), [(0, GOOD), (2, BAD)])
def test_killed_at_every_single_write(fails_in: int, expected: list[Position], kept: bool) -> None:
    for dies_at in range(1, writes(fails_in) + 1):
        world = World(dies_at, kept, SHORT)
        assert lived(world, fails_in) == expected, f"killed at write {dies_at}"
        assert world.deaths == 1
        assert ("m-2-0" in world.processes) is not bool(fails_in)
        watch = world.fleet.watches["m"]
        counted = watch.evidence.failures.canary_all.of
        # Nothing is counted twice; nothing is missed, but what the workers sent to a version whose
        # rollback was being written: they go on with the table that they have.
        assert world.canary.requests - counted in ({0, 50} if fails_in else {0})


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("how", "grace_s"), [("cut", 0.0), ("finish", 30.0)])
def test_killed_in_the_way_back_the_rest_of_the_group_leaves_as_it_was_ordered(
    how: str, grace_s: float, kept: bool
) -> None:
    """The next control found them unwanted, as if the file had taken them out: with all the grace.
    What the file says by then of other rollbacks is not of this one.
    """
    group = {"m-2-0", "m-2-1"}
    other = "finish" if how == "cut" else "cut"
    for write in range(1, 6):  # the move, and two for each that leaves
        world = World(config=SHORT + f'at_rollback = "{how}"\n')
        world.steps(start(steps=STEPS, replicas=len(group)))
        world.dies_at, world.kept = world.writes + write, kept
        world.config = SHORT + f'at_rollback = "{other}"\n'
        world.happen(asked(AbortRollout("m"), world.now))
        assert world.deaths == 1
        if rollout(world.fleet).phase is Phase.STEP:  # it died before it was stored
            assert (write, kept) == (1, False)
            continue
        assert rollout(world.fleet).phase is Phase.ROLLING_BACK
        drains = {name: world.fleet.drains[name] for name in group}
        assert {one.deadline - one.began for one in drains.values()} == {grace_s}, write
        assert {one.reason for one in drains.values()} == {ROLLED_BACK}, write


def test_a_rollout_of_an_older_version_s_store_is_read_as_one_that_lets_finish() -> None:
    world = World(config=SHORT)
    world.steps(start(steps=STEPS))
    del world.documents["rollouts"]["m/1"]["cut"]
    world.begin()
    assert rollout(world.fleet).phase is Phase.STEP
    assert not rollout(world.fleet).cut
