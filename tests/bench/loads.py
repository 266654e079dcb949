"""What is done to a contender, and what that costs it: one function for each kind of load.

Floor 3, I/O.
CPU time is that of the processes that relay, between two moments in which the load is the same.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.bench.contenders import HERE, Contender
from tests.bench.outputs import Requests, Streams, read_sse, read_wrk
from tests.bench.processes import cpu_ns, rss_kib

CONNECTIONS: Final = 64  # kept alive: enough that the proxy never waits for load
CONNECTIONS_8MIB: Final = 4  # two cores move no more at once
CALM_STREAM_MILLI_HZ: Final = 100  # while memory is looked at: every stream has its say in 10 s
CALM_OPENED_PER_S: Final = 2500
STREAMS: Final = 200
STREAM_MILLI_HZ: Final = 100_000  # 100 tokens a second
OPENED_PER_S: Final = 400  # one at a time, so that first bytes are comparable

Values = dict[str, float]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long and how much; also where the compiled load generator is.

    `window_s`: of streams. `streams`: of the memory row. `streams_held`: the most that are tried.
    `requests`: short ones, over which memory must not grow. `turns`: at most, of a load in a round.
    """

    sse: Path
    seconds: int = 1
    window_s: int = 2  # 40,000 events
    streams: int = 5000
    streams_held: int = 10_000
    requests: int = 1_000_000
    turns: int = 4


Load = Callable[[Contender, Sizes], Coroutine[Any, Any, Values]]
Look = TypeVar("Look")


async def requests(
    port: int, script: str, seconds: int, connections: int, *arguments: str
) -> Requests:
    """`arguments` are the script's."""
    process = await asyncio.create_subprocess_exec(
        *("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"),
        *("--timeout", "20s", "-s", str(HERE / script)),
        *(f"http://127.0.0.1:{port}/v1/completions", "--", *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return read_wrk(output.decode())


async def streams(
    port: int,
    sizes: Sizes,
    shape: tuple[int, int, int],
    look: Callable[[], Coroutine[Any, Any, Look]],
) -> tuple[Streams, list[Look]]:
    """What clients saw, and two looks: one at each end of the window, with all streams open.

    Shape: streams, events of each in 1000 s, streams opened per second.
    """
    process = await asyncio.create_subprocess_exec(
        str(sizes.sse),
        *(str(port), *(str(one) for one in shape), str(sizes.window_s)),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    looks: list[Look] = []
    for _ in ("begin", "end"):
        await process.stdout.readline()
        looks.append(await look())
    output, _ = await process.communicate(b"\n")
    return read_sse(output.decode()), looks


async def _short(who: Contender, sizes: Sizes, kind: str) -> Values:
    before = cpu_ns(who.workers)
    seen = await requests(who.port, f"{kind}.lua", sizes.seconds, CONNECTIONS)
    spent = cpu_ns(who.workers) - before
    return {
        f"{kind}_us": spent / 1e3 / seen.count,
        f"{kind}_per_s": seen.per_s,
        f"{kind}_p50_us": seen.p50_us,
        f"{kind}_p99_us": seen.p99_us,
    }


async def post(who: Contender, sizes: Sizes) -> Values:
    """300 bytes up, 800 down, under heads that repeat."""
    return await _short(who, sizes, "post")


async def uniq(who: Contender, sizes: Sizes) -> Values:
    """The same with two new field values in each request."""
    return await _short(who, sizes, "uniq")


async def _big(who: Contender, sizes: Sizes, kind: str) -> Values:
    before = cpu_ns(who.workers)
    seen = await requests(who.port, f"{kind}.lua", sizes.seconds, CONNECTIONS_8MIB)
    return {f"{kind}_ms": (cpu_ns(who.workers) - before) / 1e6 / seen.count}


async def up(who: Contender, sizes: Sizes) -> Values:
    """Bodies of 8 MiB, held to read the model's name where the proxy does that."""
    return await _big(who, sizes, "up")


async def down(who: Contender, sizes: Sizes) -> Values:
    """Answers of 8 MiB."""
    return await _big(who, sizes, "down")


async def sse(who: Contender, sizes: Sizes) -> Values:
    """Streams at the pace of tokens. Delays still hold the part that has no proxy in it."""

    async def look() -> int:
        return cpu_ns(who.workers)

    shape = (STREAMS, STREAM_MILLI_HZ, OPENED_PER_S)
    seen, (begin, end) = await streams(who.port, sizes, shape, look)
    seen.check(STREAMS)
    return {
        "sse_us": (end - begin) / 1e3 / seen.events,
        "sse_p50_us": seen.p50_us,
        "sse_p99_us": seen.p99_us,
        "sse_first_us": seen.first_p50_us,
    }


async def memory(who: Contender, sizes: Sizes) -> Values:
    """Many calm streams, held open; the contender has to be fresh."""
    kib, seen = await calm(who, sizes, sizes.streams)
    seen.check(sizes.streams)
    return {"stream_kib": kib}


async def calm(who: Contender, sizes: Sizes, count: int) -> tuple[float, Streams]:
    """Memory per stream while so many are open and hardly move, and what became of them."""

    async def look() -> int:
        return rss_kib(who.workers)

    before = await look()
    sizes = replace(sizes, window_s=1)  # its end is looked at, not what happens in it
    shape = (count, CALM_STREAM_MILLI_HZ, CALM_OPENED_PER_S)
    seen, (_, held) = await streams(who.port, sizes, shape, look)
    return (held - before) / count, seen


async def direct(port: int, sizes: Sizes) -> float:
    """Delay (p50, us) of events that come straight from the instance."""

    async def nothing() -> None:
        return None

    shape = (STREAMS, STREAM_MILLI_HZ, OPENED_PER_S)
    seen, _ = await streams(port, sizes, shape, nothing)
    seen.check(STREAMS)
    return seen.p50_us
