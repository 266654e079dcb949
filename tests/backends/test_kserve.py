"""The KServe v2 protocol over real connections, around a graph without MindSpore."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import numpy as np
import orjson
import pytest
from aiohttp.test_utils import TestClient
from numpy.typing import NDArray

from backends.http_api import HttpApi
from backends.tensors import JSON_LENGTH
from sluicegate.v1.states import Phase
from tests.backends.fakes import Gate
from tests.backends.graphs import GraphRig, ScriptedGraph, ready_graph
from tests.backends.rig import ready_rig

AiohttpClient = Callable[..., Awaitable[TestClient[Any, Any]]]
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
INFER = "/v2/models/g/infer"


def app(made: Any) -> Any:
    return HttpApi(made.facts, Random(7), lambda: 1_700_000_000.5).app()


@pytest.fixture
async def ready() -> AsyncIterator[GraphRig]:
    async with ready_graph() as made:
        yield made


@pytest.mark.parametrize("path", [INFER, "/v2/models/g/versions/1/infer"])
async def test_json_in_json_out(aiohttp_client: AiohttpClient, ready: GraphRig, path: str) -> None:
    client = await aiohttp_client(app(ready))
    response = await client.post(path, json={**BODY, "id": "mine"})
    assert (response.status, response.content_type) == (200, "application/json")
    assert await response.json() == {
        "id": "mine",
        "model_name": "g",
        "model_version": "1",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [2.0, 4.0, 6.0]},
            {"name": "n", "datatype": "INT64", "shape": [1], "data": [1]},
        ],
    }
    assert ready.gate.in_flight == 0


async def test_bytes_in_bytes_out(aiohttp_client: AiohttpClient, ready: GraphRig) -> None:
    client = await aiohttp_client(app(ready))
    document = {
        "inputs": [
            {
                "name": "x",
                "datatype": "FP32",
                "shape": [1, 3],
                "parameters": {"binary_data_size": 12},
            }
        ],
        "outputs": [{"name": "n"}, {"name": "y", "parameters": {"binary_data": True}}],
    }
    text = orjson.dumps(document)
    data = text + np.array([1, 2, 3], "<f4").tobytes()
    response = await client.post(INFER, data=data, headers={JSON_LENGTH: str(len(text))})
    assert (response.status, response.content_type) == (200, "application/octet-stream")
    body, length = await response.read(), int(response.headers[JSON_LENGTH])
    outputs = orjson.loads(body[:length])["outputs"]
    assert outputs[0] == {"name": "n", "datatype": "INT64", "shape": [1], "data": [1]}
    assert outputs[1]["parameters"] == {"binary_data_size": 12}
    assert np.frombuffer(body[length:], "<f4").tolist() == [2, 4, 6]


async def test_metadata_is_the_signature(aiohttp_client: AiohttpClient, ready: GraphRig) -> None:
    client = await aiohttp_client(app(ready))
    server = await (await client.get("/v2")).json()
    assert (server["name"], server["extensions"]) == ("sluicegate", ["binary_tensor_data"])
    for path in ("/v2/models/g", "/v2/models/g/versions/1"):
        assert await (await client.get(path)).json() == {
            "name": "g",
            "versions": ["1"],
            "platform": "mindspore_mindir",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
            "outputs": [
                {"name": "y", "datatype": "FP32", "shape": [-1, 3]},
                {"name": "n", "datatype": "INT64", "shape": [-1]},
            ],
        }


async def test_a_mistake_is_a_400_with_its_path_and_runs_nothing(
    aiohttp_client: AiohttpClient, ready: GraphRig
) -> None:
    client = await aiohttp_client(app(ready))
    wrong = {"inputs": [{**BODY["inputs"][0], "datatype": "INT8"}]}
    response = await client.post(INFER, json=wrong)
    assert response.status == 400
    assert await response.json() == {"error": "inputs[0].datatype: must be FP32, not 'INT8'"}
    assert (ready.engine.runs, ready.gate.in_flight) == ([], 0)


@pytest.mark.parametrize(
    "path", ["/v2/models/h", "/v2/models/g/versions/2", "/v2/models/h/ready", "/v2/nothing"]
)
async def test_what_is_not_served_here_is_a_404(
    aiohttp_client: AiohttpClient, ready: GraphRig, path: str
) -> None:
    client = await aiohttp_client(app(ready))
    response = await client.get(path)
    assert response.status == 404
    assert isinstance((await response.json())["error"], str)


async def test_health_is_liveness_from_the_start_and_readiness_by_the_state(
    aiohttp_client: AiohttpClient,
) -> None:
    made = GraphRig(ScriptedGraph())
    client = await aiohttp_client(app(made))
    probes = ("/v2/health/ready", "/v2/models/g/ready", "/v2/models/g/versions/1/ready")

    async def found() -> list[tuple[int, bool]]:
        answers = [await client.get(path) for path in probes]
        return [(one.status, (await one.json())["ready"]) for one in answers]

    assert (await client.get("/v2/health/live")).status == 200
    assert await found() == [(503, False)] * 3
    await made.ready()
    assert await found() == [(200, True)] * 3
    made.life.drain(30.0, "asked", 0.0)
    assert await found() == [(503, False)] * 3
    await made.batcher.close()


async def test_while_loading_it_refuses_with_state_and_progress(
    aiohttp_client: AiohttpClient,
) -> None:
    made = GraphRig(ScriptedGraph())
    made.life.progress(Phase.COMPILING, 0.25, "1 of 4 batch sizes compiled", 0.0)
    client = await aiohttp_client(app(made))
    for response in (await client.post(INFER, json=BODY), await client.get("/v2/models/g")):
        assert response.status == 503
    document = await (await client.post(INFER, json=BODY)).json()
    assert isinstance(document.pop("error"), str)
    assert document == {
        "state": "INITIALIZING",
        "phase": "compiling",
        "progress": 55,
        "reason": "1 of 4 batch sizes compiled",
    }
    assert made.gate.rejected_total == 2


async def test_a_drain_finishes_what_runs_and_refuses_what_comes(
    aiohttp_client: AiohttpClient,
) -> None:
    steps = Gate()
    async with ready_graph(gate=steps) as made:
        client = await aiohttp_client(app(made))
        held = asyncio.create_task(client.post(INFER, json=BODY))
        await asyncio.to_thread(steps.await_arrivals, 1)
        made.life.drain(30.0, "asked", 0.0)
        refused = await client.post(INFER, json=BODY)
        assert (refused.status, refused.headers["x-sluicegate-refused"]) == (503, "draining")
        assert made.facts.status().active_requests == 1
        steps.open()
        assert (await held).status == 200
        assert made.facts.status().active_requests == 0


async def test_beyond_its_room_it_refuses_untouched(aiohttp_client: AiohttpClient) -> None:
    steps = Gate()
    async with ready_graph(gate=steps) as made:
        client = await aiohttp_client(app(made))
        held = [asyncio.create_task(client.post(INFER, json=BODY)) for _ in range(8)]
        await made.gate.holds(8)  # a batch of 4, and 4 that wait
        refused = await client.post(INFER, json=BODY)
        assert (refused.status, refused.headers["x-sluicegate-refused"]) == (503, "full")
        steps.open()
        assert [(await one).status for one in held] == [200] * 8


async def test_a_client_that_leaves_takes_its_request_out_of_the_queue(
    aiohttp_client: AiohttpClient,
) -> None:
    steps = Gate()
    async with ready_graph(gate=steps) as made:
        client = await aiohttp_client(app(made))
        first = asyncio.create_task(client.post(INFER, json=BODY))
        await asyncio.to_thread(steps.await_arrivals, 1)
        leaves = asyncio.create_task(client.post(INFER, json=BODY))
        await made.gate.holds(2)
        leaves.cancel()
        await made.gate.holds(1)
        assert made.facts.readings().queue_depth == 0
        steps.open()
        assert (await first).status == 200
        assert made.engine.runs == [1]


async def test_the_status_tells_utilisation_and_what_a_run_can_hold(ready: GraphRig) -> None:
    await ready.batcher.infer({"x": np.zeros((4, 3), np.float32)})
    status = ready.facts.status()
    assert (status.max_concurrency, status.progress_total, status.served_total) == (4, 1, 1)
    assert status.batch_utilisation_ratio > 0
    assert status.device.memory_used_bytes == 1000


async def test_a_graph_beyond_repair_is_an_instance_in_error(
    aiohttp_client: AiohttpClient, ready: GraphRig
) -> None:
    def broken(x: NDArray[Any]) -> None:
        raise RuntimeError("device lost")

    ready.engine.fault = broken
    client = await aiohttp_client(app(ready))
    for state in ("READY", "READY", "ERROR"):
        response = await client.post(INFER, json=BODY)
        assert response.status == 500
        assert "device lost" in (await response.json())["error"]
        assert ready.life.standing.state.name == state
    assert (await client.post(INFER, json=BODY)).status == 503


async def test_whoever_asks_a_graph_for_text_is_told_where_to_go(
    aiohttp_client: AiohttpClient, ready: GraphRig
) -> None:
    client = await aiohttp_client(app(ready))
    response = await client.post("/v1/completions", json={"model": "g", "prompt": "hi"})
    assert response.status == 400
    message = (await response.json())["error"]["message"]
    assert message == "g takes tensors, not text: POST /v2/models/g/infer"
    assert (await client.get("/v1/models/g")).status == 200


async def test_whoever_asks_a_text_model_for_tensors_is_told_where_to_go(
    aiohttp_client: AiohttpClient,
) -> None:
    async with ready_rig() as made:
        client = await aiohttp_client(app(made))
        response = await client.post("/v2/models/m/infer", json=BODY)
        assert response.status == 400
        assert "m takes text, not tensors" in (await response.json())["error"]
        assert (await client.get("/v2/health/ready")).status == 200
