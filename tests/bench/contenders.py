"""Proxies to be compared, each in front of the same instances, its working process on one core.

Floor 3, I/O.
Everything else of a contender (nginx's master, Sluicegate's control and supervisor) runs on the
other core, with load and instances.
"""

import os
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.bench.processes import children, maps, pin
from tests.bench.serving import Build, gateway_over, named
from tests.bench.starting import CannotStart, answers, listens, process
from tests.live.gateways import Gateway
from tests.ports import free_port

HERE: Final = Path(__file__).parent
PROXY_CORE: Final = 0
LOAD_CORE: Final = 1
STREAMS_MAX: Final = 20_000  # routers bound what they hold; the load is not about that bound


@dataclass(frozen=True, slots=True)
class Contender:
    """A running proxy. `workers`: the processes that relay."""

    name: str
    port: int
    workers: tuple[int, ...]


Start = Callable[[Path, Sequence[str]], AbstractAsyncContextManager[Contender]]


def fill(template: str, folder: Path, port: int, instances: Sequence[str]) -> Path:
    """The template as a config file in the folder."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = (HERE / template).read_text().replace("@FOLDER@", str(folder))
    text = text.replace("@PORT@", str(port)).replace("@FILES@", str(files))
    path = folder / template
    path.write_text(text.replace("@INSTANCES@", "\n".join(instances)))
    return path


@asynccontextmanager
async def nginx(folder: Path, addresses: Sequence[str]) -> AsyncIterator[Contender]:
    port = free_port()
    path = fill("nginx.conf", folder, port, [f"    server {one};" for one in addresses])
    log = folder / "nginx.log"
    async with process("nginx", "-e", str(log), "-c", str(path)) as master:
        await answers(port, master)  # the master listens before it has a worker
        worker = children(master.pid)[0]
        pin(worker, PROXY_CORE)
        yield Contender("nginx", port, (worker,))


@asynccontextmanager
async def haproxy(folder: Path, addresses: Sequence[str]) -> AsyncIterator[Contender]:
    port = free_port()
    lines = [
        f"  server s{k} {one} maxconn 9500 pool-max-conn 1000" for k, one in enumerate(addresses)
    ]
    path = fill("haproxy.cfg", folder, port, lines)
    async with process("haproxy", "-q", "-f", str(path)) as only:
        await listens(port, only)
        pin(only.pid, PROXY_CORE)
        yield Contender("HAProxy", port, (only.pid,))


@asynccontextmanager
async def gateway(
    build: Build, folder: Path, addresses: Sequence[str], workers: int = 1
) -> AsyncIterator[tuple[Gateway, Contender]]:
    """Raises: CannotStart when a worker does not run the build."""
    async with gateway_over(folder, addresses, workers, build) as made:
        port = int(made.where["listen"][0].rpartition(":")[2])
        pids = tuple(one["pid"] for one in (await made.read("/status"))["workers"])
        for pid in pids:
            if build.folder is not None and not maps(pid, build.folder):
                raise CannotStart("Sluicegate's worker runs nothing of the compiled build")
            pin(pid, PROXY_CORE)
        yield made, Contender(named(build), port, pids)


@asynccontextmanager
async def sluicegate(
    build: Build, folder: Path, addresses: Sequence[str]
) -> AsyncIterator[Contender]:
    async with gateway(build, folder, addresses) as (_, who):
        yield who


@asynccontextmanager
async def router(
    name: str, command: Sequence[str], folder: Path, addresses: Sequence[str]
) -> AsyncIterator[Contender]:
    """A router that takes its instances' addresses on the command line.

    It has one core, so it gets one thread for its tasks: with a thread for each core of the machine
    they would be in each other's way. It is pinned before it starts, so every thread is.
    """
    _check_installed(command[0])
    port, metrics = free_port(), free_port()
    urls = [f"http://{one}" for one in addresses]
    options = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics)]
    options += ["--policy", "round_robin", "--log-level", "error"]
    options += ["--max-concurrent-requests", str(STREAMS_MAX), "--worker-urls", *urls]
    environment = {**os.environ, "TOKIO_WORKER_THREADS": "1"}
    pinned = ("taskset", "-c", str(PROXY_CORE), *command)
    with (folder / "log").open("wb") as log:
        async with process(
            *pinned, *options, stdout=log, stderr=log, environment=environment
        ) as only:
            await answers(port, only)
            yield Contender(name, port, (only.pid,))


def _check_installed(program: str) -> None:
    """`taskset` would be the program that starts, and what it says is not worth reading."""
    if not Path(program).exists():
        raise CannotStart("it is not installed: `make bench` does that")


def known(builds: Sequence[Build], peers: Path) -> dict[str, Start]:
    """Every contender by its name, in the order of the table. `peers`: a virtual environment."""
    python = str(peers / "bin" / "python")
    routers = {"sglang-router": "sglang_router", "vllm-router": "vllm_router"}
    return {
        "nginx": nginx,
        "HAProxy": haproxy,
        **{named(build): partial(sluicegate, build) for build in builds},
        **{
            name: partial(router, name, (python, "-m", f"{module}.launch_router"))
            for name, module in routers.items()
        },
    }
