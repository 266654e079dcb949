"""Makes the instance known to its gateway, and keeps it known.

Floor 3, I/O.
Flow: register > [beat > obey > wait for the interval or a change] > deregister.
A gateway that is away costs nothing but a retry: the instance serves on, and registers again when
it is told that nobody knows it. Orders come back with the beats and may be repeated for ever.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Final

import grpc

from backends.account import Account
from backends.life import OrderRefused, asked_or
from backends.lifecycle import Standing
from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from sluicegate.v1.states import State

if TYPE_CHECKING:  # the generated module has this name for type checkers only
    from sluicegate.v1.lifecycle_pb2_grpc import RegistryAsyncStub

log = logging.getLogger(__name__)

CALL_S: Final = 3.0  # a gateway answers from memory
RETRY_S: Final = 1.0  # jittered to twice that: a gateway that comes back is not stampeded
INTERVAL_MIN_S: Final = 0.05  # whatever the gateway answers
OPTIONS: Final = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),  # gRPC's own 120 s would outlast every TTL
    # keepalive_timeout_ms has no effect in grpcio 1.85; this one does: frozen peers show in 13 s.
    # Between beats too: a gateway whose machine vanished is connected to anew.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.ping_timeout_ms", 3000),
]


class GatewayAway(Exception):
    """No answer, or none that we can use; the message says which."""


@contextmanager
def calling() -> Iterator[None]:
    """The seam where gRPC's exceptions stop."""
    try:
        yield
    except grpc.aio.AioRpcError as exc:
        raise GatewayAway(f"{exc.code().name}: {exc.details()}") from exc


class Beat:
    def __init__(
        self,
        account: Account,
        stub: "RegistryAsyncStub",
        launch_token: str,
        default_grace_s: float,
        now: Callable[[], float],
        rng: Random,
    ) -> None:
        self._account = account
        self._stub = stub
        self._launch_token = launch_token
        self._lease_token = secrets.token_urlsafe(24)  # only we can speak for this incarnation
        self._default_grace_s = default_grace_s
        self._now = now
        self._rng = rng
        self._task: asyncio.Task[None] | None = None
        self._registered = False
        self._may_be_known = False  # also while the answer to a registration is awaited
        self._interval_s = RETRY_S
        self._trouble = ""  # the last one, so that each is logged once
        self._said = _news_of(account.life.standing)
        self._news = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="beat")

    async def end(self, goodbye: str) -> None:
        """Returns when nothing more is sent. The last word is the goodbye, or without one the
        status: an instance that fails should be remembered for its reason.

        Idempotent. The beats end first: one that came after a goodbye would register again.
        """
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if goodbye:
            await self._deregister(goodbye)
            return
        try:
            await self._once()
        except GatewayAway as exc:
            self._troubled(str(exc))

    async def _run(self) -> None:
        unwatch = self._account.life.watch(self._look)
        try:
            while True:
                try:
                    await self._once()
                except GatewayAway as exc:
                    self._troubled(str(exc))
                    await self._pause(RETRY_S * (1 + self._rng.random()))
                else:
                    await self._pause(self._interval_s)
        finally:
            unwatch()

    async def _deregister(self, reason: str) -> None:
        """Say goodbye; a gateway that does not hear it finds out by itself."""
        if not self._may_be_known:
            return
        identity = self._account.identity
        request = wire.DeregisterRequest(
            instance_id=identity.instance_id,
            incarnation=identity.incarnation,
            reason=reason,
            lease_token=self._lease_token,
        )
        try:
            with calling():
                await self._stub.Deregister(request, timeout=CALL_S)
        except GatewayAway as exc:
            log.warning("not deregistered", extra={"reason": str(exc)})

    async def _once(self) -> None:
        """One call. Raises: GatewayAway."""
        status = self._account.status()
        self._said = _news_of(self._account.life.standing)
        self._news.clear()
        if not self._registered:
            await self._register(status)
            return
        request = wire.HeartbeatRequest(status=status, lease_token=self._lease_token)
        with calling():
            reply = await self._stub.Heartbeat(request, timeout=CALL_S)
        self._trouble = ""
        if reply.interval_s > 0:
            self._interval_s = max(reply.interval_s, INTERVAL_MIN_S)
        self._obey(reply.order, asked_or(reply.grace_s, self._default_grace_s))

    async def _register(self, status: wire.InstanceStatus) -> None:
        request = wire.RegisterRequest(
            status=status, launch_token=self._launch_token, lease_token=self._lease_token
        )
        self._may_be_known = True
        try:
            with calling():
                reply = await self._stub.Register(request, timeout=CALL_S)
        except GatewayAway:
            self._may_be_known = False
            raise
        self._registered = True
        self._interval_s = max(reply.interval_s, INTERVAL_MIN_S)
        self._trouble = ""
        log.info("registered", extra={"interval_s": self._interval_s})

    def _obey(self, order: wire.Order.ValueType, grace_s: float) -> None:
        life, now = self._account.life, self._now()
        try:
            if order == wire.ORDER_DRAIN:
                life.drain(grace_s, "drain ordered by the gateway", now)
            elif order == wire.ORDER_RESUME:
                life.resume(now)
            elif order == wire.ORDER_STOP:
                life.stop(grace_s, "stop ordered by the gateway", now)
            elif order == wire.ORDER_REGISTER:
                self._registered = False
                self._news.set()  # now, not at the next interval
        except OrderRefused as exc:
            # Ordered for a state that has passed meanwhile: the next beat says so, and the gateway
            # decides again.
            log.info("order refused", extra={"order": order, "reason": str(exc)})

    def _look(self) -> None:
        if _news_of(self._account.life.standing) != self._said:
            self._news.set()

    async def _pause(self, seconds: float) -> None:
        """Returns after so long, or at once when there is something new to say."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    def _troubled(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("gateway does not answer", extra={"reason": trouble})


def _news_of(standing: Standing) -> tuple[State, int]:
    """What is worth a beat of its own: on the way to READY each phase, then every change."""
    if standing.state is State.INITIALIZING:
        return standing.state, standing.phase
    return standing.state, standing.sequence


@asynccontextmanager
async def registry(address: str) -> AsyncIterator["RegistryAsyncStub"]:
    """A connection to the gateway's Registry; it connects when it is first used."""
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        yield stubs.RegistryStub(channel)
