"""What many polled instances cost the control process: until all are routable, and from then on.

Floor 3, I/O.
One front answers for all of them, each at an address of its own of 127.0.0.0/8: so control has as
many channels, streams and polls as with as many instances, and the front is not what is measured.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.bench.lifecycle_front import Changing, Fronted, served
from tests.bench.lifecycle_text import Figures
from tests.bench.processes import children, cpu_ns
from tests.bench.serving import MODEL, Build
from tests.live.gateways import Gateway, config, running

HTTP: Final = "127.0.0.1:9"  # nobody is sent there
SETTLE_S: Final = 3.0  # from the last that became routable to the first that is measured
LOOK_AGAIN_S: Final = 0.2


def control_of(gateway: Gateway) -> int:
    """Its control process."""
    (found,) = (
        pid
        for pid in children(gateway.process.pid)
        if b"gateway.mains.control" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return found


def addresses(port: str, count: int) -> list[str]:
    """So many of one machine; below .0 and .255, which are no hosts'."""
    return [f"127.1.{k // 250}.{k % 250 + 1}:{port}" for k in range(count)]


@asynccontextmanager
async def crowd(folder: Path, build: Build, count: int) -> AsyncIterator[Gateway]:
    async with served(Changing("any", HTTP, MODEL), host="0.0.0.0") as front:
        _, _, port = front.grpc.rpartition(":")
        rows = [Fronted(f"i{k}", HTTP, at) for k, at in enumerate(addresses(port, count))]
        model = f'[[model]]\nname = "{MODEL}"\nweights = {{ "1" = 1 }}\n'
        text = config(folder, model, *(row.toml(MODEL) for row in rows))
        async with running(folder, text, build.environment) as gateway:
            yield gateway


async def _routable(gateway: Gateway, count: int) -> None:
    while True:
        status = await gateway.read("/status")
        if status["routable"] == count:
            return
        await asyncio.sleep(LOOK_AGAIN_S)


async def polled(folder: Path, build: Build, count: int, seconds: float) -> Figures:
    """CPU of control for so many instances that are all READY from the beginning."""
    loop = asyncio.get_running_loop()
    async with crowd(folder, build, count) as gateway:
        await _routable(gateway, count)
        control = control_of(gateway)
        start_s = cpu_ns([control]) / 1e9
        await asyncio.sleep(SETTLE_S)
        before, began = cpu_ns([control]), loop.time()
        await asyncio.sleep(seconds)
        used = (cpu_ns([control]) - before) / 1e9 / (loop.time() - began)
    return {f"start_{count}_s": [start_s], f"polled_{count}_percent": [used * 100]}
