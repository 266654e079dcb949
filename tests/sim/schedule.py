"""A schedule played, judged, and shortened when it fails.

After the last step there is a time of quiet, in which operators want everything back: it has to
come back. A schedule that ends in SIGTERM has to end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.control import SetInstanceWeight, UndrainInstance
from gateway.fleet.drain import RETIRED
from gateway.records import Intent
from sluicegate.v1.states import State
from tests.sim.deeds import OTHERS, Deeds, File, Step
from tests.sim.instance import SIGKILL
from tests.sim.laws import Broken, all_is_well
from tests.sim.world import World

QUIET_MAX_S = 90.0  # START_MAX_S for a worker that was stopped when control began, and what follows


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of schedule: the world, the file it begins with, who acts in it."""

    make: Callable[[int, str], World]
    text: str
    deeds: Callable[[World], Deeds]


PLAIN = Kind(World, File().text(), Deeds)


def play(
    seed: int,
    steps: Sequence[Step],
    kind: Kind = PLAIN,
    tell: Callable[[Step], None] = lambda _: None,
) -> World:
    """The world after the schedule and a time of quiet. Raises: Broken, or what a bug raises."""
    world = kind.make(seed, kind.text)
    deeds = kind.deeds(world)
    world.start_control()
    deeds.start_other("s-0")
    deeds.start_other("r-0")
    run(world, 1.5)
    for step in steps:
        tell(step)
        deeds.do(step)
        run(world, step.pause_s)
        world.check()
    if world.signals:
        _end(world)
    else:
        _settle(world, deeds)
    world.judge_the_end()
    return world


def run(world: World, seconds: float) -> None:
    world.agenda.run(world.agenda.now + seconds)


def _end(world: World) -> None:
    """It was told to end, and does: with whatever was going on."""
    _heal(world)
    for _ in range(60):
        run(world, 1.0)
        if world.exited is not None:
            run(world, 0.5)
            alive = [name for name, one in world.running.items() if one.alive and one.device]
            all_is_well([f"{name} outlives the gateway" for name in alive])
            return
    raise Broken("all_is_well", "the gateway was told to end and did not")


def _heal(world: World) -> None:
    world.fates.clear()
    world.failing = {}
    world.store.broken_until = 0.0
    for worker in tuple(world.workers.values()):
        worker.thaw()
    for one in tuple(world.running.values()):
        one.slow_until = one.garbled_until = one.deaf_until = one.stuck_until = 0.0
        one.thaw()
    run(world, 0.1)
    world.look_at_beats()


def _settle(world: World, deeds: Deeds) -> None:
    """Nothing disturbs any more, and operators want everything back: it has to come back."""
    _heal(world)
    run(world, 0.5)
    if world.control is not None:
        world.control.crash_in = None
    for name in sorted(world.clashed):  # the survivor may be superseded: its owner has to see to it
        if name in world.running:
            world.running[name].end(-SIGKILL)
    complaints = ["it was never looked at"]
    wait_s = 0.5
    until = world.agenda.now + QUIET_MAX_S
    while complaints and world.agenda.now < until:
        _give_back(world)
        deeds.settle()
        for name in OTHERS:
            control = world.control
            wanted = control is not None and name in control.fleet.instances
            one = world.running.get(name)
            # Taken out by an operator, who told it to drain, and not as the file had it: out it is
            # until its owner starts it anew.
            removed = (
                one is not None
                and one.state is State.DRAINING
                and control is not None
                and name not in control.fleet.drains
                and not one.life.standing.reason.startswith(RETIRED)
            )
            if wanted and (one is None or not one.alive or removed):
                deeds.start_other(name)
        run(world, wait_s)
        world.check()
        complaints = world.complaints()
        wait_s = min(3.0, wait_s * 1.5)
    all_is_well(complaints)


def _give_back(world: World) -> None:
    control = world.control
    if control is None or control.fleet.asks:
        return
    fleet = control.fleet
    for name, seen in fleet.instances.items():
        launched = fleet.launches.get(name)
        failed = launched is not None and launched.stage.value in {"failed", "crash_loop"}
        if seen.intent is not Intent.ACTIVE or failed:
            world.ask(UndrainInstance(name))
        if fleet.weight_of(seen) <= 0:
            world.ask(SetInstanceWeight(name, 1.0))


def failure(seed: int, steps: Sequence[Step], kind: Kind = PLAIN) -> str:
    """How the schedule fails, the law first; "" when it does not."""
    try:
        play(seed, steps, kind)
    except Exception as exc:  # a law, or whatever a bug raises: both are to be shown
        return f"{type(exc).__name__}: {exc}"
    return ""


def shortened(seed: int, steps: tuple[Step, ...], kind: Kind = PLAIN) -> tuple[int, ...]:
    """Indices of as few steps as were found that still fail by the same law."""
    kept = list(range(len(steps)))
    law = failure(seed, steps, kind).split(":")[:2]
    size = len(kept) // 2
    while size:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if failure(seed, [steps[index] for index in fewer], kind).split(":")[:2] == law:
                kept = fewer
            else:
                at += size
        size //= 2
    return tuple(kept)
