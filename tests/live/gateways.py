"""A real gateway in its own folder: started, watched through what it logs, and ended.

Waiting is for lines of the log, which come when things happen. Where none comes, the admin API is
asked until it says so; nothing here sleeps.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from tests.gateway.mains.configs import quiet_config
from tests.live.scripted_instance import COMMAND

PATIENCE_S: Final = 300.0  # for one thing to happen on a machine that does other work too
ROOT: Final = Path(__file__).parents[2]

Line = dict[str, Any]


def scripted_model(name: str, weights: Mapping[str, float], **keys: object) -> str:
    """[[model]] of scripted instances, one of each version unless `replicas` says otherwise."""
    replicas = keys.pop("replicas", dict.fromkeys(weights, 1))
    values = {"weights": weights, "replicas": replicas, "command": COMMAND, **keys}
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    return "\n".join(["[[model]]", f'name = "{name}"', *lines, ""])


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f'"{key}" = {_toml(one)}' for key, one in value.items()) + " }"
    return json.dumps(value)  # strings, numbers, lists and booleans are spelled as in JSON


def config(folder: Path, *models: str, gateway: str = "", memory_gb: int = 16) -> str:
    """A whole config.toml; `gateway` are further lines of that table."""
    base = quiet_config(folder).replace("[gateway]\n", f"[gateway]\n{gateway}\n")
    device = f'[[device]]\nname = "cpu0"\nmemory_gb = {memory_gb}\n'
    return "\n".join([base, device, *models])


@dataclass(slots=True)
class Gateway:
    """A running `sluicegate serve`."""

    folder: Path
    process: asyncio.subprocess.Process
    http: aiohttp.ClientSession
    lines: list[Line] = field(default_factory=list)
    where: Line = field(default_factory=dict)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _pump: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.where['listen'][0]}"

    @property
    def admin(self) -> str:
        return f"http://{self.where['admin']}"

    def listen(self) -> None:
        """Read what it says from now on."""
        self._pump = asyncio.create_task(self._read())

    async def start(self) -> None:
        self.listen()
        await self.says(lambda text: text == "listening")
        self.where = json.loads((self.folder / "run" / "gateway.json").read_text())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while raw := await self.process.stderr.readline():
            with suppress(orjson.JSONDecodeError):
                self.lines.append(orjson.loads(raw))
                self._moved.set()

    def said(self, wanted: Callable[[str], bool], after: int = 0) -> bool:
        return any(wanted(str(line.get("message"))) for line in self.lines[after:])

    async def says(self, wanted: Callable[[str], bool], after: int = 0) -> None:
        """Returns when a line's message, of those behind `after`, is as wanted."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not self.said(wanted, after):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            told = "\n".join(str(line.get("message")) for line in self.lines[after:])
            raise AssertionError(f"waited for a line in vain; these came:\n{told}") from None

    async def ready(self, *instances: str, after: int = 0) -> None:
        """Returns when each has told that it is READY and has answered a poll: it will be routable.
        Whoever sends requests then waits for `routes` too."""
        for instance in instances:
            begins = f"{instance} READY"
            await self.says(lambda text, begins=begins: text.startswith(begins), after)  # type: ignore[misc]
            async with asyncio.timeout(PATIENCE_S):
                while (await self.read(f"/instances/{instance}"))["health"] != "good":
                    pass

    async def quiet(self) -> None:
        """Returns when nothing is in flight. A client has the last byte of its answer a moment
        before the worker counts it as ended."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.read("/status"))["in_flight"]:
                pass

    async def routes(self, model: str, weights: dict[str, float]) -> None:
        """Returns when every worker serves all that is in force now. `weights` are those that the
        model has: what is ready is routable only with the next table, some moments later."""
        status, said = await self.change("PUT", f"/models/{model}/weights?wait=1", weights)
        assert status == 200, said

    async def read(self, path: str) -> Any:
        async with self.http.get(f"{self.admin}/admin/v1{path}") as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def change(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        url = f"{self.admin}/admin/v1{path}"
        async with self.http.request(method, url, json=body) as response:
            return response.status, await response.json()

    async def command(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of `sluicegate ARGUMENTS` against this gateway."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", *arguments),
            *("--admin", self.where["admin"]),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=ROOT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        return process.returncode or 0, output.decode()

    async def pids(self) -> dict[str, int]:
        """Launched instances with the process of each."""
        return {one["id"]: one["pid"] for one in (await self.read("/instances"))["instances"]}

    async def end(self) -> int:
        """Ask it to end, as an operator would; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)


@asynccontextmanager
async def running(
    folder: Path, text: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Gateway]:
    """A gateway on the config `text`, which is written to the folder; killed at the end."""
    (folder / "config.toml").write_text(text)
    async with started(folder, environment) as gateway:
        await gateway.start()
        yield gateway


@asynccontextmanager
async def started(
    folder: Path, environment: Mapping[str, str] | None = None, *arguments: str
) -> AsyncIterator[Gateway]:
    """`sluicegate serve` in a folder that has a config; nothing it says has been read yet."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "serve", "--config", str(folder / "config.toml")),
        *("--log-format", "json", *arguments),
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        limit=1 << 22,
    )
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http:
        try:
            yield Gateway(folder, process, http)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def gone(pid: int) -> None:
    """Returns when the process has ended; the kernel says so."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), PATIENCE_S)
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
