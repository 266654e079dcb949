"""Rollouts of real processes under load: a good version takes over, bad ones are sent back."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway.rollout.machine import Phase
from tests.live import bad_instance
from tests.live.clients import crowd
from tests.live.gateways import Gateway, config, running, scripted_model
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live

STEPS = "[{ weight = 5, hold_s = 1, requests_min = 10 }, "
STEPS += "{ weight = 25, hold_s = 1, requests_min = 10 }, "
STEPS += "{ weight = 100, hold_s = 1, requests_min = 10 }]"


def rolling(folder: Path, weights: dict[str, float], replicas: dict[str, int], **keys: Any) -> str:
    """A config whose model m is rolled out in seconds. Nothing here is judged by a clock."""
    model = scripted_model("m", weights, replicas=replicas, command=bad_instance.COMMAND, limit=64)
    given = {"keep_old_s": 1, "ready_timeout_s": 120, "latency_ratio_max": 0, "ttft_ratio_max": 0}
    lines = [f"{key} = {value}" for key, value in (given | keys).items()]
    return config(folder, model + "\n".join(["[model.rollout]", f"steps = {STEPS}", *lines, ""]))


async def started(gateway: Gateway, version: str) -> None:
    body = {"version": version}
    status, said = await gateway.change("POST", "/models/m/rollout", body)
    assert status == 200, said


async def enters(gateway: Gateway, phase: Phase, after: int) -> None:
    await gateway.says(
        lambda text: text.startswith("rollout m/") and f": {phase.value}" in text, after
    )


async def last(gateway: Gateway) -> Any:
    return await gateway.read("/models/m/rollout")


async def test_a_good_version_takes_all_the_traffic_and_nothing_is_lost(tmp_path: Path) -> None:
    for version in ("1", "2"):
        write_snapshot(tmp_path / "models", "m", version)
    text = rolling(tmp_path, {"1": 100}, {"1": 1})
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0")
        await gateway.routes("m", {"1": 100})
        async with crowd(gateway, "m", clients=8, max_tokens=4) as clients:
            await clients.has(20)
            after = len(gateway.lines)
            await started(gateway, "2")
            for phase in (
                Phase.STARTING,
                Phase.VALIDATING,
                Phase.STEP,
                Phase.PROMOTING,
                Phase.DONE,
            ):
                await enters(gateway, phase, after)
            await gateway.says(lambda text: text.startswith("m-1-0 forgotten"), after)
            before = len(clients.answers)
            await clients.more(20)
        assert clients.lost == []
        assert {one.version for one in clients.answers[:20]} == {"1"}
        assert {one.version for one in clients.answers[before + 8 :]} == {"2"}
        pids = await gateway.pids()
        assert set(pids) == {"m-2-0"}
        after = len(gateway.lines)
        named = rolling(tmp_path, {"2": 100}, {"2": 1})
        (tmp_path / "config.toml").write_text(named)
        await gateway.says(lambda text: text.startswith("config.toml taken over"), after)
        assert await gateway.pids() == pids  # the file names what runs already
        weights = (await gateway.read("/models"))["models"][0]["versions"]
        assert [(one["version"], one["weight"], one["origin"]) for one in weights] == [
            ("2", 100.0, "file")
        ]


async def rollbacks(gateway: Gateway) -> Counter[str]:
    """How many there were, by reason."""
    async with gateway.http.get(f"{gateway.admin}/metrics") as response:
        text = await response.text()
    pattern = r'^sluicegate_rollbacks_total{reason="(\w+)"} (\d+)'
    return Counter({name: int(count) for name, count in re.findall(pattern, text, re.M)})


BAD = (
    ("2-errors", "failures"),
    ("2-truncates", "failures"),
    ("2-empty", "failures"),
    ("2-unusable", "instances"),
)


async def test_bad_versions_are_rolled_back_each_for_its_own_reason(tmp_path: Path) -> None:
    write_snapshot(tmp_path / "models", "m", "1")
    for version, _ in BAD:
        write_snapshot(tmp_path / "models", "m", version)
    counted: Counter[str] = Counter()
    async with running(tmp_path, rolling(tmp_path, {"1": 100}, {"1": 1})) as gateway:
        await gateway.ready("m-1-0")
        await gateway.routes("m", {"1": 100})
        async with crowd(gateway, "m", clients=8, max_tokens=4) as clients:
            for version, ground in BAD:
                after = len(gateway.lines)
                await started(gateway, version)
                await enters(gateway, Phase.ROLLED_BACK, after)
                told = await last(gateway)
                assert (told["version"], told["phase"]) == (version, "rolled_back")
                counted[ground] += 1
                assert await rollbacks(gateway) == counted
                before = len(clients.answers)
                await clients.more(30)
                assert {one.version for one in clients.answers[before + 8 :]} == {"1"}
        assert [one for one in clients.lost if one.version == "1"] == []
        assert set(await gateway.pids()) == {"m-1-0"}
