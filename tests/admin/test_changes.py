from typing import Any

import pytest

from gateway.control import (
    AbortRollout,
    AddInstance,
    Ask,
    CancelLease,
    Denied,
    DrainInstance,
    PauseRollout,
    Problem,
    PromoteRollout,
    Reload,
    RemoveInstance,
    ResetInstanceWeight,
    ResetWeights,
    ResumeRollout,
    RetryRollout,
    SetInstanceWeight,
    SetWeights,
    StartInstance,
    StartRollout,
    StopInstance,
    UndrainInstance,
)
from tests.admin.conftest import Api
from tests.admin.fakes import Asked, FakeControl

ADDED = {"id": "i", "model": "m", "version": "1", "http": "h:1", "grpc": "h:2"}

CHANGES: list[tuple[str, str, dict[str, Any] | None, Ask]] = [
    ("POST", "instances", ADDED, AddInstance(**ADDED)),
    ("DELETE", "instances/i", None, RemoveInstance("i")),
    ("PUT", "instances/i/weight", {"weight": 2}, SetInstanceWeight("i", 2.0)),
    ("DELETE", "instances/i/weight", None, ResetInstanceWeight("i")),
    ("PUT", "instances/i/drain", None, DrainInstance("i", None, False, False)),
    ("PUT", "instances/i/drain", {"grace_s": 9, "stop": True}, DrainInstance("i", 9, True, False)),
    ("DELETE", "instances/i/drain", None, UndrainInstance("i")),
    ("POST", "instances/i/stop", {"force": True}, StopInstance("i", True)),
    ("POST", "instances/i/stop", {"grace_s": 5}, StopInstance("i", False, 5.0)),
    ("POST", "instances/i/start", None, StartInstance("i")),
    ("PUT", "models/m/weights", {"1": 95, "2": 5}, SetWeights("m", {"1": 95.0, "2": 5.0})),
    ("DELETE", "models/m/weights", None, ResetWeights("m")),
    ("DELETE", "leases/00000000000000ff", None, CancelLease("00000000000000ff")),
    ("POST", "config/reload", None, Reload()),
    ("POST", "models/m/rollout", {"version": "2"}, StartRollout("m", "2")),
    ("POST", "models/m/rollout/promote", None, PromoteRollout("m")),
    ("POST", "models/m/rollout/promote", {"full": True}, PromoteRollout("m", True)),
    ("POST", "models/m/rollout/pause", None, PauseRollout("m")),
    ("POST", "models/m/rollout/resume", None, ResumeRollout("m")),
    ("POST", "models/m/rollout/abort", {"reason": "odd"}, AbortRollout("m", "odd")),
    ("POST", "models/m/rollout/abort", None, AbortRollout("m")),
    ("POST", "models/m/rollout/retry", {"force": True}, RetryRollout("m", True)),
]
every_change = pytest.mark.parametrize(
    ("method", "path", "body", "ask"), CHANGES, ids=[f"{row[0]} {row[1]}" for row in CHANGES]
)


@every_change
async def test_a_change_is_asked_for_and_answered_with_its_receipt(
    api: Api, control: FakeControl, method: str, path: str, body: Any, ask: Ask
) -> None:
    answer = await api.request(method, f"/admin/v1/{path}", json=body)
    document = await answer.json()
    assert answer.status == 200, document
    assert control.asked == [Asked(ask, False, False, None)]
    document.pop("drain", None)
    document.pop("rollout", None)
    assert document == {
        "generation": 8,
        "revision": 13,
        "changes": ["m: version 2 from weight 0 to 5"],
        "dry_run": False,
    }


@every_change
async def test_every_change_can_wait_be_tried_and_be_guarded(
    api: Api, control: FakeControl, method: str, path: str, body: Any, ask: Ask
) -> None:
    answer = await api.request(
        method, f"/admin/v1/{path}?wait=1&dry_run=1", json=body, headers={"If-Match": '"12"'}
    )
    assert (await answer.json())["dry_run"] is True
    assert control.asked == [Asked(ask, True, True, 12)]


