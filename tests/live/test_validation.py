"""A real rollout that tries samples first, and a real server that is told of it."""

from pathlib import Path

import orjson
import pytest

from gateway.rollout.machine import Phase
from tests.gateway.controlplane.test_webhooks import Receiver, receiving
from tests.live.gateways import Gateway, running
from tests.live.scripted_instance import write_snapshot
from tests.live.test_rollout import enters, rolling

pytestmark = pytest.mark.live


async def _started(gateway: Gateway, version: str, samples: Path) -> None:
    body = {"version": version, "samples": str(samples)}
    status, said = await gateway.change("POST", "/models/m/rollout", body)
    assert status == 200, said


async def _told(receiver: Receiver, rollout: str, end: str) -> list[str]:
    """The phases of the rollout that the receiver is told of, to this one."""
    phases: list[str] = []
    while phases[-1:] != [end]:
        document, _, _ = await receiver.got.get()
        assert document["id"] == f"rollout:{rollout}:{len(phases) + 1}"
        phases.append(document["fields"]["phase"])
    return phases


async def test_samples_are_tried_before_any_request_and_a_webhook_is_told(tmp_path: Path) -> None:
    for version in ("1", "2-errors", "3"):
        write_snapshot(tmp_path / "models", "m", version)
    samples = tmp_path / "samples.jsonl"
    line = orjson.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4})
    samples.write_bytes(b"\n".join([line] * 6))
    text = rolling(tmp_path, {"1": 100}, {"1": 1}, steps="[{ weight = 50, hold_s = 3600 }]")
    keys = '[model.rollout.validation]\nlatency_ratio_max = 0\nanswers = "exact"\n'
    async with receiving() as receiver:
        hook = f'[[webhook]]\nname = "hook"\nurl = "{receiver.url}"\nsecret_env = "HOOK"\n'
        environment = {"HOOK": "secret"}
        async with running(tmp_path, f"{text}\n{keys}\n{hook}", environment) as gateway:
            await gateway.ready("m-1-0")
            await gateway.routes("m", {"1": 100})
            await _started(gateway, "2-errors", samples)
            await enters(gateway, Phase.ROLLED_BACK, 0)
            view = await gateway.read("/models/m/rollout")
            assert {one["name"]: one["passed"] for one in view["checks"]}["errors"] is False
            assert "6 of 6 requests failed, of the old version 0 of 6" in view["reason"]
            assert [one["phase"] for one in view["transitions"]].count("step") == 0
            assert view["canary"]["requests"] == 0
            after = len(gateway.lines)
            await _started(gateway, "3", samples)
            await enters(gateway, Phase.STEP, after)
            view = await gateway.read("/models/m/rollout")
            checks = {one["name"]: one["passed"] for one in view["checks"]}
            assert (checks["errors"], checks["answers"]) == (True, True)
            phases = [one["phase"] for one in view["transitions"]]
            assert (await _told(receiver, "m/1", "rolled_back"))[-2] == "rolling_back"
            assert await _told(receiver, "m/2", "step") == phases
            assert (await gateway.read("/status"))["problems"] == []
        said = "\n".join(str(one) for one in gateway.lines)
        assert "very-secret" not in said  # of the webhook's URL
