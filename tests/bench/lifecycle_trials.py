"""How long a change takes from its order to the last worker: READY, a drain, a weight.

Floor 3, I/O.
A real gateway with two workers, real gRPC, and callers that ask all the time. What is measured is
what an instance sees: the first request that reaches it, or the last one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluicegate.v1 import lifecycle_pb2 as wire
from tests.bench.lifecycle_front import Changing, served
from tests.bench.lifecycle_load import Arrivals, calling, instance
from tests.bench.lifecycle_text import Figures
from tests.bench.serving import Build
from tests.live.gateways import Gateway, config, running

WORKERS: Final = 2
QUIET_S: Final = 0.05  # without a request after the answer: then there is no later one
LOOK_AGAIN_S: Final = 0.002
READY, DRAIN, WEIGHT = "ready", "drain", "weight"  # models, one for each kind of trial


@dataclass(frozen=True, slots=True)
class Stage:
    """A gateway, and the instances behind it by name."""

    gateway: Gateway
    fronts: dict[str, Changing]
    arrivals: dict[str, Arrivals]

    async def change(self, method: str, path: str, body: object = None) -> None:
        status, said = await self.gateway.change(method, path, body)
        assert status == 200, said


@asynccontextmanager
async def stage(folder: Path, build: Build) -> AsyncIterator[Stage]:
    """Everything READY and served by every worker."""
    async with AsyncExitStack() as stack:
        fronts, arrivals, tables = {}, {}, list[str]()
        for name, model, version in (
            ("r", READY, "1"),
            ("d0", DRAIN, "1"),
            ("d1", DRAIN, "1"),
            ("w1", WEIGHT, "1"),
            ("w2", WEIGHT, "2"),
        ):
            address, arrivals[name] = await stack.enter_async_context(instance())
            fronts[name] = Changing(name, address, model, version)
            known = await stack.enter_async_context(served(fronts[name]))
            tables.append(known.toml(model, version))
        one, both = '"1" = 1', '"1" = 1, "2" = 0'
        for model, weights in ((READY, one), (DRAIN, one), (WEIGHT, both)):
            tables.append(f'[[model]]\nname = "{model}"\nweights = {{ {weights} }}\n')
        text = config(folder, *tables, gateway=f"workers = {WORKERS}\n")
        gateway = await stack.enter_async_context(running(folder, text, build.environment))
        await gateway.ready(*fronts)
        await gateway.says(lambda text: text == "every worker serves a table")
        yield Stage(gateway, fronts, arrivals)


async def ready(at: Stage, number: int) -> float:
    """From an instance's word that it is READY to the first request that reaches it."""
    front = at.fronts["r"]
    front.say(wire.INITIALIZING, f"life{number}")
    while True:
        seen = await at.gateway.read("/instances/r")
        if (seen["incarnation"], seen["state"]) == (f"life{number}", "INITIALIZING"):
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    await at.change("PUT", f"/models/{READY}/weights?wait=1", {"1": 1})
    await asyncio.sleep(QUIET_S)
    first = at.arrivals["r"].next()
    began = _now()
    front.say(wire.READY)
    return await first - began


async def drain(at: Stage, number: int) -> float:
    """From an operator's order to the last request that reaches the instance."""
    name = f"d{number % 2}"
    began = _now()
    await at.change("PUT", f"/instances/{name}/drain?wait=1", {"grace_s": 5})
    await asyncio.sleep(QUIET_S)
    last = max(0.0, at.arrivals[name].last - began)
    again = at.arrivals[name].next()
    await at.change("DELETE", f"/instances/{name}/drain?wait=1")
    await again
    return last


async def weight(at: Stage, number: int) -> float:
    """From an operator's order to the last request that reaches the version of before."""
    old, new = ("1", "2") if number % 2 == 0 else ("2", "1")
    began = _now()
    await at.change("PUT", f"/models/{WEIGHT}/weights?wait=1", {old: 0, new: 1})
    await asyncio.sleep(QUIET_S)
    return max(0.0, at.arrivals[f"w{old}"].last - began)


async def answered(at: Stage, number: int) -> float:
    """From an operator's order to the answer that every worker has the new weights."""
    old, new = ("1", "2") if number % 2 == 0 else ("2", "1")
    began = _now()
    await at.change("PUT", f"/models/{WEIGHT}/weights?wait=1", {old: 0, new: 1})
    return _now() - began


def _now() -> float:
    return asyncio.get_running_loop().time()


KINDS: Final[dict[str, tuple[str, Callable[[Stage, int], Awaitable[float]]]]] = {
    "ready_ms": (READY, ready),
    "drain_ms": (DRAIN, drain),
    "weight_ms": (WEIGHT, weight),
    "answered_ms": (WEIGHT, answered),
}


async def timings(folder: Path, build: Build, trials: int) -> Figures:
    """Milliseconds of each kind, so many of each; the first of each is left out."""
    found: Figures = {}
    async with stage(folder, build) as at:
        for kind, (model, trial) in KINDS.items():
            async with calling(at.gateway.where["listen"][0], model):
                taken = [await trial(at, number) * 1000 for number in range(trials + 1)]
            found[kind] = taken[1:]
    return found
