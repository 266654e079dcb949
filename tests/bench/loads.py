"""What is done to a contender, and what that costs it: one function for each kind of load.

Floor 3, I/O.
CPU time is that of the process that relays, between two moments in which the load is the same.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

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
    """How long and how much; also where the compiled load generator is. `window_s`: of streams."""

    sse: Path
    seconds: int
    streams_held: int
    window_s: int


Load = Callable[[Contender, Sizes], Coroutine[Any, Any, Values]]


async def requests(port: int, script: str, seconds: int, connections: int) -> Requests:
    process = await asyncio.create_subprocess_exec(
        *("wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"),
        *("--timeout", "20s", "-s", str(HERE / script)),
        f"http://127.0.0.1:{port}/v1/completions",
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return read_wrk(output.decode())


async def streams(
    port: int, sizes: Sizes, shape: tuple[int, int, int], look: Callable[[], None]
) -> Streams:
    """`shape`: streams, events of each in 1000 s, opened per second. `look` is called at both ends
    of the window."""
    process = await asyncio.create_subprocess_exec(
        str(sizes.sse),
        *(str(port), *(str(one) for one in shape), str(sizes.window_s)),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    for _ in ("begin", "end"):
        await process.stdout.readline()
        look()
    output, _ = await process.communicate(b"\n")
    return read_sse(output.decode(), shape[0])


async def _short(who: Contender, sizes: Sizes, kind: str) -> Values:
    before = cpu_ns(who.worker)
    seen = await requests(who.port, f"{kind}.lua", sizes.seconds, CONNECTIONS)
    spent = cpu_ns(who.worker) - before
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
    before = cpu_ns(who.worker)
    seen = await requests(who.port, f"{kind}.lua", sizes.seconds, CONNECTIONS_8MIB)
    return {f"{kind}_ms": (cpu_ns(who.worker) - before) / 1e6 / seen.count}


async def up(who: Contender, sizes: Sizes) -> Values:
    """Bodies of 8 MiB, held to read the model's name where the proxy does that."""
    return await _big(who, sizes, "up")


async def down(who: Contender, sizes: Sizes) -> Values:
    """Answers of 8 MiB."""
    return await _big(who, sizes, "down")


async def sse(who: Contender, sizes: Sizes) -> Values:
    """Streams at the pace of tokens. Delays still hold the part that has no proxy in it."""
    looks: list[int] = []
    shape = (STREAMS, STREAM_MILLI_HZ, OPENED_PER_S)
    seen = await streams(who.port, sizes, shape, lambda: looks.append(cpu_ns(who.worker)))
    return {
        "sse_us": (looks[1] - looks[0]) / 1e3 / seen.events,
        "sse_p50_us": seen.p50_us,
        "sse_p99_us": seen.p99_us,
        "sse_first_us": seen.first_p50_us,
    }


async def memory(who: Contender, sizes: Sizes) -> Values:
    """Many calm streams, held open; the contender has to be fresh."""
    looks = [rss_kib(who.worker)]
    shape = (sizes.streams_held, CALM_STREAM_MILLI_HZ, CALM_OPENED_PER_S)
    await streams(who.port, sizes, shape, lambda: looks.append(rss_kib(who.worker)))
    return {"stream_kib": (looks[-1] - looks[0]) / sizes.streams_held}


async def direct(port: int, sizes: Sizes) -> float:
    """Delay (p50, us) of events that come straight from the instance."""
    shape = (STREAMS, STREAM_MILLI_HZ, OPENED_PER_S)
    return (await streams(port, sizes, shape, lambda: None)).p50_us
