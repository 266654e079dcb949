"""Whole lives with a scripted engine, over real connections, in this process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import grpc

from backends.instance import Instance
from backends.living import Ending
from backends.settings import Settings
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from tests.backends.fakes import Gate as Steps
from tests.backends.fakes import ScriptedEngine, successor
from tests.backends.rig import ScriptedFamily, changed, write_snapshot

HI = {"model": "m", "prompt": "ab", "max_tokens": 3}
VERIFICATION_STEPS = 4


class Lived:
    """One life, from outside."""

    def __init__(self, instance: Instance, family: ScriptedFamily) -> None:
        self.instance = instance
        self.family = family
        self.ended = asyncio.create_task(instance.run())

    async def until(self, *states: str) -> None:
        await changed(self.instance.life, *states)

    async def ending(self) -> Ending:
        async with asyncio.timeout(300):
            return await self.ended

    @property
    def url(self) -> str:
        return f"http://{self.instance.facts.identity.http_address}/v1/completions"

    async def post(self, session: aiohttp.ClientSession, **fields: Any) -> aiohttp.ClientResponse:
        return await session.post(self.url, json=HI | fields)


@asynccontextmanager
async def living(
    root: Path,
    engine: ScriptedEngine | None = None,
    steps: Steps | None = None,
    missing: str = "",
    **settings: Any,
) -> AsyncIterator[Lived]:
    write_snapshot(root)
    family = ScriptedFamily(engine or ScriptedEngine(rule=successor), missing)
    given: dict[str, Any] = {"error_linger_s": 0.0, "cache_root": root / ".cache"} | settings
    made = Settings(model="m", version="1", root=root, instance_id="m-1-0", **given)
    lived = Lived(Instance(made, {"llm": family}, Random(7), lambda: 1_700_000_000.0), family)
    try:
        yield lived
    finally:
        if steps is not None:
            steps.open()
        lived.instance.life.stop(0.0, "the test is over", 0.0)
        await asyncio.wait([lived.ended], timeout=300)


@asynccontextmanager
async def lifecycle(lived: Lived) -> AsyncIterator["stubs.LifecycleAsyncStub"]:
    address = lived.instance.facts.identity.grpc_address
    async with grpc.aio.insecure_channel(address) as channel:
        yield stubs.LifecycleStub(channel)
