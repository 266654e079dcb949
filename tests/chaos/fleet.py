"""The gateway under test: started, asked, read, and ended. Everything by pid.

Floor 3, I/O.
Its log goes to a file and not through a pipe: a gateway must never wait for whoever watches it.
"""

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from admin.calls import Unanswered
from admin.client import Client
from gateway.control import InstanceView
from tests.chaos.audit import NO_INSTANCE
from tests.chaos.stub import COMMAND, SLOTS
from tests.live.gateways import ROOT, config, scripted_model
from tests.live.scripted_instance import write_snapshot
from tests.tiny import write_tiny_snapshot

VOLUME: Final = "volume"  # stub instances, for numbers
TINY: Final = "tiny"  # a MindSpore model of random weights, for the real thing
PATIENCE_S: Final = 150.0  # for one thing to happen, on a machine that does other work too
LOOK_S: Final = 0.1  # between two looks
RETRY_S: Final = 30.0  # how long control may be gone

Answer = TypeVar("Answer")


class Failed(Exception):
    """An orderly operation did not do what it promises."""


def config_text(folder: Path, tiny: bool, first: int = 2, limit: int = SLOTS) -> str:
    """`first`: instances of version 1; `limit`: requests in flight on each."""
    volume = scripted_model(
        VOLUME,
        {"1": 50, "2": 50},
        replicas={"1": first, "2": 2},
        limit=limit,
        queue_max=200,
        queue_timeout_s=60,
        command=COMMAND,
        device="cpu0",
    )
    mindspore = (
        f'[[device]]\nname = "cpu1"\nmemory_gb = 8\n[[model]]\nname = "{TINY}"\n'
        'weights = { "1" = 100 }\nreplicas = { "1" = 2 }\nlimit = 4\nqueue_max = 200\n'
        'queue_timeout_s = 60\ndevice = "cpu1"\nthreads = 1\n'
    )
    text = config(folder, volume, mindspore if tiny else "", gateway="workers = 2")
    launch = "[launch]\nrestart_min_s = 0.2\nrestart_max_s = 1\nerror_linger_s = 1\n"
    return f"{text}\n{launch}[drain]\ngrace_s = 100\n"


def write_models(folder: Path, tiny: bool) -> None:
    for version in ("1", "2"):
        write_snapshot(folder / "models", VOLUME, version)
    if tiny:
        write_tiny_snapshot(folder / "models", TINY, "1")


