"""What an instance answers to probes and scrapes, whatever it runs.

Floor 3, I/O.
"""

from typing import Final

from aiohttp import web

from backends.account import Account
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
        return answer(200, described(self._account.life.standing))

    async def _readyz(self, _: web.Request) -> web.Response:
        return self._probe(State.READY)

    async def _startupz(self, _: web.Request) -> web.Response:
        return self._probe(State.READY, State.DRAINING)  # a draining instance did start

    def _probe(self, *passing: State) -> web.Response:
        standing = self._account.life.standing
        return answer(200 if standing.state in passing else 503, described(standing))

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=exposition(self._account), headers={"Content-Type": PROMETHEUS_TEXT}
        )
