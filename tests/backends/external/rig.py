"""Lives of agents in this process, for servers in processes of their own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import aiohttp

from backends.external.presets import Protocol
from backends.external.settings import AgentSettings
from backends.external.standin import StandIn
from backends.external.work import AgentWork
from backends.life import Life
from backends.living import Ending, Living
from backends.settings import Address
from backends.status import Identity
from sluicegate.v1.states import State
from tests.backends.rig import MEMORY, WatchedGate, changed
from tests.ports import free_port

SERVER: Final = (sys.executable, "-m", "tests.backends.external.server")
PATIENCE_S: Final = 300.0


def settings_for(*trouble: str, command: tuple[str, ...] = (), **given: Any) -> AgentSettings:
    port = given.pop("port", None) or free_port()
    base = f"http://127.0.0.1:{port}"
    made: dict[str, Any] = {
        "model": "m",
        "version": "1",
        "instance_id": "m-1-0",
        "command": command or (*SERVER, "--port", str(port), *trouble),
        "upstream": Address("127.0.0.1", port),
        "protocol": Protocol.OPENAI,
        "health": f"{base}/health",
        "models": f"{base}/v1/models",
        "metrics": f"{base}/metrics",
        "warm_up": (3,),
        "error_linger_s": 0.0,
        "health_interval_s": 0.05,
        "again_s": 0.05,
    }
    return AgentSettings(**(made | given))


def standin_for(settings: AgentSettings) -> StandIn:
    gate = WatchedGate()
    return StandIn(
        Identity(settings.instance_id, "life-1", settings.model, settings.version),
        gate,
        Life(settings.instance_id, gate),
        lambda: MEMORY,
        settings.max_concurrency,
    )


class Lived:
    """One life, from outside."""

    def __init__(self, settings: AgentSettings) -> None:
        self.settings = settings
        self.standin = standin_for(settings)
        self.work = AgentWork(settings, self.standin, os.environ, Random(7))
        self._living = Living(settings, self.standin, self.work, Random(7))
        self.seen: list[tuple[str, str]] = []  # phase and reason, each once
        self.life.watch(self._look)
        self.ended = asyncio.create_task(self._living.run())

    @property
    def life(self) -> Life:
        return self.standin.life

    @property
    def url(self) -> str:
        return f"http://{self.standin.identity.http_address}"

    def terminate(self) -> None:
        self._living.terminate()

    async def until(self, *states: str) -> None:
        await changed(self.life, *states)

    async def ready(self) -> None:
        await self.until("READY", "ERROR")
        assert self.life.standing.state is State.READY, self.life.standing.reason

    async def tells(self, what: str) -> None:
        """Returns when a reason has had that in it."""
        news = asyncio.Event()
        unwatch = self.life.watch(news.set)
        async with asyncio.timeout(PATIENCE_S):
            while not any(what in reason for _, reason in self.seen):
                news.clear()
                await news.wait()
        unwatch()

    async def ending(self) -> Ending:
        async with asyncio.timeout(PATIENCE_S):
            return await self.ended

    async def trouble(self, http: aiohttp.ClientSession, **what: Any) -> None:
        """Past the proxy: what is wrong with the server from now on."""
        async with http.post(f"{self.settings.base}/trouble", json=what) as answered:
            assert answered.status == 200

    def _look(self) -> None:
        standing = self.life.standing
        told = (standing.phase.name.lower(), standing.reason)
        if told not in self.seen:
            self.seen.append(told)


@asynccontextmanager
async def living(settings: AgentSettings) -> AsyncIterator[Lived]:
    lived = Lived(settings)
    try:
        yield lived
    finally:
        lived.life.stop(0.0, "the test is over", 0.0)
        await asyncio.wait([lived.ended], timeout=PATIENCE_S)


def chat(max_tokens: int = 4, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    return {"model": "m", "messages": messages, "max_tokens": max_tokens} | more
