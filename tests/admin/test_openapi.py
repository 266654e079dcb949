"""The document against the application: the same routes, and every answer fits its schema."""

from dataclasses import replace
from typing import Any

import pytest

from admin.api import create_app
from admin.openapi import OPERATIONS, PREFIX, Operation, specification
from gateway.control import Denied, Problem
from tests.admin.conftest import Api
from tests.admin.fakes import DRAIN, LOST, STATUS, FakeControl
from tests.admin.schema import faults

DOCUMENT = specification()
BODIES: dict[str, Any] = {
    "InstanceToAdd": {"id": "i", "model": "m", "version": "1", "http": "h:1", "grpc": "h:2"},
    "InstanceWeight": {"weight": 2},
    "DrainToStart": {"grace_s": None, "stop": False, "force": False},
    "InstanceToStop": {"force": False, "grace_s": 5},
    "Weights": {"1": 95},
    "ConfigText": {"text": ""},
    "RolloutToStart": {
        "version": "2",
        "replicas": 2,
        "steps": [{"weight": 5, "hold_s": 600, "requests_min": 100, "gate": True}, {"weight": 100}],
        "samples": "samples.jsonl",
        "force": False,
    },
    "RolloutToPromote": {"full": True, "step": 1},
    "RolloutToAbort": {"reason": "answers are odd"},
    "RolloutToRetry": {"force": True},
}
PARTS = {"{instance}": "m-1-0", "{model}": "m", "{request_id}": "00000000000000ff"}
every_operation = pytest.mark.parametrize(
    "operation", OPERATIONS, ids=[f"{one.method} {one.path}" for one in OPERATIONS]
)


def _path(operation: Operation, parts: dict[str, str]) -> str:
    path = operation.path
    for name, part in parts.items():
        path = path.replace(name, part)
    return path + ("?follow=0" if operation.answer == "text/event-stream" else "")


def _schema(operation: Operation, status: int) -> tuple[str, dict[str, Any]]:
    """Media type and schema of an answer; KeyError when the document has none for the status."""
    responses = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
    ((media, content),) = responses[str(status)]["content"].items()
    return media, content["schema"]


async def _fits(answer: Any, operation: Operation) -> list[str]:
    media, schema = _schema(operation, answer.status)
    assert answer.content_type == media
    value = await answer.json() if media == "application/json" else await answer.text()
    return faults(value, schema, DOCUMENT)


def test_the_document_has_exactly_the_routes_of_the_application() -> None:
    app = create_app(FakeControl())
    served = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert served == {(one.method, one.path) for one in OPERATIONS}
    assert len(OPERATIONS) == len(served)


@every_operation
async def test_an_answer_fits_its_schema(
    api: Api, control: FakeControl, operation: Operation
) -> None:
    control.draining = [replace(DRAIN, lost=(LOST,), ended=1.7e9)]
    control.found = (Problem("a", "is wrong"), Problem("b", "is wrong", 7))
    body = BODIES[operation.body] if operation.body else None
    answer = await api.request(operation.method, _path(operation, PARTS), json=body)
    assert answer.status == 200
    assert await _fits(answer, operation) == []


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.body])
def test_a_body_that_is_documented_is_one_that_fits(operation: Operation) -> None:
    content = DOCUMENT["paths"][operation.path][operation.method.lower()]["requestBody"]
    schema = content["content"]["application/json"]["schema"]
    assert faults(BODIES[operation.body], schema, DOCUMENT) == []
    assert faults({**BODIES[operation.body], "more": None}, schema, DOCUMENT) != []


@every_operation
async def test_refusals_are_documented_and_fit_their_schema(
    api: Api, control: FakeControl, operation: Operation
) -> None:
    """Each of a dozen ways to be refused, where it applies to the call."""
    method, path = operation.method, _path(operation, PARTS)
    tries: list[dict[str, Any]] = [{"headers": {"Host": "evil.example"}}]
    if path.startswith(PREFIX):
        tries.append({"params": {"nonsense": "1"}})
    if method != "GET":
        tries += [
            {"data": b"{", "headers": {"Content-Type": "application/json"}},
            {"data": b"{}", "headers": {"Content-Type": "text/plain"}},
            {"data": b" " * (1 << 21), "headers": {"Content-Type": "application/json"}},
        ]
    refused = [await api.request(method, path, **how) for how in tries]
    if operation.query == ("wait", "dry_run"):
        body = BODIES[operation.body] if operation.body else None
        for code in ("unknown_instance", "conflict", "revision_moved", "closing", "invalid"):
            control.denial = Denied(code, "no", (Problem("a", "is wrong"),))
            refused.append(await api.request(method, path, json=body))
    for answer in refused:
        assert answer.status >= 400
        assert await _fits(answer, operation) == []


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o.path in {"/readyz", "/startupz"}])
async def test_a_failing_probe_is_documented(
    api: Api, control: FakeControl, operation: Operation
) -> None:
    control.current = replace(STATUS, serving=False, workers=())
    answer = await api.get(operation.path)
    assert answer.status == 503
    assert await _fits(answer, operation) == []


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if "{" in one.path and one.method == "GET"]
)
async def test_what_is_not_there_is_documented(
    api: Api, control: FakeControl, operation: Operation
) -> None:
    control.draining = []
    answer = await api.get(_path(operation, dict.fromkeys(PARTS, "nobody")))
    assert answer.status == 404
    assert await _fits(answer, operation) == []


async def test_the_document_is_served(api: Api) -> None:
    answer = await api.get(f"{PREFIX}/openapi.json")
    assert await answer.json() == DOCUMENT


def _references(value: Any) -> list[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value["$ref"]] if isinstance(value, dict) and "$ref" in value else []
    return own + [one for part in inner for one in _references(part)]


def test_every_reference_leads_somewhere() -> None:
    names = {one.rpartition("/")[2] for one in _references(DOCUMENT)}
    assert names <= set(DOCUMENT["components"]["schemas"])
