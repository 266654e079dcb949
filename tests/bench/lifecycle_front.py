"""Lifecycle in front of HTTP servers that know nothing of it: always READY, never busy.

Floor 3, I/O.
With it, a gateway takes any server for an instance: the stub of the benchmark, or the one that a
script of HTTP cases opens. Orders are taken and change nothing, so it is no use for drains.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc

from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs

Context = grpc.aio.ServicerContext[Any, Any]

OPTIONS: Final = [
    ("grpc.so_reuseport", 0),  # a taken port is an error, not a second listener
    # Gateways ping to notice a frozen peer; a server that does not permit it hangs up on them.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.http2.max_ping_strikes", 0),
]


@dataclass(frozen=True, slots=True)
class Fronted:
    """An instance as a gateway's config names it: both addresses are host:port."""

    name: str
    http: str
    grpc: str

    def toml(self, model: str, version: str = "1") -> str:
        return (
            f'[[instance]]\nid = "{self.name}"\nmodel = "{model}"\nversion = "{version}"\n'
            f'http = "{self.http}"\ngrpc = "{self.grpc}"\n'
        )


class Front(stubs.LifecycleServicer):
    """Says of one server that it is READY. `status` is what it says."""

    def __init__(self, name: str, http: str, model: str) -> None:
        self.status = wire.InstanceStatus(
            instance_id=name,
            incarnation="1",
            sequence=1,
            model=model,
            version="1",
            http_address=http,
            state=wire.READY,
            phase=wire.SERVING,
            progress=100,
        )

    async def GetStatus(  # noqa: N802 - named by the protocol
        self, request: wire.GetStatusRequest, context: Context
    ) -> wire.InstanceStatus:
        return self.status

    async def WatchStatus(  # noqa: N802
        self, request: wire.WatchStatusRequest, context: Context
    ) -> AsyncIterator[wire.InstanceStatus]:
        yield self.status
        await asyncio.Event().wait()  # nothing will change; ends with the call

    async def Drain(  # noqa: N802
        self, request: wire.DrainRequest, context: Context
    ) -> wire.DrainReply:
        return wire.DrainReply(status=self.status)

    async def Resume(  # noqa: N802
        self, request: wire.ResumeRequest, context: Context
    ) -> wire.StatusReply:
        return wire.StatusReply(status=self.status)

    async def Stop(  # noqa: N802
        self, request: wire.StopRequest, context: Context
    ) -> wire.StatusReply:
        return wire.StatusReply(status=self.status)


class Changing(Front):
    """A front that says what it is told to, and whose watchers hear of it at once."""

    def __init__(self, name: str, http: str, model: str, version: str = "1") -> None:
        super().__init__(name, http, model)
        self.status.version = version
        self._watchers: set[asyncio.Event] = set()

    def say(self, state: wire.State.ValueType, incarnation: str = "") -> None:
        self.status.sequence += 1
        self.status.state = state
        self.status.incarnation = incarnation or self.status.incarnation
        for watcher in self._watchers:
            watcher.set()

    async def WatchStatus(  # noqa: N802
        self, request: wire.WatchStatusRequest, context: Context
    ) -> AsyncIterator[wire.InstanceStatus]:
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            while True:
                yield self.status
                await changed.wait()
                changed.clear()
        finally:
            self._watchers.discard(changed)

    async def Drain(  # noqa: N802
        self, request: wire.DrainRequest, context: Context
    ) -> wire.DrainReply:
        self.say(wire.DRAINING)
        return wire.DrainReply(status=self.status)

    async def Resume(  # noqa: N802
        self, request: wire.ResumeRequest, context: Context
    ) -> wire.StatusReply:
        self.say(wire.READY)
        return wire.StatusReply(status=self.status)


@asynccontextmanager
async def served(front: Front, host: str = "127.0.0.1") -> AsyncIterator[Fronted]:
    """The front, on a port of its own."""
    server = grpc.aio.server(options=OPTIONS)
    address = f"{host}:{server.add_insecure_port(f'{host}:0')}"
    front.status.grpc_address = address
    stubs.add_LifecycleServicer_to_server(front, server)
    await server.start()
    try:
        yield Fronted(front.status.instance_id, front.status.http_address, address)
    finally:
        await server.stop(None)


@asynccontextmanager
async def fronted(addresses: Sequence[str], model: str) -> AsyncIterator[list[Fronted]]:
    """Fronts for HTTP servers at these addresses, named `stub-0` and so on."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(served(Front(f"stub-{k}", http, model)))
            for k, http in enumerate(addresses)
        ]
