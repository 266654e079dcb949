"""What operators want outlives every process, in the middle of anything, and any file."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.clients import ask, streams
from tests.live.gateways import PATIENCE_S, Gateway, running
from tests.live.test_trouble import pid_of, two_instances

pytestmark = pytest.mark.live

GRACE_S = 120
CLOCKS_S = 1.0  # two readings of the wall clock, in two processes


async def test_control_and_a_worker_killed_at_once_in_a_drain_change_nothing_of_it(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, two_instances(tmp_path, "workers = 2")) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        streaming = await streams(gateway, "m", 12, until=tmp_path / "end")
        code, said = await gateway.change("PUT", "/instances/m-1-0/drain", {"grace_s": GRACE_S})
        assert code == 200, said
        before = await gateway.read("/drains/m-1-0")
        leases = (await gateway.read("/leases?instance=m-1-0"))["leases"]
        victim = leases[0]["worker"]
        after = len(gateway.lines)
        os.kill(pid_of(gateway, "gateway.mains.control"), signal.SIGKILL)
        os.kill(victim, signal.SIGKILL)
        await gateway.says(lambda text: "every worker serves" in text, after)
        (tmp_path / "end").touch()
        await gateway.says(lambda text: text.startswith("drain of m-1-0 ended"), after)
        answers = await asyncio.gather(*streaming)
        drain = await gateway.read("/drains/m-1-0")
        assert drain["deadline"] == pytest.approx(before["deadline"], abs=CLOCKS_S)
        lost = drain["lost"]
        mine = {one["request_id"] for one in leases if one["worker"] == victim}
        assert {one["request_id"] for one in lost} == mine
        for one in lost:
            assert (one["instance"], one["model"], one["version"]) == ("m-1-0", "m", "1")
            assert (one["stage"], one["cause"]) == ("streaming", "worker died")
        broken = [one for one in answers if not one.whole]
        assert len([one for one in broken if one.instance == "m-1-0"]) == len(lost)
        for _ in range(4):
            assert (await ask(gateway, "m")).instance == "m-1-1"
        entries = (await gateway.read("/history"))["history"]
        assert [one["kind"] for one in entries if one["subject"] == "m-1-0"] == ["drain", "drain"]
        assert entries[-1]["text"].endswith(tuple(mine))
        assert (await gateway.command("undrain", "m-1-0"))[0] == 0
        await gateway.says(lambda text: text == "m-1-0 is undrained", after)


async def test_a_weight_and_a_drain_outlive_the_gateway_itself(tmp_path: Path) -> None:
    text = two_instances(tmp_path)
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        assert (await gateway.command("weight", "m", "1=7"))[0] == 0
        assert (await gateway.command("drain", "m-1-0", "--wait"))[0] == 0
        gateway.process.kill()
        await gateway.process.wait()
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-1")
        config = (await gateway.read("/config"))["config"]
        assert config["model.m.weights.1"] == {"value": 7.0, "origin": "run-time"}
        assert config["instance.m-1-0.intent"] == {"value": "drain", "origin": "run-time"}
        _, said = await gateway.command("history")
        assert "weight of m version 1: 100 to 7" in " ".join(said.split())


def link(folder: Path, version: str, text: str) -> None:
    """As Kubernetes swaps a ConfigMap: config.toml leads through a link that is renamed over."""
    (folder / version).mkdir()
    (folder / version / "config.toml").write_text(text)
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").replace(folder / "..data")


async def weight(gateway: Gateway) -> Any:
    return (await gateway.read("/config"))["config"]["model.m.weights.1"]["value"]


async def taken(gateway: Gateway, after: int) -> None:
    await gateway.says(lambda text: text.startswith("config.toml taken over"), after)


async def test_whatever_happens_to_the_file_only_whole_ones_are_taken(tmp_path: Path) -> None:
    text = two_instances(tmp_path)
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        path, pids = tmp_path / "config.toml", await gateway.pids()
        link(tmp_path, "..1", text.replace('"1": 100', '"1": 90').replace("= 100", "= 90"))
        after = len(gateway.lines)
        path.unlink()  # vanished
        path.symlink_to("..data/config.toml")
        await taken(gateway, after)
        assert await weight(gateway) == 90
        after = len(gateway.lines)
        link(tmp_path, "..2", text.replace("= 100", "= 80"))
        await taken(gateway, after)
        assert await weight(gateway) == 80
        after = len(gateway.lines)
        whole = text.replace("= 100", "= 70")
        target = tmp_path / "..2" / "config.toml"
        target.write_text("")
        target.write_text(whole[: len(whole) // 2])
        target.write_text(whole)
        await taken(gateway, after)
        assert await weight(gateway) == 70
        assert not gateway.said(lambda line: "not taken over" in line)
        assert await gateway.pids() == pids
        after = len(gateway.lines)
        target.write_text("nonsense")
        await gateway.says(lambda line: "config.toml not taken over" in line, after)
        assert await weight(gateway) == 70
        problems = (await gateway.read("/status"))["problems"]
        assert any("not TOML" in problem for problem in problems)


async def test_a_second_gateway_on_the_same_store_is_told_whose_it_is(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = two_instances(tmp_path)
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0")
        await gateway.routes("m", {"1": 100})
        other = tmp_path_factory.mktemp("b")  # short: a Unix socket in it has at most 107 bytes
        path = other / "config.toml"
        path.write_text(text.replace(f"{tmp_path}/run", f"{other}/run"))
        process = await asyncio.create_subprocess_exec(
            *gateway_command(path), stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(PATIENCE_S):
            _, said = await process.communicate()
        assert process.returncode != 0
        lines = [json.loads(line) for line in said.splitlines() if line.startswith(b"{")]
        assert any("which runs" in str(line) for line in lines), said.decode()
        assert (await ask(gateway, "m")).whole


def gateway_command(path: Path) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "gateway.cli", "serve", "--config", str(path)),
        *("--log-format", "json"),
    )
