"""A gateway's Registry that keeps what it hears and answers what it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from gateway.controlplane.enrol import OPTIONS
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs

LONG_S = 600.0  # an interval that no test lives to see


class FakeRegistry(stubs.RegistryServicer):
    """Keeps what it hears; answers what it is told to, the last answer for ever."""

    def __init__(self, interval_s: float = LONG_S) -> None:
        self.heard: asyncio.Queue[Any] = asyncio.Queue(100)
        self.registered = wire.RegisterReply(ttl_s=30, interval_s=interval_s)
        self.beats = [wire.HeartbeatReply(interval_s=interval_s)]
        self.refusals: list[grpc.StatusCode] = []

    async def Register(  # noqa: N802
        self, request: wire.RegisterRequest, context: Any
    ) -> wire.RegisterReply:
        await self._hear(request, context)
        return self.registered

    async def Heartbeat(  # noqa: N802
        self, request: wire.HeartbeatRequest, context: Any
    ) -> wire.HeartbeatReply:
        await self._hear(request, context)
        return self.beats.pop(0) if len(self.beats) > 1 else self.beats[0]

    async def Deregister(  # noqa: N802
        self, request: wire.DeregisterRequest, context: Any
    ) -> wire.DeregisterReply:
        await self._hear(request, context)
        return wire.DeregisterReply()

    async def next(self) -> Any:
        async with asyncio.timeout(300):
            return await self.heard.get()

    async def _hear(self, request: Any, context: Any) -> None:
        self.heard.put_nowait(request)
        if self.refusals:
            await context.abort(self.refusals.pop(0), "not now")


@asynccontextmanager
async def listening(gateway: FakeRegistry, port: int = 0) -> AsyncIterator[str]:
    server = grpc.aio.server(options=OPTIONS)  # a gateway bears with an instance's pings
    stubs.add_RegistryServicer_to_server(gateway, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    yield f"127.0.0.1:{bound}"
    await server.stop(LONG_S)  # what was heard is answered first; none of its calls lasts
