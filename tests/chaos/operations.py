"""What an operator does all day, in an endless row: no client may notice any of it.

Floor 3, I/O.
Each operation waits for its own end and leaves the fleet as it found it. One replacer for each
model, and one operator for everything else, at the same time.
"""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from admin.calls import How, Unanswered
from gateway.control import DrainView, InstanceView
from tests.chaos.fleet import VOLUME, Failed, Fleet, awaited, serving
from tests.chaos.stub import SLOTS

WAIT: Final = How(wait=True)
FIRST: Final = 2  # instances of version 1 that the config asks for, between two reloads
OVER: Final = ("done", "cut", "undrained")


@dataclass(slots=True)
class Operator:
    """`done`: operations that came to their end; `disturbed`: those that a kill came in between."""

    fleet: Fleet
    rng: Random
    done: Counter[str] = field(default_factory=Counter)
    disturbed: Counter[str] = field(default_factory=Counter)
    leaving: bool = False
    may_take_over: bool = False
    _volume: asyncio.Lock = field(default_factory=asyncio.Lock)  # one drain there at a time

    async def replaces(self, model: str) -> None:
        """Every instance of the model in turn: drained, stopped, started again."""
        turn = self._volume if model == VOLUME else asyncio.Lock()
        while not self.leaving:
            for one in await self._of(model):
                await self._does("replacement", lambda one=one: self.replace(one.id), turn)  # type: ignore[misc]
            await asyncio.sleep(0.5)

    async def operates(self) -> None:
        """Everything else, round after round, each in another order."""
        drains, others = self._volume, asyncio.Lock()
        operations = [
            ("weights", self.shift_weights, others),
            ("instance weight", self.weigh_instance, others),
            ("reload", self.add_and_remove, drains),
            ("limit", self.change_limit, others),
            ("drain and undrain", self.drain_and_undrain, drains),
            ("undrain in mid-drain", self.undrain_in_mid_drain, drains),
        ]
        if self.may_take_over:
            operations.append(("take-over", self.fleet.take_over, others))
        while not self.leaving:
            for name, operation, turn in self.rng.sample(operations, len(operations)):
                await self._does(name, operation, turn)
                await asyncio.sleep(self.rng.uniform(0.1, 0.6))

    async def _does(
        self, name: str, operation: Callable[[], Awaitable[None]], turn: asyncio.Lock
    ) -> None:
        """In its turn, if the operator is still there then.

        Raises: Failed, Unanswered; where processes are killed, an operation may fail.
        """
        async with turn:
            if not self.leaving:
                await self._tries(name, operation)

    async def _tries(self, name: str, operation: Callable[[], Awaitable[None]]) -> None:
        try:
            await operation()
        except (Failed, Unanswered) as exc:
            if not self.fleet.kills:
                raise Failed(f"{name}: {exc}") from exc
            self.disturbed[name] += 1
            print(f"  disturbed: {name}: {exc}", flush=True)
        else:
            self.done[name] += 1

    async def _of(self, model: str) -> list[InstanceView]:
        found = await self.fleet.ask(lambda client: client.read.instances())
        return [one for one in found if one.model == model]

    async def restore(self) -> None:
        """Everything as the config says: what a disturbed operation has left is taken back."""
        for one in await self.fleet.ask(lambda client: client.read.instances()):
            if one.intent != "active":
                await self.fleet.ask(lambda client, one=one: client.change.undrain(one.id))  # type: ignore[misc]

        async def all_serve() -> bool:
            found = await self.fleet.ask(lambda client: client.read.instances())
            return all(serving(one) for one in found)

        await awaited("every instance serves again", all_serve)

    # -- operations

    async def replace(self, name: str) -> None:
        """As for a new driver, or a new machine: not one request of it is lost."""
        before = await self.fleet.instance(name)
        if before is None or not serving(before):
            return
        await self.fleet.ask(lambda client: client.change.drain(name, stop=True))
        await self._ends(name, before.pid)
        await self.fleet.ask(lambda client: client.change.undrain(name))
        await self.fleet.serves(name, before.pid)

    async def _ends(self, name: str, pid: int) -> None:
        async def look() -> bool:
            one = await self.fleet.instance(name)
            return one is None or one.pid != pid

        await awaited(f"{name} has ended", look)
        self._nothing_was_cut(await self._drain(name))

    async def _drain(self, name: str) -> DrainView | None:
        drains = await self.fleet.ask(lambda client: client.read.drains())
        return next((one for one in drains if one.instance == name), None)

    def _nothing_was_cut(self, drain: DrainView | None) -> None:
        if drain is not None and drain.lost and not self.fleet.kills:
            raise Failed(f"the drain of {drain.instance} lost {len(drain.lost)} requests")

    async def drain_and_undrain(self) -> None:
        name = self.rng.choice(await self._of(VOLUME)).id
        await self.fleet.ask(lambda client: client.change.drain(name))

        async def over() -> bool:
            drain = await self._drain(name)
            return drain is None or drain.phase in OVER

        await awaited(f"the drain of {name} is over", over)
        self._nothing_was_cut(await self._drain(name))
        await self.fleet.ask(lambda client: client.change.undrain(name, how=WAIT))
        await self.fleet.serves(name)

    async def undrain_in_mid_drain(self) -> None:
        name = self.rng.choice(await self._of(VOLUME)).id
        stop = self.rng.random() < 0.3
        await self.fleet.ask(lambda client: client.change.drain(name, stop=stop))
        await asyncio.sleep(self.rng.uniform(0.0, 0.5))
        await self.fleet.ask(lambda client: client.change.undrain(name, how=WAIT))
        await self.fleet.serves(name)

    async def shift_weights(self) -> None:
        for share in (self.rng.randint(0, 100), 50):
            weights = {"1": float(share), "2": 100.0 - share}
            await self.fleet.ask(
                lambda client, weights=weights: client.change.set_weights(VOLUME, weights, WAIT)  # type: ignore[misc]
            )
            await asyncio.sleep(self.rng.uniform(0.0, 1.0))

    async def weigh_instance(self) -> None:
        name = self.rng.choice(await self._of(VOLUME)).id
        for weight in (0.2, 1.0):
            await self.fleet.ask(
                lambda client, weight=weight: client.change.set_instance_weight(name, weight, WAIT)  # type: ignore[misc]
            )

    async def add_and_remove(self) -> None:
        """One instance more and one less, by SIGHUP or by the file alone."""
        name = f"{VOLUME}-1-{FIRST}"
        self._reload(first=FIRST + 1)
        await self.fleet.serves(name)
        self._reload()

        async def gone() -> bool:
            return await self.fleet.instance(name) is None

        await awaited(f"{name} is gone", gone)

    async def change_limit(self) -> None:
        for limit in (SLOTS - 2, SLOTS):
            self._reload(limit=limit)

            async def applied(limit: int = limit) -> bool:
                models = await self.fleet.ask(lambda client: client.read.models())
                return any(one.name == VOLUME and one.limit == limit for one in models)

            await awaited("the limit is in force", applied)

    def _reload(self, **keys: int) -> None:
        self.fleet.write_config(**keys)
        if self.rng.random() < 0.5:
            os.kill(self.fleet.pid, signal.SIGHUP)


async def for_seconds(seconds: float, *tasks: asyncio.Task[None]) -> None:
    """Returns after so long, or raises at once what one of the tasks raises."""
    give_up = time.monotonic() + seconds
    while (left := give_up - time.monotonic()) > 0:
        done, _ = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        tasks = tuple(task for task in tasks if task not in done)
        if not tasks:
            await asyncio.sleep(max(0.0, give_up - time.monotonic()))
