"""Operators, clients and misfortune at random, on virtual time: the laws hold at every step."""

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from gateway.control import Denied, DrainInstance, Reload, SetWeights, StopInstance, UndrainInstance
from gateway.fleet.drain import ENDED, Phase
from tests.sim.clock import simulate
from tests.sim.fleet import CONFIG, SIGKILL, World, ready, started

SEEDS = range(25)  # a few seconds; more of them with a larger number here
STEPS = 60
QUIET_S = 150.0  # longer than any grace, load and back-off in here, one after the other
NAMES = ("m-1-0", "m-1-1")


class Chaos:
    """One schedule: what is done to the world, drawn from a seeded source."""

    def __init__(self, world: World, rng: random.Random, kills: bool) -> None:
        self.world = world
        self.rng = rng
        self.accepted: set[int] = set()
        self.answers: list[asyncio.Task[None]] = []
        operators = [self.drain, self.undrain, self.stop, self.weights, self.reload]
        misfortune = [self.kill_instance, self.freeze, self.kill_worker, self.kill_control]
        self.deeds = [self.clients] * 8 + operators + (misfortune if kills else [])

    async def run(self) -> None:
        for _ in range(STEPS):
            await self.rng.choice(self.deeds)()
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.01, 0.5, 3.0)))
            self.world.check(self.accepted)

    async def clients(self) -> None:
        for _ in range(self.rng.randrange(1, 5)):
            request = self.world.request(self.rng.choice((0.1, 1.0, 10.0, 40.0)))
            if request is not None:
                self.accepted.add(request)

    def asked(self, ask: Awaitable[object]) -> None:
        """Ask without waiting: operators do not queue. A refusal is an answer too."""

        async def answered() -> None:
            with suppress(Denied):
                await ask

        self.answers.append(asyncio.get_running_loop().create_task(answered()))

    async def drain(self) -> None:
        grace_s = self.rng.choice((None, 0.0, 5.0, 20.0))
        force = self.rng.random() < 0.2
        ask = DrainInstance(self.rng.choice(NAMES), grace_s, self.rng.random() < 0.3, force)
        self.asked(self.world.ask(ask))

    async def undrain(self) -> None:
        self.asked(self.world.ask(UndrainInstance(self.rng.choice(NAMES))))

    async def stop(self) -> None:
        force = self.rng.random() < 0.3
        self.asked(self.world.ask(StopInstance(self.rng.choice(NAMES), force)))

    async def weights(self) -> None:
        self.asked(self.world.ask(SetWeights("m", {"1": self.rng.choice((1.0, 50.0))})))

    async def reload(self) -> None:
        grace_s = self.rng.randrange(5, 40)
        self.world.reload_text = CONFIG.replace("grace_s = 30", f"grace_s = {grace_s}")
        self.asked(self.world.ask(Reload()))

    async def kill_instance(self) -> None:
        self.world.instances[self.rng.choice(NAMES)].end(-SIGKILL)

    async def freeze(self) -> None:
        one = self.world.instances[self.rng.choice(NAMES)]
        one.frozen = True
        self.world.later(self.rng.choice((0.5, 5.0, 40.0)), lambda: self.thaw(one.name))

    def thaw(self, name: str) -> None:
        self.world.instances[name].frozen = False

    async def kill_worker(self) -> None:
        alive = [one for one in self.world.workers.values() if one.alive]
        if alive:
            self.rng.choice(alive).die(-SIGKILL)

    async def kill_control(self) -> None:
        for task in self.answers:
            task.cancel()
        self.answers.clear()
        await self.world.kill_control()
        await asyncio.sleep(self.rng.choice((0.0, 0.1, 2.0)))
        self.world.start_control()


def play(seed: int, kills: bool) -> World:
    world = World(load_s=4.0)

    async def main() -> None:
        await started(world)
        chaos = Chaos(world, random.Random(seed), kills)
        await chaos.run()
        await asyncio.sleep(QUIET_S)
        for name in NAMES:
            try:
                await world.ask(UndrainInstance(name))
            except Denied as denied:
                raise AssertionError(f"{name}: {denied.message}") from denied
        await world.until(lambda fleet: ready(fleet) == len(NAMES))
        world.check(chaos.accepted)
        assert world.held() == 0, "every accepted request has ended"
        running = [one for one in world.fleet.drains.values() if one.phase not in ENDED]
        assert running == [], "every drain ends"
        assert all(one.phase is Phase.UNDRAINED for one in world.fleet.drains.values())
        unnamed = {r for r, how in world.outcomes.items() if how in {"cut", "lost"}}
        assert unnamed <= world.named.keys(), "every request that we ended is named"
        await world.kill_control()

    simulate(main())
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_the_laws_hold_whatever_happens(seed: int) -> None:
    play(seed, kills=True)


@pytest.mark.parametrize("seed", range(20))
def test_orderly_operations_lose_nothing_but_what_a_deadline_cut(seed: int) -> None:
    world = play(seed, kills=False)
    assert set(world.outcomes.values()) <= {"served", "cut", "reset"}
    assert set(world.named.values()) <= {"drain deadline"}
