"""One life: ports > phases > READY > serve > drain > stop.

Floor 3, I/O.   Owner of every part of it; the event loop that runs `run`.
The ports are open and the state is told from the first moment; the model comes later. Whatever ends
a life ends it through here: an order, a signal, a load that failed, an engine beyond repair.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from backends.beat import Beat, registry
from backends.device import measure
from backends.engines.families import Family
from backends.errors import (
    EXIT_UNUSABLE,
    CannotListen,
    DependencyMissing,
    InstanceError,
    SnapshotInvalid,
)
from backends.facts import Facts
from backends.gate import Gate
from backends.http_api import HttpApi, HttpServer
from backends.life import Life
from backends.loading import Loading
from backends.service import GrpcServer
from backends.settings import Settings
from backends.status import Identity
from sluicegate.v1.states import Phase, State

log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1  # worth another try: out of memory, a device that was lost
ENGINE_CLOSE_S: Final = 5.0  # for the step that is under way


@dataclass(frozen=True, slots=True)
class Ending:
    """How the process should exit."""

    code: int
    abrupt: bool  # the model thread is still busy and cannot be told to stop


class Instance:
    def __init__(
        self,
        settings: Settings,
        families: Mapping[str, Family],
        rng: Random,
        wall_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._families = families
        self._rng = rng
        self._wall_s = wall_s
        self._gate = Gate()
        self.life = Life(settings.instance_id, self._gate)
        self.facts = Facts(
            Identity(
                settings.instance_id,
                f"{rng.getrandbits(64):016x}",
                settings.model,
                settings.version,
            ),
            self._gate,
            self.life,
            lambda: measure(settings.device_kind, settings.device),
        )
        self._news = asyncio.Event()
        self._terminated = False
        self._logged: tuple[State, Phase] | None = None

    def terminate(self) -> None:
        """SIGTERM: drain, then stop. Again: stop now."""
        grace_s = 0.0 if self._terminated else self._settings.grace_s
        self._terminated = True
        self.life.stop(grace_s, "SIGTERM", self._now())

    async def run(self) -> Ending:
        """The whole of it.

        Raises: CannotListen, with nothing begun.
        """
        self.life.begin(self._now())
        self.life.watch(self._changed)
        loading = Loading(self._settings, self._families, self.facts, self._rng)
        async with AsyncExitStack() as held:
            await self._open(held, loading)
            beat = await self._register(held)
            ending = await self._live(loading, held)
            if self.life.standing.state is State.STOPPED and beat is not None:
                # After an ERROR nobody is deregistered: the gateway goes on showing its reason.
                await beat.end(self.life.standing.reason)
            log.info("exiting", extra={"code": ending.code})
        return ending

    # --- ports --------------------------------------------------------------------------------

    async def _open(self, held: AsyncExitStack, loading: Loading) -> None:
        """Bind and listen. In the end `held` closes HTTP, then the engine, then gRPC: answers are
        cut by their connections, and the state is told to the last."""
        settings, facts = self._settings, self.facts
        api = HttpApi(facts, self._rng, self._wall_s)
        try:
            http = HttpServer(api, settings.http.host, settings.http.port)
            grpc = GrpcServer(
                facts, settings.grpc.host, settings.grpc.port, settings.grace_s, self._now
            )
        except OSError as exc:
            raise CannotListen(str(exc)) from exc
        facts.identity = facts.identity.at(
            settings.http.reached_at(http.port, settings.advertise),
            settings.grpc.reached_at(grpc.port, settings.advertise),
        )
        held.push_async_callback(grpc.close)
        await grpc.start()
        held.push_async_callback(_close_engine, loading)
        held.push_async_callback(http.close)
        await http.start()
        log.info(
            "listening",
            extra={"http": facts.identity.http_address, "grpc": facts.identity.grpc_address},
        )

    async def _register(self, held: AsyncExitStack) -> Beat | None:
        settings = self._settings
        if not settings.registry:
            return None
        stub = await held.enter_async_context(registry(settings.registry))
        beat = Beat(self.facts, stub, settings.launch_token, settings.grace_s, self._now, self._rng)
        beat.start()
        held.push_async_callback(beat.end, "")
        return beat

    # --- life ---------------------------------------------------------------------------------

    async def _live(self, loading: Loading, held: AsyncExitStack) -> Ending:
        """Returns when nothing is held any more and the last state is told."""
        load = asyncio.create_task(self._load(loading, held), name="load")
        await self._until(lambda: load.done() or self.life.is_stopping, load)
        if not load.done():
            loading.give_up()
            load.cancel()
            with suppress(asyncio.CancelledError):
                await load
            self.life.stopped("stopped while it was loading", self._now())
            return Ending(0, abrupt=True)
        code = load.result()
        await self._until(lambda: self.life.is_stopping or self._is_in_error())
        if self._is_in_error() and not self.life.is_stopping:
            linger_until = self._now() + self._settings.error_linger_s
            await self._until(lambda: self.life.is_stopping, until=linger_until)
            if not self.life.is_stopping:
                return Ending(code, abrupt=False)
        await self._empty()
        self.life.stopped(self._cut(), self._now())
        return Ending(0, abrupt=False)

    async def _load(self, loading: Loading, held: AsyncExitStack) -> int:
        """The code to exit with, should it end in ERROR."""
        files = held.enter_context(ExitStack())
        try:
            await loading.run(files)
        except InstanceError as exc:
            log.error("load failed", extra={"reason": str(exc)})
            self.life.fail(str(exc), self._now())
            unusable = isinstance(exc, SnapshotInvalid | DependencyMissing)
            return EXIT_UNUSABLE if unusable else EXIT_FAILED
        if not self.life.is_stopping:  # asked for in this very moment: then it was never READY
            self.life.verified(self._now())
        return EXIT_FAILED

    async def _empty(self) -> None:
        """Returns when nothing is in flight, or the grace of the stop is over."""
        self._gate.when_empty(self._news.set)
        while self._gate.in_flight and not self._is_late():
            await self._until(
                lambda: not self._gate.in_flight or self._is_late(), until=self.life.stop_at
            )

    def _cut(self) -> str:
        """Name what is lost; closing the port cuts it. The reason to stop with."""
        lost = self._gate.held()
        for request_id in lost:
            log.warning("request cut", extra={"request": request_id})
        return f"stopped; requests cut: {len(lost)}" if lost else "stopped; nothing was lost"

    # --- inside -------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _is_late(self) -> bool:
        return self.life.stop_at is not None and self._now() >= self.life.stop_at

    def _is_in_error(self) -> bool:
        return self.life.standing.state is State.ERROR

    async def _until(
        self,
        true: Callable[[], bool],
        task: asyncio.Task[int] | None = None,
        until: float | None = None,
    ) -> None:
        """Returns when `true`, looked at after each piece of news; or at loop time `until`."""
        if task is not None:
            task.add_done_callback(lambda _: self._news.set())
        try:
            async with asyncio.timeout_at(until):
                while not true():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return

    def _changed(self) -> None:
        self._news.set()
        standing = self.life.standing
        if self._logged != (standing.state, standing.phase):
            self._logged = (standing.state, standing.phase)
            log.info(
                "state changed",
                extra={
                    "state": standing.state.name,
                    "phase": standing.phase.name.lower(),
                    "reason": standing.reason,
                },
            )


async def _close_engine(loading: Loading) -> None:
    """Returns when the device is released, or the step under way took too long."""
    if loading.executor is None or loading.is_given_up:
        return
    try:
        async with asyncio.timeout(ENGINE_CLOSE_S):
            await loading.executor.close()
    except TimeoutError:
        log.warning("engine did not close", extra={"waited_s": ENGINE_CLOSE_S})
