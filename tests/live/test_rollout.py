"""Rollouts of real processes under load: a good version takes over, bad ones are sent back."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from gateway.rollout.machine import Phase
from tests.live import bad_instance
from tests.live.clients import crowd
from tests.live.gateways import Gateway, config, running, scripted_model
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live

STEPS: Final = (
    "[{ weight = 5, hold_s = 1, requests_min = 10 }, "
    "{ weight = 25, hold_s = 1, requests_min = 10 }, "
    "{ weight = 100, hold_s = 1, requests_min = 10 }]"
)


def rolling(folder: Path, weights: dict[str, float], replicas: dict[str, int], **keys: Any) -> str:
    """A config whose model m is rolled out in seconds. Nothing here is judged by a clock."""
    model = scripted_model("m", weights, replicas=replicas, command=bad_instance.COMMAND, limit=64)
    given = {
        "steps": STEPS,
        "keep_old_s": 1,
        "ready_timeout_s": 240,
        "latency_ratio_max": 0,
        "ttft_ratio_max": 0,
        **keys,
    }
    lines = [f"{key} = {value}" for key, value in given.items()]
    return config(folder, model + "\n".join(["[model.rollout]", *lines, ""]))


async def started(gateway: Gateway, version: str) -> None:
    body = {"version": version}
    status, said = await gateway.change("POST", "/models/m/rollout", body)
    assert status == 200, said


async def enters(gateway: Gateway, phase: Phase, after: int) -> None:
    await gateway.says(
        lambda text: text.startswith("rollout m/") and f": {phase.value}" in text, after
    )


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


# What is bad about a version, and on what grounds it may be sent back.
BAD: Final = {
    "2-errors": {"failures"},
    "2-truncates": {"failures"},
    "2-empty": {"failures"},
    "2-slow": {"latency", "ttft"},
    "2-crashes": {"failures", "restarts", "instances"},  # its requests die with it
    "2-unusable": {"instances"},
    "2-never": {"not_ready"},
}


async def test_bad_versions_are_sent_back_each_for_its_own_reason(tmp_path: Path) -> None:
    """And whoever is served by the old one never notices."""
    for version in ("1", *BAD):
        write_snapshot(tmp_path / "models", "m", version)
    patient = {"steps": "[{ weight = 50, hold_s = 3600 }]", "latency_ratio_max": 2}
    text = rolling(tmp_path, {"1": 100}, {"1": 1}, **patient)
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0")
        await gateway.routes("m", {"1": 100})
        async with crowd(gateway, "m", clients=8, max_tokens=4) as clients:
            for version, grounds in BAD.items():
                after, counted = len(gateway.lines), await rollbacks(gateway)
                if version == "2-never":
                    text = rolling(tmp_path, {"1": 100}, {"1": 1}, ready_timeout_s=1, **patient)
                    (tmp_path / "config.toml").write_text(text)
                    await gateway.says(lambda line: line.startswith("config.toml taken"), after)
                await started(gateway, version)
                await enters(gateway, Phase.ROLLED_BACK, after)
                told = await gateway.read("/models/m/rollout")
                assert (told["version"], told["phase"]) == (version, "rolled_back")
                assert set(await rollbacks(gateway) - counted) <= grounds, told["reason"]
                before = len(clients.answers)
                await clients.more(30)
                assert {one.version for one in clients.answers[before + 8 :]} == {"1"}
        assert [one for one in clients.lost if one.version == "1"] == []
        assert set(await gateway.pids()) == {"m-1-0"}
