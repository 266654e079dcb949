"""What an instance answers to probes and scrapes, whatever it runs.

Floor 3, I/O.
200 passed, 503 not yet (or no longer, on purpose), 500 failed; the body says `failed` too, because
to a kubelet every code from 400 on is one. A failed instance stays alive while its reason is to be
heard: its own exit code says more than that of a process that was killed.
"""

import asyncio
from typing import Final

from aiohttp import web

from backends.account import Account
from backends.lifecycle import Standing
from backends.metrics import exposition
from backends.refusals import answer, described
from sluicegate.v1.states import State

PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


class Probes:
    def __init__(self, account: Account) -> None:
        self._account = account

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/livez", self._livez),
            web.get("/readyz", self._readyz),
            web.get("/startupz", self._startupz),
            web.get("/metrics", self._metrics),
        ]

    async def _livez(self, _: web.Request) -> web.Response:
        life = self._account.life
        # It should have ended by itself: then whoever asks has to end it.
        overdue = life.overdue_at is not None and _now() > life.overdue_at
        return _told(life.standing, 500 if overdue else 200)

    async def _readyz(self, _: web.Request) -> web.Response:
        return self._probe(State.READY)

    async def _startupz(self, _: web.Request) -> web.Response:
        return self._probe(State.READY, State.DRAINING)  # a draining instance did start

    def _probe(self, *passing: State) -> web.Response:
        standing = self._account.life.standing
        if standing.state in passing:
            return _told(standing, 200)
        return _told(standing, 500 if standing.state is State.ERROR else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=exposition(self._account), headers={"Content-Type": PROMETHEUS_TEXT}
        )


def _now() -> float:
    return asyncio.get_running_loop().time()


def _told(standing: Standing, status: int) -> web.Response:
    return answer(status, {**described(standing), "failed": standing.state is State.ERROR})
