"""Proxies to be compared, each in front of the same instances, its working process on one core.

Floor 3, I/O.
Everything else of a contender (nginx's master, Sluicegate's control and supervisor) runs on the
other core, with load and instances.
"""

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.processes import children, pin
from tests.bench.serving import gateway_over
from tests.gateway.dataplane.harness import free_port

HERE: Final = Path(__file__).parent
PROXY_CORE: Final = 0
LOAD_CORE: Final = 1
PATIENCE_S: Final = 10.0  # for a process to listen
LOOK_AGAIN_S: Final = 0.02  # nginx and haproxy tell nobody that they listen


class CannotStart(Exception):
    """A contender or a part of the bench does not run here."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A running proxy. `worker`: pid of the process that relays."""

    name: str
    port: int
    worker: int


Start = Callable[[Path, Sequence[str]], AbstractAsyncContextManager[Contender]]


@asynccontextmanager
async def process(
    *command: str, stdout: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Ended at the end."""
    try:
        started = await asyncio.create_subprocess_exec(*command, stdout=stdout)
    except FileNotFoundError:
        raise CannotStart(f"{command[0]} is not installed") from None
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            started.terminate()
        await started.wait()


async def listens(port: int, started: asyncio.subprocess.Process) -> None:
    """Returns when the port takes connections."""
    async with asyncio.timeout(PATIENCE_S):
        while started.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(LOOK_AGAIN_S)
                continue
            writer.close()
            return
    raise CannotStart(f"a proxy ended with exit code {started.returncode} before it listened")


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
        await listens(port, master)
        worker = children(master.pid)[0]
        pin(worker, PROXY_CORE)
        yield Contender("nginx", port, worker)


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
        yield Contender("HAProxy", port, only.pid)


@asynccontextmanager
async def sluicegate(folder: Path, addresses: Sequence[str]) -> AsyncIterator[Contender]:
    async with gateway_over(folder, addresses) as gateway:
        port = int(gateway.where["listen"][0].rpartition(":")[2])
        worker = (await gateway.read("/status"))["workers"][0]["pid"]
        pin(worker, PROXY_CORE)
        yield Contender("Sluicegate", port, worker)


CONTENDERS: Final[dict[str, Start]] = {
    "nginx": nginx,
    "HAProxy": haproxy,
    "Sluicegate": sluicegate,
}
