"""The HTTP of an instance of ours: generating calls, models, probes, metrics, and every refusal.

Floor 3, I/O.
It answers from the first second of a life, long before there is a model: a port that is open says
nothing here, the state does.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from aiohttp import web

from backends import answers
from backends.errors import UnknownModel
from backends.facts import Facts, Loaded
from backends.generate import Generator
from backends.kserve import KServe
from backends.probes import Probes
from backends.refusals import Refusals, answer

BODY_MAX_BYTES: Final = 16 << 20  # several times the longest context as text


class HttpApi:
    def __init__(self, facts: Facts, rng: Random, wall_s: Callable[[], float]) -> None:
        self._facts = facts
        self._generator = Generator(facts, rng, wall_s)
        self._kserve = KServe(facts, rng)
        self._created = int(wall_s())

    def app(self) -> web.Application:
        refusals = Refusals(lambda: self._facts.life.standing)
        made = web.Application(client_max_size=BODY_MAX_BYTES, middlewares=[refusals.middleware])
        made.add_routes(
            [
                web.post("/v1/chat/completions", self._generator.chat),
                web.post("/v1/completions", self._generator.completions),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{model}", self._model),
                *Probes(self._facts).routes(),
                *self._kserve.routes(),
            ]
        )
        return made

    async def _models(self, _: web.Request) -> web.Response:
        return answer(200, {"object": "list", "data": [self._card()]})

    async def _model(self, http: web.Request) -> web.Response:
        name = http.match_info["model"]
        if name != self._facts.identity.model:
            raise UnknownModel(f"this instance serves {self._facts.identity.model}, not {name!r}")
        return answer(200, self._card())

    def _card(self) -> dict[str, object]:
        identity, loaded = self._facts.identity, self._facts.loaded
        context = loaded.max_seq_len if isinstance(loaded, Loaded) else None
        return answers.model_card(identity.model, identity.version, self._created, context)
