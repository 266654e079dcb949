"""What is measured of Sluicegate alone: workers together, routing, memory at length and in bulk.

Floor 3, I/O.
Each function has gateways or a worker of its own and notes what it finds; none of them compares
with another proxy. All workers are on the proxy's core, two as well: CPU time per request needs no
second core, and the load needs the other one.
"""

import asyncio
import resource
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gateway.mains.serve import LEASES, SECTIONS, SLOTS
from gateway.state.shared import Layout
from tests.bench import loads
from tests.bench.contenders import PROXY_CORE, Contender, gateway
from tests.bench.loads import Sizes, Values
from tests.bench.outputs import read_gauge
from tests.bench.processes import cpu_ns, pin, rss_kib
from tests.bench.programs import instances
from tests.bench.serving import Build, named
from tests.gateway.dataplane import harness
from tests.gateway.plain import TIMEOUTS, route, table, target, version
from tests.live.gateways import Gateway

Note = Callable[[int, str, Values], None]

ROWS: Final = 4  # of the segment with one worker; the rest of the layout is that of `serve` too
SHAPES: Final = ((10, 1), (100, 1), (1000, 1), (100, 100), (1000, 100))  # instances, models
HELD_S: Final = 600  # connections of a worker that waits for its turn; a thousand would be dialled
WARM_REQUESTS: Final = 50_000  # until caches are full and the allocator has what it needs
GROWTH_TURN_S: Final = 5
OTHER_DESCRIPTORS: Final = 500  # of a process with many streams: instances, control, its own
LOOK_AGAIN_S: Final = 0.1
LOOKS: Final = 50  # five seconds for what clients have left to be over on the other side


@dataclass(frozen=True, slots=True)
class Ground:
    """What these loads stand on. `ports`: the instances'."""

    ports: Sequence[int]
    sizes: Sizes
    build: Build
    note: Note

    @property
    def name(self) -> str:
        return named(self.build)


@asynccontextmanager
async def serving(ground: Ground, workers: int) -> AsyncIterator[tuple[Gateway, Contender]]:
    """A gateway of its own over the instances, warm."""
    addresses = [f"127.0.0.1:{port}" for port in ground.ports]
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as folder:
        async with gateway(ground.build, Path(folder), addresses, workers) as (made, who):
            await loads.requests(who.port, "post.lua", 1, loads.CONNECTIONS)
            yield made, who


async def in_flight(made: Gateway) -> float:
    """Over all rows of the segment, as /metrics shows it."""
    async with made.http.get(f"{made.admin}/metrics") as response:
        return read_gauge(await response.text(), "sluicegate_in_flight")


async def _left(made: Gateway) -> float:
    """What is in flight when all clients are gone, and the worker has had time to see it."""
    count = 0.0
    for _ in range(LOOKS):
        count = await in_flight(made)
        if not count:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    return count


async def workers(ground: Ground) -> None:
    """Two workers beside one, and whether both rows together know what is in flight."""
    async with AsyncExitStack() as stack:
        _, one = await stack.enter_async_context(serving(ground, 1))
        made, two = await stack.enter_async_context(serving(ground, 2))
        for turn in range(2 * ground.sizes.turns):
            found: Values = {}
            for who in (one, two) if turn % 2 else (two, one):
                before = [cpu_ns([pid]) for pid in who.workers]
                post = await loads.post(who, ground.sizes)
                spent = [cpu_ns([pid]) - was for pid, was in zip(who.workers, before, strict=True)]
                count = len(who.workers)
                found[f"workers_{count}_us"] = post["post_us"]
                if count == 2:
                    found["workers_share_percent"] = 100 * min(spent) / sum(spent)
            found["workers_ratio"] = found["workers_2_us"] / found["workers_1_us"]
            ground.note(turn, ground.name, found)

        async def look() -> float:
            return await in_flight(made)

        shape = (loads.STREAMS, loads.STREAM_MILLI_HZ, loads.OPENED_PER_S)
        _, (held, _) = await loads.streams(two.port, ground.sizes, shape, look)
        ground.note(0, ground.name, {"workers_held": held, "workers_left": await _left(made)})


