from dataclasses import replace

import orjson
import pytest

from admin import views
from tests.admin.conftest import Api
from tests.admin.fakes import (
    CHANGES,
    DRAIN,
    ENDED,
    INSTANCE,
    LEASE,
    LOADING,
    MODEL,
    STATUS,
    FakeControl,
)


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("status", views.status(STATUS)),
        (
            "instances",
            {
                "generation": 7,
                "revision": 12,
                "instances": [views.instance(INSTANCE), views.instance(LOADING)],
            },
        ),
        ("instances/m-2-0", views.instance(LOADING)),
        ("drains", {"generation": 7, "revision": 12, "drains": [views.drain(DRAIN)]}),
        ("drains/m-1-0", views.drain(DRAIN)),
        ("models", {"generation": 7, "revision": 12, "models": [views.model(MODEL)]}),
        ("models/m", views.model(MODEL)),
        (
            "history",
            {
                "generation": 7,
                "revision": 12,
                "history": [views.change(one) for one in CHANGES],
            },
        ),
        ("leases", {"generation": 7, "revision": 12, "leases": [views.lease(LEASE)]}),
    ],
)
async def test_a_view_is_answered_as_its_document(api: Api, path: str, document: object) -> None:
    answer = await api.get(f"/admin/v1/{path}")
    assert answer.status == 200
    assert answer.content_type == "application/json"
    assert await answer.json() == orjson.loads(orjson.dumps(document))


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("instances/nobody", "unknown_instance", "no instance is called nobody"),
        ("models/nobody", "unknown_model", "no model is called nobody"),
        ("drains/nobody", "unknown_instance", "no instance is called nobody"),
        ("drains/m-2-0", "unknown_drain", "no drain of m-2-0 runs or has ended"),
    ],
)
async def test_what_there_is_not_is_named(api: Api, path: str, code: str, message: str) -> None:
    answer = await api.get(f"/admin/v1/{path}")
    assert answer.status == 404
    assert answer.headers["x-sluicegate-error"] == code
    assert await answer.json() == {"error": {"code": code, "message": message}}


async def test_leases_are_filtered_by_instance_and_model(api: Api, control: FakeControl) -> None:
    await api.get("/admin/v1/leases?instance=m-1-0&model=m")
    assert control.filters == [("m-1-0", "m")]


@pytest.mark.parametrize(
    "path",
    [
        "status",
        "instances",
        "instances/m-1-0",
        "drains",
        "drains/m-1-0",
        "models",
        "models/m",
        "leases",
        "history",
        "events",
        "config",
        "openapi.json",
    ],
)
async def test_a_parameter_that_a_route_does_not_know_is_refused(api: Api, path: str) -> None:
    answer = await api.get(f"/admin/v1/{path}?modell=m")
    assert answer.status == 422
    assert (await answer.json())["error"]["problems"] == [
        {"path": "?modell", "message": "is not a parameter of this request"}
    ]


async def test_reading_asks_for_nothing(api: Api, control: FakeControl) -> None:
    for path in ("status", "instances", "models", "drains", "leases", "config", "openapi.json"):
        answer = await api.get(f"/admin/v1/{path}", headers={"If-Match": "1"})
        assert answer.status == 200
    assert control.asked == []


async def test_the_config_in_force_has_origins(api: Api) -> None:
    document = await (await api.get("/admin/v1/config")).json()
    assert document["config"]["model.m.weights.1"] == {"value": 95.0, "origin": "run-time"}


async def test_metrics_are_prometheus_text(api: Api) -> None:
    answer = await api.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert await answer.text() == "sluicegate_in_flight 3\n"


async def test_the_root_points_at_the_api_and_the_cli(api: Api) -> None:
    text = await (await api.get("/")).text()
    assert "/admin/v1/openapi.json" in text
    assert "sluicegate status" in text


async def test_readiness_goes_first_and_says_why(api: Api, control: FakeControl) -> None:
    assert (await api.get("/readyz")).status == 200
    control.current = replace(STATUS, closing=True, serving=False)
    answer = await api.get("/readyz")
    assert (answer.status, await answer.json()) == (
        503,
        {"ok": False, "reason": "the gateway is closing"},
    )
    assert (await api.get("/livez")).status == 200
    assert (await api.get("/startupz")).status == 200


async def test_startup_waits_for_every_worker(api: Api, control: FakeControl) -> None:
    behind = replace(STATUS.workers[0], index=1, generation=0)
    control.current = replace(STATUS, workers=(*STATUS.workers, behind), serving=False)
    answer = await api.get("/startupz")
    assert answer.status == 503
    assert (await answer.json())["reason"] == "workers without a table: 1"


async def test_an_ended_drain_is_still_shown(api: Api, control: FakeControl) -> None:
    control.draining = [ENDED]
    document = await (await api.get("/admin/v1/drains/m-1-0")).json()
    assert (document["phase"], document["ended"]) == ("done", ENDED.ended)
