"""Instances of the real model for the benches of loading: started, READY, asked, ended.

Floor 3, I/O.
No gateway is between: what is measured is what one instance does to its clients.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import aiohttp
import orjson

from tests.live.gateways import ROOT

MODEL: Final = "smollm2-135m-instruct"
VERSION: Final = "1"
MODELS: Final = ROOT / "var" / "models"
READY_S: Final = 600.0  # on a machine where somebody else loads, too
END_S: Final = 30.0


class CannotMeasure(Exception):
    """The message is a sentence for whoever started the bench."""


@dataclass(frozen=True, slots=True)
class Served:
    """An instance that is READY, or on its way."""

    url: str
    ready: "asyncio.Task[None]"
    http: aiohttp.ClientSession

    async def gauge(self, name: str) -> float:
        """A metric of the instance that has one row."""
        async with self.http.get(f"{self.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    async def gaps(self, prompt: str, tokens: int) -> list[float]:
        """Seconds to the first token, then between two."""
        body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "stream": True}
        now = asyncio.get_running_loop().time
        times = [now()]
        given = {**body, "ignore_eos": True, "temperature": 0}
        async with self.http.post(f"{self.url}/v1/completions", json=given) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    times.append(now())
        if len(times) < 2:
            raise CannotMeasure(f"an answer of status {response.status} had no token")
        return [later - earlier for earlier, later in pairwise(times)]


@asynccontextmanager
async def instance(name: str, cache: Path, *options: str, cpus: int = 0) -> AsyncIterator[Served]:
    """Ended at the end. It stays on the first `cpus`; 0: on all. Raises: CannotMeasure."""
    if not (MODELS / MODEL / VERSION).is_dir():
        raise CannotMeasure(f"needs {MODEL} {VERSION}: run `make models` first")
    command = [sys.executable, "-m", "gateway.cli", "instance", "--model", MODEL]
    command += ["--version", VERSION, "--root", str(MODELS), "--cache-root", str(cache)]
    command += ["--instance-id", name, "--grace-s", "0.1", *options]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    if cpus:  # before it has threads: they begin as the first one is
        os.sched_setaffinity(process.pid, sorted(os.sched_getaffinity(0))[:cpus])
    assert process.stderr is not None
    try:
        address = str((await _line(process.stderr, "listening"))["http"])
        ready = asyncio.create_task(_ready(process.stderr))
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=READY_S)) as http:
            yield Served(f"http://{address}", ready, http)
        ready.cancel()
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _ready(log: asyncio.StreamReader) -> None:
    """Returns when the instance is READY. Raises: CannotMeasure."""
    async with asyncio.timeout(READY_S):
        while (line := await _line(log, "state changed"))["state"] != "READY":
            if line["state"] != "INITIALIZING":
                raise CannotMeasure(f"an instance is {line['state']}: {line['reason']}")


async def _line(log: asyncio.StreamReader, message: str) -> dict[str, object]:
    """The next line of that message. Raises: CannotMeasure at the end."""
    async for line in log:
        if line.startswith(b"{"):
            document: dict[str, object] = orjson.loads(line)
            if document["message"] == message:
                return document
    raise CannotMeasure(f"an instance ended before it said {message!r}")


def share(values: list[float], percent: float) -> float:
    """The value that `percent` of them stay below, in milliseconds."""
    ordered = sorted(values)
    return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
