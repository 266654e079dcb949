"""The instance's gRPC: Lifecycle, and the health protocol for ordinary tools.

Floor 3, I/O.
Every order goes through `Life`; what it refuses is FAILED_PRECONDITION with its sentence. A watch
sends the status as it is when it gets to send: changes that come faster than a reader takes them
are merged, the last one is never lost.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, NoReturn

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from backends.account import Account
from backends.life import Life, OrderRefused, asked_or
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from sluicegate.v1.states import State

WATCH_INTERVAL_S: Final = 1.0  # without a change; the gateway's own poll interval
WATCH_INTERVAL_MIN_S: Final = 0.05  # a reader cannot make us spin
CLOSE_S: Final = 1.0  # for watches to end by themselves
OPTIONS: Final = [
    ("grpc.so_reuseport", 0),  # a taken port is an error, not a second listener
    # Gateways ping to notice a frozen peer; a server that does not permit it hangs up on them.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.http2.max_ping_strikes", 0),
    # And a watcher that froze must not hold its stream for ever.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 3000),
]

Context = grpc.aio.ServicerContext[Any, Any]
Now = Callable[[], float]


async def follow(life: Life, interval_s: float) -> AsyncGenerator[None, None]:
    """Yields at once, then after each change, and after `interval_s` without one.

    Ends after it has yielded for STOPPED.
    """
    changed = asyncio.Event()
    unwatch = life.watch(changed.set)
    try:
        while True:
            changed.clear()
            yield
            if life.standing.state is State.STOPPED and not changed.is_set():
                return
            try:
                async with asyncio.timeout(interval_s):
                    await changed.wait()
            except TimeoutError:
                continue
    finally:
        unwatch()


class LifecycleService(stubs.LifecycleServicer):
    def __init__(self, account: Account, default_grace_s: float, now: Now) -> None:
        self._account = account
        self._default_grace_s = default_grace_s
        self._now = now

    async def GetStatus(  # noqa: N802 - named by the protocol
        self, request: wire.GetStatusRequest, context: Context
    ) -> wire.InstanceStatus:
        return self._account.status()

    async def WatchStatus(  # noqa: N802
        self, request: wire.WatchStatusRequest, context: Context
    ) -> AsyncIterator[wire.InstanceStatus]:
        asked_s = request.interval_ms / 1000
        interval_s = max(asked_s, WATCH_INTERVAL_MIN_S) if asked_s else WATCH_INTERVAL_S
        async with aclosing(follow(self._account.life, interval_s)) as moments:
            async for _ in moments:
                yield self._account.status()

    async def Drain(  # noqa: N802
        self, request: wire.DrainRequest, context: Context
    ) -> wire.DrainReply:
        reason = request.reason or "drain asked for"
        grace_s = asked_or(request.grace_s, self._default_grace_s)
        try:
            drained = self._account.life.drain(grace_s, reason, self._now())
        except OrderRefused as exc:
            await _refuse(context, exc)
        return wire.DrainReply(
            status=self._account.status(), already=drained.already, remaining_s=drained.remaining_s
        )

    async def Resume(  # noqa: N802
        self, request: wire.ResumeRequest, context: Context
    ) -> wire.StatusReply:
        try:
            self._account.life.resume(self._now())
        except OrderRefused as exc:
            await _refuse(context, exc)
        return wire.StatusReply(status=self._account.status())

    async def Stop(  # noqa: N802
        self, request: wire.StopRequest, context: Context
    ) -> wire.StatusReply:
        grace_s = 0.0 if request.force else asked_or(request.grace_s, self._default_grace_s)
        self._account.life.stop(grace_s, "stop asked for", self._now())
        return wire.StatusReply(status=self._account.status())


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # no stubs for it
    """SERVING is READY; for the whole server and for Lifecycle by name."""

    def __init__(self, account: Account) -> None:
        self._life = account.life

    async def Check(self, request: Any, context: Context) -> Any:  # noqa: N802
        answer = self._answer(request.service)
        if answer.status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return answer

    async def Watch(self, request: Any, context: Context) -> AsyncIterator[Any]:  # noqa: N802
        last = None
        # An interval longer than any life: here only a change is news.
        async with aclosing(follow(self._life, interval_s=86_400.0)) as moments:
            async for _ in moments:
                answer = self._answer(request.service)
                if answer.status != last:
                    last = answer.status
                    yield answer

    def _answer(self, service: str) -> Any:
        response = health_pb2.HealthCheckResponse
        if service not in ("", "sluicegate.v1.Lifecycle"):
            return response(status=response.SERVICE_UNKNOWN)
        ready = self._life.standing.state is State.READY
        return response(status=response.SERVING if ready else response.NOT_SERVING)


class GrpcServer:
    """The listening port and what is behind it. Bound when made, so the address is known."""

    def __init__(
        self, account: Account, host: str, port: int, default_grace_s: float, now: Now
    ) -> None:
        """Raises: OSError if the address cannot be bound."""
        self._server = grpc.aio.server(options=OPTIONS)
        service = LifecycleService(account, default_grace_s, now)
        stubs.add_LifecycleServicer_to_server(service, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(HealthService(account), self._server)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port: int = self._server.add_insecure_port(address)
        except RuntimeError as exc:  # how gRPC says it
            raise OSError(f"cannot listen on {address}: {exc}") from exc

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        """Returns when the port is closed; watches have had CLOSE_S to send the last status."""
        await self._server.stop(CLOSE_S)


async def _refuse(context: Context, exc: OrderRefused) -> NoReturn:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(exc))
    raise AssertionError("abort always raises")