async def routing(ground: Ground) -> None:
    """The same load over more and more instances and models, each table in a worker of its own.

    The bench is in control's place, so that a thousand instances are there at once: control is not
    on the path of a request, and everything else of the worker is as in `serve`.
    """
    async with AsyncExitStack() as stack:
        ports = await stack.enter_async_context(instances(max(n for n, _ in SHAPES)))
        running = [
            (shape, await stack.enter_async_context(_routed(ground, ports, *shape)))
            for shape in SHAPES
        ]
        for turn in range(2 * ground.sizes.turns):
            first = turn % len(running)
            found: Values = {}
            for shape, worker in [*running[first:], *running[:first]]:
                found[f"route_{shape[0]}_{shape[1]}_us"] = await _routing_us(
                    ground, worker, shape[1]
                )
            least = found["route_10_1_us"]
            ratios = {f"{name[:-3]}_ratio": us / least for name, us in found.items()}
            ground.note(turn, ground.name, found | ratios)


@asynccontextmanager
async def _routed(
    ground: Ground, ports: Sequence[int], count: int, models: int
) -> AsyncIterator[harness.WorkerProcess]:
    """A warm worker whose table has so many instances, in turn of each model."""
    layout = Layout(ROWS, SLOTS, SECTIONS, LEASES)
    targets = [target(slot, port, limit=1_000_000) for slot, port in enumerate(ports[:count])]
    routes = [
        route(version(*targets[k::models]), model=f"m{k}", section=k + 1) for k in range(models)
    ]
    with tempfile.TemporaryDirectory(prefix="sluicegate-bench-") as folder:
        environment = ground.build.environment
        async with harness.running(Path(folder), layout, environment) as worker:
            assert worker.process is not None
            pin(worker.process.pid, PROXY_CORE)
            timeouts = replace(TIMEOUTS, pool_idle_s=HELD_S)
            await worker.publish(table(1, *routes, default="m0", timeouts=timeouts))
            await _routing_us(ground, worker, models)
            yield worker


async def _routing_us(ground: Ground, worker: harness.WorkerProcess, models: int) -> float:
    assert worker.process is not None
    pids = [worker.process.pid]
    before = cpu_ns(pids)
    seconds = ground.sizes.seconds
    seen = await loads.requests(worker.port, "many.lua", seconds, loads.CONNECTIONS, str(models))
    return (cpu_ns(pids) - before) / 1e3 / seen.count


async def growth(ground: Ground) -> None:
    """Memory after very many short requests with heads that do not repeat."""
    async with serving(ground, 1) as (_, who):
        await _ask(who, ground, WARM_REQUESTS)
        before = rss_kib(who.workers)
        count = await _ask(who, ground, ground.sizes.requests)
        grown = rss_kib(who.workers) - before
    found = {
        "growth_requests": float(count),
        "growth_mib": before / 1024,
        "growth_percent": 100 * grown / before,
    }
    ground.note(0, ground.name, found)


async def _ask(who: Contender, ground: Ground, most: int) -> int:
    """How many requests were answered: at least so many."""
    count = 0
    seconds = GROWTH_TURN_S if most > WARM_REQUESTS else 1
    while count < most:
        count += (await loads.requests(who.port, "uniq.lua", seconds, loads.CONNECTIONS)).count
    return count


async def held(ground: Ground) -> None:
    """As many streams as there are descriptors for: two of each stream are the workers'.

    Every worker is a process, with a limit of its own; the clients and the instances have theirs.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(ground.sizes.streams_held, files - OTHER_DESCRIPTORS)
    count = 1 if 2 * wanted + OTHER_DESCRIPTORS <= files else 2
    async with serving(ground, count) as (made, who):
        kib, seen = await loads.calm(who, ground.sizes, wanted)
        left = await _left(made)
    found = {
        "held_streams": float(wanted),
        "held_workers": float(count),
        "held_lost": float(wanted - seen.live + seen.errors),
        "held_kib": kib,
        "held_left": left,
    }
    ground.note(0, ground.name, found)
