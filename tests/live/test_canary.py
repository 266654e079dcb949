"""Shares, testers, sessions and pins while a version is rolled out, and after it was sent back."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

from gateway.rollout.machine import Phase
from tests.live.clients import ask, streams
from tests.live.gateways import Gateway, config, running, scripted_model
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live

ALWAYS = {"x-sluicegate-canary": "always"}
NEVER = {"x-sluicegate-canary": "never"}
PIN = {"x-model-version": "2"}
ROLLOUT = """
[model.rollout]
steps = [{ weight = 20, hold_s = 0, requests_min = 0, gate = true },
         { weight = 50, hold_s = 0, requests_min = 0, gate = true }]
at_rollback = "cut"
latency_ratio_max = 0
ttft_ratio_max = 0
"""


async def versions(gateway: Gateway, count: int) -> Counter[str]:
    """Of so many requests, one after another."""
    answers = [await ask(gateway, "m", 1, stream=False) for _ in range(count)]
    return Counter(answer.version for answer in answers)


async def sessions(gateway: Gateway) -> dict[int, str]:
    """The version of each."""
    asked = [
        ask(gateway, "m", 1, stream=False, fields={"x-session-id": f"s{number}"})
        for number in range(40)
    ]
    return {number: one.version for number, one in enumerate(await asyncio.gather(*asked))}


async def step(gateway: Gateway, verb: str, phase: str) -> None:
    """Ask this of the rollout; returns when it is in the phase and every worker knows."""
    after = len(gateway.lines)
    path = f"/models/m/rollout{verb}"
    status, said = await gateway.change("POST", path, {} if verb else {"version": "2"})
    assert status == 200, said
    await gateway.says(lambda text: f": {phase}" in text and text.startswith("rollout m/"), after)
    status, said = await gateway.change("PUT", "/instances/m-1-0/weight?wait=1", {"weight": 1})
    assert status == 200, said


async def attempts(gateway: Gateway, version: str) -> dict[str, int]:
    """Those on instances of the version, by how they ended."""
    async with gateway.http.get(f"{gateway.admin}/metrics") as response:
        page = await response.text()
    pattern = rf'^sluicegate_attempts_total{{.*outcome="(\w+)",version="{version}"}} (\d+)'
    counts = {outcome: int(count) for outcome, count in re.findall(pattern, page, re.MULTILINE)}
    return {outcome: count for outcome, count in counts.items() if count}


async def test_shares_testers_and_sessions_while_a_version_is_rolled_out_and_sent_back(
    tmp_path: Path,
) -> None:
    for version in ("1", "2"):
        write_snapshot(tmp_path / "models", "m", version)
    model = scripted_model("m", {"1": 100}, replicas={"1": 1}, limit=64, pinnable=True)
    async with running(tmp_path, config(tmp_path, model + ROLLOUT)) as gateway:
        await gateway.ready("m-1-0")
        await gateway.routes("m", {"1": 100})
        assert (await ask(gateway, "m", 1, fields=ALWAYS)).version == "1"  # nothing to test yet
        await step(gateway, "", f"{Phase.STEP.value} 1")
        shares = await versions(gateway, 100)
        assert 17 <= shares["2"] <= 23
        assert (await ask(gateway, "m", 1, fields=ALWAYS)).version == "2"
        assert (await ask(gateway, "m", 1, fields=NEVER)).version == "1"
        wrong = await ask(gateway, "m", 1, fields={"x-sluicegate-canary": "maybe"})
        assert (wrong.status, wrong.code) == (400, "bad_request")
        first = await sessions(gateway)
        await step(gateway, "/promote", f"{Phase.STEP.value} 2")
        second = await sessions(gateway)
        came = {number for number, version in first.items() if version == "2"}
        assert came
        assert came < {number for number, version in second.items() if version == "2"}
        told = await gateway.read("/models/m/rollout")
        tested = [await ask(gateway, "m", 1, fields=fields) for fields in (ALWAYS, PIN) * 5]
        assert {one.version for one in tested} == {"2"}
        again = await gateway.read("/models/m/rollout")
        assert again["canary"]["requests"] == told["canary"]["requests"]  # those were not drawn
        (tester,) = await streams(gateway, "m", 1, fields=ALWAYS)
        (other,) = await streams(gateway, "m", 1, until=tmp_path / "end", fields=NEVER)
        await step(gateway, "/abort", Phase.ROLLING_BACK.value)
        (tmp_path / "end").touch()
        cut, whole = await asyncio.gather(tester, other)
        assert (cut.version, cut.whole, whole.version, whole.whole) == ("2", False, "1", True)
        assert cut.broke
        await gateway.quiet()
        await gateway.says(lambda text: " lost on m-2-0: " in text)
        assert (await attempts(gateway, "2")).keys() == {"served", "cut"}
        lost = [line for line in gateway.lines if " lost on m-2-0: " in str(line.get("message"))]
        assert len(lost) == 1
        assert await versions(gateway, 20) == {"1": 20}
        assert set((await sessions(gateway)).values()) == {"1"}
        pinned = await ask(gateway, "m", 1, fields=PIN)
        assert (pinned.status, pinned.code) == (503, "version_blocked")
        assert (await ask(gateway, "m", 1, fields=NEVER)).version == "1"