@dataclass(slots=True)
class Fleet:
    """One gateway, through its take-overs. `processes`: every `serve` that was started; `pid`: of
    the supervisor that runs the gateway now."""

    folder: Path
    tiny: bool
    kills: bool  # control may be gone at times
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    address: str = ""
    admin: str = ""
    pid: int = 0

    @property
    def log(self) -> Path:
        return self.folder / "gateway.log"

    async def start(self) -> None:
        write_models(self.folder, self.tiny)
        self.write_config()
        self.pid = (await self.serve()).pid
        where = self.folder / "run" / "gateway.json"
        await until("the gateway listens", where.exists)
        said = json.loads(where.read_text())
        self.address, self.admin = said["listen"][0], said["admin"]

    async def take_over(self) -> None:
        """By a new gateway, as for a new version; returns when the old one has ended.

        Raises: Failed.
        """
        (old,) = (one for one in self.processes if one.pid == self.pid)
        new = await self.serve("--take-over")
        where = self.folder / "run" / "gateway.json"

        def committed() -> bool:
            return json.loads(where.read_text())["pid"] == new.pid or new.returncode is not None

        await until("the successor has taken over", committed)
        if new.returncode is not None:
            raise Failed(f"the successor ended with exit code {new.returncode}")
        self.pid = new.pid
        await until("the old gateway has ended", lambda: old.returncode is not None)
        if old.returncode:
            raise Failed(f"the old gateway ended with exit code {old.returncode}")

    def write_config(self, **keys: int) -> None:
        fresh = self.folder / "config.new"
        fresh.write_text(config_text(self.folder, self.tiny, **keys))
        fresh.replace(self.folder / "config.toml")

    async def serve(self, *flags: str) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway.cli", "serve"),
                *("--config", str(self.folder / "config.toml"), "--log-format", "json", *flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,  # Ctrl-C is for us; we end it
            )
        self.processes.append(process)
        return process

    async def lives(self) -> None:
        """Returns never.

        Raises: Failed when the gateway has ended, which nobody has asked it for.
        """
        while True:
            (process,) = (one for one in self.processes if one.pid == self.pid)
            if process.returncode is not None:
                raise Failed(f"the gateway has ended with exit code {process.returncode}")
            await asyncio.sleep(LOOK_S)

    async def end(self) -> int:
        """As an operator would; its exit code."""
        os.kill(self.pid, signal.SIGTERM)
        (process,) = (one for one in self.processes if one.pid == self.pid)
        return await asyncio.wait_for(process.wait(), PATIENCE_S)

    def kill(self) -> None:
        """Whatever is left; what is below a supervisor ends with it."""
        for process in self.processes:
            if process.returncode is None:
                process.kill()

    # -- what is asked of it

    async def ask(self, call: Callable[[Client], Answer], timeout_s: float = PATIENCE_S) -> Answer:
        """`call` on the typed client of the admin API. It is made again while the gateway is being
        handed over, and where control is killed now and then: all changes are idempotent.

        Raises: Unanswered.
        """
        passing = {"handing_over", "no_gateway"} if self.kills else {"handing_over"}
        give_up = time.monotonic() + RETRY_S
        while True:
            try:
                return await asyncio.to_thread(call, Client(self.admin, timeout_s))
            except Unanswered as exc:
                if exc.code not in passing or time.monotonic() >= give_up:
                    raise
            await asyncio.sleep(LOOK_S)

    async def instance(self, name: str) -> InstanceView | None:
        found = await self.ask(lambda client: client.read.instances())
        return next((one for one in found if one.id == name), None)

    async def serves(self, name: str, not_pid: int = 0) -> None:
        """Returns when the instance gets traffic, in a process other than `not_pid`."""

        async def look() -> bool:
            one = await self.instance(name)
            return one is not None and serving(one) and one.pid != not_pid

        await awaited(f"{name} serves", look)

    def control_pid(self) -> int:
        """0 while there is none."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for child in children:
            try:
                command = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue  # it has ended meanwhile
            if b"gateway.mains.control" in command:
                return int(child)
        return 0

    async def metrics(self) -> str:
        reader, writer = await asyncio.open_connection(*self.admin.rsplit(":", 1))
        writer.write(f"GET /metrics HTTP/1.0\r\nHost: {self.admin}\r\n\r\n".encode())
        text = (await asyncio.wait_for(reader.read(), PATIENCE_S)).decode()
        writer.close()
        if " 200 " not in text.partition("\r\n")[0]:
            raise Failed(f"/metrics answers {text[:200]}")
        return text

    # -- what it has said

    def lines(self) -> list[dict[str, Any]]:
        """Every whole line of the log that is JSON."""
        said = []
        for line in self.log.read_bytes().splitlines():
            try:
                said.append(orjson.loads(line))
            except orjson.JSONDecodeError:
                continue
        return said

    def named(self) -> dict[str, str]:
        """Lost requests by the client's id, with the cause: told by control, or by a worker."""
        lost = [
            line for line in self.lines() if "cause" in line and line["message"] != "attempt failed"
        ]
        return {line["client_request_id"]: _cause(line) for line in lost}


def _cause(line: dict[str, Any]) -> str:
    """`cause`, apart for those that no instance had: the gateway counts requests by instance."""
    return NO_INSTANCE if line.get("stage") == "unplaced" else str(line["cause"])


def serving(one: InstanceView) -> bool:
    return (one.state, one.health, one.intent) == ("READY", "good", "active")


async def can_take_over() -> bool:
    """Whether this version of `serve` can take over from another one."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "serve", "--help"),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    told, _ = await process.communicate()
    return b"--take-over" in told


async def until(what: str, holds: Callable[[], bool]) -> None:
    async def look() -> bool:
        return holds()

    await awaited(what, look)


async def awaited(what: str, look: Callable[[], Any]) -> None:
    """Returns when `await look()` says yes.

    Raises: Failed after PATIENCE_S.
    """
    give_up = time.monotonic() + PATIENCE_S
    while not await look():
        if time.monotonic() >= give_up:
            raise Failed(f"waited {PATIENCE_S:g} s in vain: {what}")
        await asyncio.sleep(LOOK_S)


def counted(metrics: str, name: str, label: str) -> Counter[str]:
    """A metric's values, added up by one of its labels."""
    found: Counter[str] = Counter()
    for key, value in re.findall(
        rf'^{name}{{(?:.*,)?{label}="([^"]*)".*}} (\S+)$', metrics, re.MULTILINE
    ):
        found[key] += int(float(value))
    return found
