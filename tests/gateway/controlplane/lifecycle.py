"""An instance's gRPC side for tests: real grpc.aio on loopback, and it does what it is told to."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from sluicegate.v1 import lifecycle_pb2 as pb
from sluicegate.v1 import lifecycle_pb2_grpc


class FakeLifecycle(lifecycle_pb2_grpc.LifecycleServicer):
    def __init__(self, name: str = "a", options: Sequence[tuple[str, Any]] = ()) -> None:
        self.status = self.said(name)
        self.calls: list[str] = []
        self.hang = False
        self.watchable = True
        self.changed = asyncio.Event()
        self._server = grpc.aio.server(options=[*options, ("grpc.so_reuseport", 0)])
        lifecycle_pb2_grpc.add_LifecycleServicer_to_server(self, self._server)

    @staticmethod
    def said(name: str = "a") -> pb.InstanceStatus:
        return pb.InstanceStatus(
            instance_id=name,
            incarnation=f"{name}1",
            sequence=1,
            model="m",
            version="1",
            state=pb.READY,
            phase=pb.SERVING,
            progress=100.0,
        )

    async def start(self) -> str:
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.status.grpc_address = f"127.0.0.1:{port}"
        self.status.http_address = "127.0.0.1:1"
        await self._server.start()
        return self.status.grpc_address

    async def stop(self) -> None:
        await self._server.stop(None)

    def become(self, state: pb.State.ValueType) -> None:
        self.status.state = state
        self.status.sequence += 1
        self.changed.set()

    async def GetStatus(self, request: Any, context: Any) -> pb.InstanceStatus:  # noqa: N802
        self.calls.append("poll")
        if self.hang:
            await asyncio.Event().wait()
        return self.status

    async def WatchStatus(  # noqa: N802
        self, request: Any, context: Any
    ) -> AsyncIterator[pb.InstanceStatus]:
        if not self.watchable:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no stream here")
        while True:
            await self.changed.wait()
            self.changed.clear()
            yield self.status

    async def Drain(self, request: Any, context: Any) -> pb.DrainReply:  # noqa: N802
        self.calls.append(f"drain {request.grace_s:g}")
        self.become(pb.DRAINING)
        return pb.DrainReply(status=self.status)

    async def Resume(self, request: Any, context: Any) -> pb.StatusReply:  # noqa: N802
        self.calls.append("resume")
        self.become(pb.READY)
        return pb.StatusReply(status=self.status)

    async def Stop(self, request: Any, context: Any) -> pb.StatusReply:  # noqa: N802
        self.calls.append(f"stop {request.force}")
        self.become(pb.STOPPED)
        return pb.StatusReply(status=self.status)