@every_change
async def test_a_change_with_an_unknown_key_is_not_made(
    api: Api, control: FakeControl, method: str, path: str, body: Any, ask: Ask
) -> None:
    # In a body of weights every key is a version, so the value is what is wrong there.
    answer = await api.request(method, f"/admin/v1/{path}", json={**(body or {}), "forse": "x"})
    assert answer.status == 422
    assert [one["path"] for one in (await answer.json())["error"]["problems"]] == ["forse"]
    assert control.asked == []


@every_change
async def test_a_change_with_an_unknown_parameter_is_not_made(
    api: Api, control: FakeControl, method: str, path: str, body: Any, ask: Ask
) -> None:
    answer = await api.request(method, f"/admin/v1/{path}?dryrun=1", json=body)
    assert answer.status == 422
    assert control.asked == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("unknown_instance", 404),
        ("unknown_model", 404),
        ("unknown_lease", 404),
        ("unknown_rollout", 404),
        ("unknown_version", 404),
        ("invalid", 422),
        ("last_routable", 409),
        ("conflict", 409),
        ("from_file", 409),
        ("revision_moved", 412),
        ("closing", 503),
        ("store_failed", 503),
        ("a_code_of_tomorrow", 409),
    ],
)
async def test_a_denial_becomes_its_status_and_keeps_its_sentence(
    api: Api, control: FakeControl, code: str, status: int
) -> None:
    control.denial = Denied(code, "i is the last routable instance of m")
    answer = await api.put("/admin/v1/instances/i/drain")
    assert answer.status == status
    assert await answer.json() == {
        "error": {"code": code, "message": "i is the last routable instance of m"}
    }


async def test_a_reload_with_problems_lists_all_of_them(api: Api, control: FakeControl) -> None:
    problems = (Problem("poll.timeout_s", "must be more than 0"), Problem("a", "is unknown"))
    control.denial = Denied("invalid", "2 problems", problems)
    answer = await api.post("/admin/v1/config/reload")
    assert answer.status == 422
    assert (await answer.json())["error"]["problems"] == [
        {"path": "poll.timeout_s", "message": "must be more than 0"},
        {"path": "a", "message": "is unknown"},
    ]


async def test_a_drain_answers_with_the_drain_that_runs(api: Api) -> None:
    document = await (await api.put("/admin/v1/instances/m-1-0/drain")).json()
    assert (document["drain"]["phase"], document["drain"]["held"]) == ("waiting", 3)
    other = await (await api.put("/admin/v1/instances/m-2-0/drain")).json()
    assert other["drain"] is None


async def test_weights_that_a_rollout_owns_are_set_when_that_is_said(
    api: Api, control: FakeControl
) -> None:
    path = "/admin/v1/models/m/weights?override="
    for said, override in (("1", True), ("0", False)):
        assert (await api.put(path + said, json={"1": 9})).status == 200
        assert control.asked.pop().ask == SetWeights("m", {"1": 9.0}, override)
    assert (await api.put(path + "yes", json={"1": 9})).status == 422
    assert control.asked == []


async def test_a_candidate_config_is_checked_and_nothing_is_asked(
    api: Api, control: FakeControl
) -> None:
    answer = await api.post("/admin/v1/config/check", json={"text": "a = 1"})
    assert await answer.json() == {"ok": True, "problems": []}
    control.found = (Problem("a", "is not a key that config.toml knows"),)
    answer = await api.post("/admin/v1/config/check", json={"text": "a = 1"})
    assert (answer.status, (await answer.json())["ok"]) == (200, False)
    assert control.texts == ["a = 1", "a = 1"]
    assert control.asked == []
    for wrong in ({"text": "", "dry_run": True}, {}, {"text": 1}):
        assert (await api.post("/admin/v1/config/check", json=wrong)).status == 422
    assert (await api.post("/admin/v1/config/check?wait=1", json={"text": ""})).status == 422
