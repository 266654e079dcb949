"""Probes, models, metrics and every refusal, over real connections."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient

from backends.http_api import BODY_MAX_BYTES, HttpApi
from backends.http_server import HttpServer
from sluicegate.v1.states import Phase
from tests.backends.fakes import Gate, ScriptedEngine, successor
from tests.backends.rig import Rig, ready_rig, rig

AiohttpClient = Callable[..., Awaitable[TestClient[Any, Any]]]
HI = {"model": "m", "prompt": "hi", "max_tokens": 3}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


def api(made: Rig) -> HttpApi:
    return HttpApi(made.facts, Random(7), lambda: 1_700_000_000.5)


@pytest.fixture
async def ready() -> AsyncIterator[Rig]:
    async with ready_rig() as made:
        yield made


async def error_of(response: ClientResponse) -> dict[str, Any]:
    document = await response.json()
    assert set(document) == {"error"}
    error = document["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    assert isinstance(error, dict)
    return error


async def test_before_ready_probes_say_how_far_it_is(aiohttp_client: AiohttpClient) -> None:
    made = rig()
    made.life.progress(Phase.COMPILING, 0.25, "graph 1 of 3", 0.0)
    client = await aiohttp_client(api(made).app())
    for path in ("/readyz", "/startupz"):
        response = await client.get(path)
        assert response.status == 503
        assert await response.json() == {
            "state": "INITIALIZING",
            "phase": "compiling",
            "progress": 55,
            "reason": "graph 1 of 3",
            "failed": False,
        }
    assert (await client.get("/livez")).status == 200


async def test_an_instance_that_failed_can_be_told_from_one_that_starts(
    aiohttp_client: AiohttpClient,
) -> None:
    made = rig()
    made.life.progress(Phase.LOADING_MODEL, 0.5, "", 0.0)
    client = await aiohttp_client(api(made).app())
    made.life.fail("out of memory", 0.0)
    for path in ("/readyz", "/startupz"):
        response = await client.get(path)
        assert response.status == 500
        assert await response.json() == {
            "state": "ERROR",
            "phase": "loading_model",
            "progress": 25,
            "reason": "out of memory",
            "failed": True,
        }


@pytest.mark.parametrize(("overdue_in_s", "status"), [(3600.0, 200), (-1.0, 500)])
async def test_a_failed_instance_lives_until_it_should_have_ended(
    aiohttp_client: AiohttpClient, overdue_in_s: float, status: int
) -> None:
    made = rig()
    client = await aiohttp_client(api(made).app())
    made.life.fail("out of memory", 0.0)
    assert (await client.get("/livez")).status == 200
    made.life.overdue_at = asyncio.get_running_loop().time() + overdue_in_s
    response = await client.get("/livez")
    assert response.status == status
    assert (await response.json())["failed"] is True


async def test_a_draining_instance_has_started_but_is_not_ready(
    aiohttp_client: AiohttpClient, ready: Rig
) -> None:
    client = await aiohttp_client(api(ready).app())
    assert [(await client.get(path)).status for path in ("/readyz", "/startupz")] == [200, 200]
    ready.life.drain(30.0, "asked", 0.0)
    assert [(await client.get(path)).status for path in ("/readyz", "/startupz")] == [503, 200]


async def test_models_are_the_one_it_serves(aiohttp_client: AiohttpClient, ready: Rig) -> None:
    client = await aiohttp_client(api(ready).app())
    listed = await (await client.get("/v1/models")).json()
    assert [(card["id"], card["version"]) for card in listed["data"]] == [("m", "1")]
    assert await (await client.get("/v1/models/m")).json() == listed["data"][0]
    assert listed["data"][0]["max_model_len"] == ready.engine.max_seq_len
    missing = await client.get("/v1/models/other")
    assert (missing.status, (await error_of(missing))["code"]) == (404, "model_not_found")


async def test_while_loading_a_request_hears_state_phase_and_progress(
    aiohttp_client: AiohttpClient,
) -> None:
    made = rig()
    made.life.progress(Phase.LOADING_MODEL, 0.5, "reading weights", 0.0)
    client = await aiohttp_client(api(made).app())
    response = await client.post("/v1/completions", json=HI)
    error = await error_of(response)
    assert (response.status, error["code"]) == (503, "not_ready")
    assert "x-sluicegate-refused" not in response.headers
    assert response.headers["Retry-After"].isdigit()
    assert (error["state"], error["phase"]) == ("INITIALIZING", "loading_model")
    assert (error["progress"], error["reason"]) == (25, "reading weights")


async def test_in_error_a_request_hears_why(aiohttp_client: AiohttpClient) -> None:
    made = rig()
    made.life.fail("model.safetensors: wrong checksum", 0.0)
    client = await aiohttp_client(api(made).app())
    response = await client.post("/v1/chat/completions", json=CHAT)
    error = await error_of(response)
    assert (response.status, error["state"]) == (503, "ERROR")
    assert error["reason"] == "model.safetensors: wrong checksum"


async def test_draining_refuses_and_says_that_nothing_was_done(
    aiohttp_client: AiohttpClient, ready: Rig
) -> None:
    ready.life.drain(30.0, "asked", 0.0)
    client = await aiohttp_client(api(ready).app())
    response = await client.post("/v1/completions", json=HI)
    assert (response.status, response.headers["x-sluicegate-refused"]) == (503, "draining")
    assert ready.engine.calls == []
    assert ready.gate.rejected_total == 1


async def test_a_full_instance_refuses_and_says_that_nothing_was_done(
    aiohttp_client: AiohttpClient, ready: Rig
) -> None:
    gate = ready.gate
    held = [gate.admit(ready.life.standing, "r") for _ in range(gate.room)]
    client = await aiohttp_client(api(ready).app())
    response = await client.post("/v1/completions", json=HI)
    assert (response.status, response.headers["x-sluicegate-refused"]) == (503, "full")
    held.pop().give_back()
    assert (await client.post("/v1/completions", json=HI)).status == 200


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"{", None, "the body must be JSON"),
        (b"", None, "the body must be JSON"),
        (b"\xff", None, "the body must be JSON"),
        (b"[" * 100_000, None, "the body must be JSON"),
        (b"[]", None, "the body must be a JSON object"),
        (b'{"prompt": "x"}', "model", "must be the name of a model"),
        (b'{"model": "m", "prompt": 5}', "prompt", "must be a string"),
        (b'{"model": "m", "prompt": ""}', "prompt", "at least one token"),
        (b'{"model": "m", "prompt": "x", "max_tokens": 1e99}', "max_tokens", "whole number"),
        (b'{"model": "m", "prompt": "x", "n": 9}', "n", "at most 4"),
    ],
)
async def test_a_mistake_is_a_400_that_names_its_place(
    aiohttp_client: AiohttpClient, ready: Rig, body: bytes, param: str | None, message: str
) -> None:
    client = await aiohttp_client(api(ready).app())
    response = await client.post("/v1/completions", data=body)
    error = await error_of(response)
    assert (response.status, error["type"]) == (400, "invalid_request_error")
    assert error["param"] == param
    assert message in error["message"]
    assert ready.gate.in_flight == 0


async def test_what_the_chat_template_refuses_is_the_clients_mistake(
    aiohttp_client: AiohttpClient, ready: Rig
) -> None:
    client = await aiohttp_client(api(ready).app())
    body = CHAT | {"messages": [{"role": "tool", "content": "42"}]}
    response = await client.post("/v1/chat/completions", json=body)
    assert (response.status, (await error_of(response))["param"]) == (400, "messages")


@pytest.mark.parametrize("ids", [64, 65])
async def test_a_prompt_without_room_for_an_answer_is_refused_with_the_numbers(
    aiohttp_client: AiohttpClient, ready: Rig, ids: int
) -> None:
    client = await aiohttp_client(api(ready).app())
    response = await client.post("/v1/completions", json=HI | {"prompt": [1] * ids})
    error = await error_of(response)
    assert (response.status, error["code"]) == (400, "context_length_exceeded")
    assert f"{ids} tokens" in error["message"]
    assert "64 tokens" in error["message"]


async def test_another_model_is_unknown_here(aiohttp_client: AiohttpClient, ready: Rig) -> None:
    client = await aiohttp_client(api(ready).app())
    response = await client.post("/v1/completions", json=HI | {"model": "gpt-4"})
    error = await error_of(response)
    assert (response.status, error["code"], error["param"]) == (404, "model_not_found", "model")


async def test_the_field_that_routed_the_request_names_its_model(
    aiohttp_client: AiohttpClient, ready: Rig
) -> None:
    client = await aiohttp_client(api(ready).app())
    body = HI | {"model": "alias"}
    response = await client.post("/v1/completions", json=body, headers={"x-model": "m"})
    assert response.status == 200


async def test_a_body_beyond_all_use_is_refused(aiohttp_client: AiohttpClient, ready: Rig) -> None:
    client = await aiohttp_client(api(ready).app())
    response = await client.post("/v1/completions", data=b" " * (BODY_MAX_BYTES + 1))
    assert response.status == 413
    assert (await error_of(response))["type"] == "invalid_request_error"


async def test_no_such_path_or_method_is_said_in_json(
    aiohttp_client: AiohttpClient, ready: Rig
) -> None:
    client = await aiohttp_client(api(ready).app())
    missing = await client.post("/v1/embeddings", json={})
    wrong = await client.get("/v1/completions")
    assert (missing.status, (await error_of(missing))["message"]) == (404, "Not Found")
    assert (wrong.status, wrong.headers["Allow"]) == (405, "POST")


async def test_metrics_are_served_as_prometheus_text(
    aiohttp_client: AiohttpClient, ready: Rig
) -> None:
    client = await aiohttp_client(api(ready).app())
    response = await client.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "sluicegate_instance_slots{" in await response.text()


async def test_an_engine_beyond_repair_is_an_instance_in_error(
    aiohttp_client: AiohttpClient, ready: Rig
) -> None:
    def fault(step: str) -> None:
        raise RuntimeError("device lost")

    ready.engine.faults = fault
    client = await aiohttp_client(api(ready).app())
    statuses: list[int] = []
    while ready.life.standing.state.name == "READY" and len(statuses) < 20:
        response = await client.post("/v1/completions", json=HI)
        statuses.append(response.status)
        assert (await error_of(response))["code"] == "engine_failed"
    assert set(statuses) == {500}
    assert ready.life.standing.state.name == "ERROR"


async def test_closing_the_server_cuts_what_is_held_visibly(ready: Rig) -> None:
    gate = Gate()
    async with ready_rig(ScriptedEngine(rule=successor, gate=gate), gate) as held:
        server = HttpServer(api(held).app(), "127.0.0.1", 0)
        await server.start()
        gate.let(2)
        async with aiohttp.ClientSession() as session:
            url = f"http://127.0.0.1:{server.port}/v1/completions"
            response = await session.post(url, json=HI | {"stream": True})
            assert (await response.content.readline()).startswith(b"data: ")
            await server.close()
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.post(url, json=HI)
        assert held.gate.in_flight == 0


async def test_an_address_that_is_taken_is_an_error_at_once(ready: Rig) -> None:
    first = HttpServer(api(ready).app(), "127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        HttpServer(api(ready).app(), "127.0.0.1", first.port)
    await first.start()
    await first.close()
    await asyncio.sleep(0)
