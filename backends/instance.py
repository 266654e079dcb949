"""An instance that serves a snapshot with an engine of ours.

Floor 3, I/O.   Owner of the engine; the event loop that runs `run`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from random import Random
from typing import Final

from aiohttp import web

from backends.device import measure
from backends.engines import runtime
from backends.engines.families import Family
from backends.facts import Facts
from backends.gate import Gate
from backends.http_api import HttpApi
from backends.life import Life
from backends.living import Ending, Living
from backends.loading import Loading
from backends.settings import Settings
from backends.status import Identity

log = logging.getLogger(__name__)

ENGINE_CLOSE_S: Final = 5.0  # for the step that is under way


class Instance:
    def __init__(
        self,
        settings: Settings,
        families: Mapping[str, Family],
        rng: Random,
        wall_s: Callable[[], float],
    ) -> None:
        gate = Gate()
        self.life = Life(settings.instance_id, gate)
        self.facts = Facts(
            Identity(
                settings.instance_id,
                f"{rng.getrandbits(64):016x}",
                settings.model,
                settings.version,
            ),
            gate,
            self.life,
            lambda: measure(settings.device_kind, settings.device),
        )
        self.facts.graphs = runtime.compiled
        self._work = EngineWork(settings, families, self.facts, rng, wall_s)
        self._living = Living(settings, self.facts, self._work, rng)
        self.terminate = self._living.terminate

    async def run(self) -> Ending:
        """The whole life.

        Raises: CannotListen, with nothing begun.
        """
        return await self._living.run()


class EngineWork:
    """`Work` of an instance with an engine: load it, answer with it, release the device."""

    def __init__(
        self,
        settings: Settings,
        families: Mapping[str, Family],
        facts: Facts,
        rng: Random,
        wall_s: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._families = families
        self._facts = facts
        self._rng = rng
        self._wall_s = wall_s
        self._loading: Loading | None = None

    def app(self) -> web.Application:
        return HttpApi(self._facts, self._rng, self._wall_s).app()

    async def load(self, held: ExitStack) -> None:
        self._loading = Loading(self._settings, self._families, self._facts, self._rng)
        await self._loading.run(held)

    def give_up(self) -> bool:
        if self._loading is not None:
            self._loading.give_up()
        return True  # a compile cannot be stopped

    async def close(self) -> bool:
        loading = self._loading
        if loading is None or loading.executor is None or loading.is_given_up:
            return True
        try:
            async with asyncio.timeout(ENGINE_CLOSE_S):
                await loading.executor.close()
        except TimeoutError:
            log.warning("engine did not close", extra={"waited_s": ENGINE_CLOSE_S})
            return False
        return True
