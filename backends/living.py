"""One life: ports > phases > READY > serve > drain > stop, whatever it is that serves.

Floor 3, I/O.   Owner of every part of it; the event loop that runs `run`.
The ports are open and the state is told from the first moment; what answers requests comes later.
Whatever ends a life ends it through here: an order, a signal, a load that failed, work that is
beyond repair.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final, Protocol

from aiohttp import web

from backends.account import Account
from backends.beat import Beat, registry
from backends.errors import (
    EXIT_UNUSABLE,
    CannotListen,
    DependencyMissing,
    InstanceError,
    SnapshotInvalid,
)
from backends.http_server import HttpServer
from backends.modelthread import sentence
from backends.service import GrpcServer
from backends.settings import Terms
from sluicegate.v1.states import Phase, State

log = logging.getLogger(__name__)

END_S: Final = 10.0  # after an ERROR was shown: for work, connections and process to end
EXIT_FAILED: Final = 1  # worth another try: out of memory, a device that was lost


@dataclass(frozen=True, slots=True)
class Ending:
    """How the process should exit."""

    code: int
    abrupt: bool  # something is still busy in it and cannot be told to stop


class Work(Protocol):
    """What an instance does for a living."""

    def app(self) -> web.Application:
        """What its HTTP port answers."""

    async def load(self, held: ExitStack) -> None:
        """Returns when requests can be answered; `held` is closed when the life is over.

        Raises: InstanceError.
        """

    def give_up(self) -> bool:
        """The load is to be cancelled; whether a part of it goes on all the same."""

    async def close(self) -> bool:
        """Whether the device is released; if not, that took too long."""


class Living:
    """One instance of any kind, from its ports to its end."""

    def __init__(self, terms: Terms, account: Account, work: Work, rng: Random) -> None:
        self._terms = terms
        self._account = account
        self._life = account.life
        self._gate = account.gate
        self._work = work
        self._rng = rng
        self._news = asyncio.Event()
        self._terminated = False
        self._released = True
        self._logged: tuple[State, Phase] | None = None

    def terminate(self) -> None:
        """SIGTERM: drain, then stop. Again: stop now."""
        grace_s = 0.0 if self._terminated else self._terms.grace_s
        self._terminated = True
        self._life.stop(grace_s, "SIGTERM", self._now())

    async def run(self) -> Ending:
        """The whole of it.

        Raises: CannotListen, with nothing begun.
        """
        self._life.begin(self._now())
        self._life.watch(self._changed)
        async with AsyncExitStack() as held:
            await self._open(held)
            beat = await self._register(held)
            ending = await self._live(held)
            if self._life.standing.state is State.STOPPED and beat is not None:
                # After an ERROR nobody is deregistered: the gateway goes on showing its reason.
                await beat.end(self._life.standing.reason)
            log.info("exiting", extra={"code": ending.code})
        return ending if self._released else replace(ending, abrupt=True)

    # --- ports --------------------------------------------------------------------------------

    async def _open(self, held: AsyncExitStack) -> None:
        """Bind and listen. In the end `held` closes HTTP, then the work, then gRPC: answers are
        cut by their connections, and the state is told to the last."""
        terms, account = self._terms, self._account
        try:
            http = HttpServer(self._work.app(), terms.http.host, terms.http.port)
            grpc = GrpcServer(account, terms.grpc.host, terms.grpc.port, terms.grace_s, self._now)
        except OSError as exc:
            raise CannotListen(str(exc)) from exc
        account.identity = account.identity.at(
            terms.http.reached_at(http.port, terms.advertise),
            terms.grpc.reached_at(grpc.port, terms.advertise),
        )
        held.push_async_callback(grpc.close)
        await grpc.start()
        held.push_async_callback(self._release)
        held.push_async_callback(http.close)
        await http.start()
        log.info(
            "listening",
            extra={"http": account.identity.http_address, "grpc": account.identity.grpc_address},
        )

    async def _release(self) -> None:
        self._released = await self._work.close()

    async def _register(self, held: AsyncExitStack) -> Beat | None:
        terms = self._terms
        if not terms.registry:
            return None
        stub = await held.enter_async_context(registry(terms.registry))
        beat = Beat(self._account, stub, terms.launch_token, terms.grace_s, self._now, self._rng)
        beat.start()
        held.push_async_callback(beat.end, "")
        return beat

    # --- life ---------------------------------------------------------------------------------

    async def _live(self, held: AsyncExitStack) -> Ending:
        """Returns when nothing is held any more and the last state is told."""
        load = asyncio.create_task(self._load(held), name="load")
        await self._until(lambda: load.done() or self._life.is_stopping, load)
        if not load.done():
            goes_on = self._work.give_up()
            load.cancel()
            with suppress(asyncio.CancelledError):
                await load
            self._life.stopped("stopped while it was loading", self._now())
            return Ending(0, abrupt=goes_on)
        code = load.result()
        await self._until(lambda: self._life.is_stopping or self._is_in_error())
        if self._is_in_error() and not self._life.is_stopping:
            linger_until = self._now() + self._terms.error_linger_s
            self._life.overdue_at = linger_until + END_S
            await self._until(lambda: self._life.is_stopping, until=linger_until)
            if not self._life.is_stopping:
                return Ending(code, abrupt=False)
        await self._empty()
        self._life.stopped(self._cut(), self._now())
        return Ending(0, abrupt=False)

    async def _load(self, held: AsyncExitStack) -> int:
        """The code to exit with, should it end in ERROR."""
        files = held.enter_context(ExitStack())
        try:
            await self._work.load(files)
        except (InstanceError, OSError, MemoryError) as exc:
            # What a disk or the system refuses has no sentence of ours; its own has to do.
            reason = str(exc) if isinstance(exc, InstanceError) else sentence(exc)
            log.error("load failed", extra={"reason": reason})
            self._life.fail(reason, self._now())
            unusable = isinstance(exc, SnapshotInvalid | DependencyMissing)
            return EXIT_UNUSABLE if unusable else EXIT_FAILED
        if not self._life.is_stopping:  # asked for in this very moment: then it was never READY
            warmed = self._account.warmed
            self._life.verified(self._now(), "" if warmed is None else str(warmed))
        return EXIT_FAILED

    async def _empty(self) -> None:
        """Returns when nothing is in flight, or the grace of the stop is over."""
        self._gate.when_empty(self._news.set)
        while self._gate.in_flight and not self._is_late():
            until = self._life.stop_at
            await self._until(partial(self._is_empty_or_moved, until), until=until)

    def _is_empty_or_moved(self, until: float | None) -> bool:
        """There is nothing to wait for, or another stop has hastened the end of the grace."""
        return not self._gate.in_flight or self._life.stop_at != until

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
        return self._life.stop_at is not None and self._now() >= self._life.stop_at

    def _is_in_error(self) -> bool:
        return self._life.standing.state is State.ERROR

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
        standing = self._life.standing
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
