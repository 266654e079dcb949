"""What an agent does for a living: a server of somebody else, started, watched and ended.

Floor 3, I/O.   Owner of the child, the proxy and the questions.
Flow: start > [readiness] > pulse and metrics until the end > stop.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, Final

from aiohttp import web

from backends.errors import DependencyMissing, LoadFailed
from backends.external import counts, questions
from backends.external.asking import Asker
from backends.external.child import Child, Exit
from backends.external.derive import Pulse
from backends.external.proxy import Proxy
from backends.external.questions import Answered, Question, Silent
from backends.external.readiness import Readiness
from backends.external.settings import AgentSettings
from backends.external.standin import StandIn
from backends.probes import Probes
from backends.refusals import Refusals
from sluicegate.v1.states import State

log = logging.getLogger(__name__)

SCRAPE_S: Final = 1.0  # the gateway's poll interval
SCRAPE_DRAINING_S: Final = 0.2  # a drain waits for the answer
UNOFFERED_S: Final = 30.0  # until metrics are asked for again that were not there


class AgentWork:
    def __init__(
        self,
        settings: AgentSettings,
        standin: StandIn,
        environment: Mapping[str, str],
        rng: Random,
        sweep: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._standin = standin
        self._environment = {**environment, **settings.environment}
        self._sweep = sweep
        self._proxy = Proxy(standin, settings.base, rng)
        self._asker = Asker(settings.key)
        self._child: Child | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._news = asyncio.Event()  # the state has changed

    def app(self) -> web.Application:
        """Its own probes and metrics; everything else is the server's."""
        refusals = Refusals(lambda: self._standin.life.standing)
        made = web.Application(middlewares=[refusals.middleware])
        made.add_routes(Probes(self._standin).routes())
        made.router.add_route("*", "/{path:.*}", self._proxy.pass_on)
        return made

    async def load(self, held: ExitStack) -> None:
        """Raises: LoadFailed, DependencyMissing."""
        settings = self._settings
        self._refuse_stranger()
        child = self._child = Child(settings.command, self._environment, self._sweep)
        await child.start()
        readiness = Readiness(settings, self._asker, self._standin.life)
        reaching = asyncio.create_task(readiness.reach(), name="readiness")
        try:
            either: set[asyncio.Future[Any]] = {reaching, child.exited}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reaching.cancel()
            with suppress(asyncio.CancelledError, DependencyMissing, LoadFailed):
                await reaching
        if child.exited.done():
            raise _gone_early(child.exited.result())
        reaching.result()
        self._standin.gate.widen(settings.max_concurrency, settings.queue_max)
        held.callback(self._standin.life.watch(self._news.set))
        child.exited.add_done_callback(lambda _: self._exited(child.exited.result()))
        self._go(self._feel_pulse(), "pulse")
        if settings.metrics:
            self._go(self._scrape(), "metrics")

    def give_up(self) -> bool:
        return False

    async def close(self) -> bool:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._child is not None:
            await self._child.stop(self._settings.kill_after_s)
        await self._proxy.close()
        await self._asker.close()
        return True

    # --- inside -------------------------------------------------------------------------------

    def _refuse_stranger(self) -> None:
        """Whoever listens there already would be taken for our server.

        Raises: LoadFailed.
        """
        upstream = self._settings.upstream
        address = upstream.reached_at(upstream.port, "")
        with suppress(OSError), socket.create_connection((upstream.host, upstream.port), 1.0):
            raise LoadFailed(
                f"something listens on {address} already: end it, or have the server listen on a"
                " port of its own ({port} in its command)"
            )

    def _exited(self, end: Exit) -> None:
        if not self._closing:
            log.error("server exited", extra={"status": end.status, "last": end.last})
            self._fail(str(end))

    def _fail(self, reason: str) -> None:
        self._standin.life.fail(reason, self._now())

    async def _feel_pulse(self) -> None:
        """Ends when the server is given up."""
        settings, pulse = self._settings, Pulse()
        question = Question("GET", settings.health)
        while True:
            await asyncio.sleep(settings.health_interval_s)
            before = self._standin.movement
            reply = await self._asker.ask(question, settings.health_timeout_s)
            problem = questions.judge_health(reply, settings.health).problem
            slow = isinstance(reply, Silent) and reply.slow
            pulse = pulse.after(problem, slow, moved=self._standin.movement != before)
            if problem:
                log.warning("bad health", extra={"reason": problem, "failures": pulse.failures})
            if pulse.failures >= settings.health_failures:
                self._fail(f"{problem}; {pulse.failures} times in a row: see the server's log")
                return

    async def _scrape(self) -> None:
        settings, standin, offered = self._settings, self._standin, None
        question = Question("GET", settings.metrics)
        while True:
            reply = await self._asker.ask(question, settings.health_timeout_s)
            found = None
            if isinstance(reply, Answered) and reply.status == 200:
                found = counts.parse(reply.body.decode(errors="replace"))
            if found is None:
                standin.unscraped()
            else:
                standin.scraped(found, self._now())
            if offered is not (found is not None):
                offered = found is not None
                log.info("metrics", extra={"url": settings.metrics, "understood": offered})
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_next_s(offered)):
                    await self._news.wait()

    def _until_next_s(self, offered: bool) -> float:
        if not offered:
            return UNOFFERED_S
        draining = self._standin.life.standing.state is State.DRAINING
        return SCRAPE_DRAINING_S if draining else SCRAPE_S

    def _go(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.add(asyncio.create_task(coroutine, name=name))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _gone_early(end: Exit) -> LoadFailed | DependencyMissing:
    if end.is_useless:
        return DependencyMissing(f"{end}. Starting it again would change nothing")
    return LoadFailed(f"while it loaded, {end}")
