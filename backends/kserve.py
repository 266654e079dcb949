"""The KServe v2 protocol over HTTP: health, metadata, and tensors in and out.

Floor 3, I/O.
Flow: body > admit > parse > [batcher] > render > last byte > give back.
A request is held from its admission to its last byte, as a generating one is; its handler is
cancelled when the client goes away, and what waits for a run then gives up its place.
"""

import asyncio
from importlib.metadata import version
from random import Random
from typing import Final

import orjson
from aiohttp import web

from backends.errors import EngineFailed, UnknownModel
from backends.facts import Facts, LoadedGraph
from backends.signature import TensorSpec
from backends.tensors import JSON_LENGTH, parse, render
from sluicegate.v1.states import State

REQUEST_ID_MAX: Final = 128  # characters of a client's own that are logged
SERVER: Final = {"name": "sluicegate", "extensions": ["binary_tensor_data"]}
MODEL: Final = "/v2/models/{model}"
VERSION: Final = "/v2/models/{model}/versions/{version}"


class KServe:
    def __init__(self, facts: Facts, rng: Random) -> None:
        self._facts = facts
        self._rng = rng

    def routes(self) -> list[web.RouteDef]:
        made = [
            web.get("/v2", self._server),
            web.get("/v2/health/live", self._live),
            web.get("/v2/health/ready", self._ready),
        ]
        for path in (MODEL, VERSION):
            made += [
                web.get(path, self._model),
                web.get(f"{path}/ready", self._ready),
                web.post(f"{path}/infer", self._infer),
            ]
        return made

    # --- what can be asked of it --------------------------------------------------------------

    async def _server(self, _: web.Request) -> web.Response:
        return _document(200, {**SERVER, "version": version("sluicegate")})

    async def _live(self, _: web.Request) -> web.Response:
        return _document(200, {"live": True})

    async def _ready(self, http: web.Request) -> web.Response:
        self._check_named(http)
        ready = self._facts.life.standing.state is State.READY
        return _document(200 if ready else 503, {"ready": ready})

    async def _model(self, http: web.Request) -> web.Response:
        """Raises: NotReady until the model is known."""
        self._check_named(http)
        identity, signature = self._facts.identity, self._facts.graph().signature
        return _document(
            200,
            {
                "name": identity.model,
                "versions": [identity.version],
                "platform": "mindspore_mindir",
                "inputs": [_metadata(spec) for spec in signature.inputs],
                "outputs": [_metadata(spec) for spec in signature.outputs],
            },
        )

    def _check_named(self, http: web.Request) -> None:
        """Raises: UnknownModel, for another model or version than the one served here."""
        identity, named = self._facts.identity, http.match_info
        if named.get("model", identity.model) != identity.model:
            raise UnknownModel(f"this instance serves {identity.model}, not {named['model']!r}")
        if named.get("version", identity.version) != identity.version:
            raise UnknownModel(
                f"this instance serves version {identity.version} of {identity.model}, "
                f"not {named['version']!r}"
            )

    # --- inference ----------------------------------------------------------------------------

    async def _infer(self, http: web.Request) -> web.StreamResponse:
        """Raises: InstanceError, with nothing sent and nothing held."""
        self._check_named(http)
        body = await http.read()
        request_id = http.headers.get("x-request-id") or f"infer-{self._rng.getrandbits(96):024x}"
        admitted = self._facts.gate.admit(self._facts.life.standing, request_id[:REQUEST_ID_MAX])
        try:
            return await self._run(http, self._facts.graph(), body)
        except EngineFailed:
            self._facts.blame_engine(asyncio.get_running_loop().time())
            raise
        finally:
            admitted.give_back()

    async def _run(self, http: web.Request, graph: LoadedGraph, body: bytes) -> web.StreamResponse:
        identity, signature = self._facts.identity, graph.signature
        inference = parse(body, http.headers.get(JSON_LENGTH), signature)
        outputs = await graph.executor.infer(inference.inputs)
        text, json_length = render(identity.model, identity.version, inference, outputs, signature)
        response = web.Response(body=text, content_type="application/json")
        if json_length is not None:
            response.content_type = "application/octet-stream"
            response.headers[JSON_LENGTH] = str(json_length)
        # Sent here and not by the server after we return: the request is held until its last byte.
        await response.prepare(http)
        await response.write_eof()
        return response


def _metadata(spec: TensorSpec) -> dict[str, object]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _document(status: int, document: dict[str, object]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), content_type="application/json")
