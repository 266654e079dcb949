"""What no longer answers is taken back: out of traffic, its requests named, its process gone."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import orjson
import pytest

from sluicegate.processes import descendants
from tests.live.clients import ask, streams
from tests.live.gateways import Gateway, config, gone, running, scripted_model
from tests.live.scripted_instance import COMMAND, write_snapshot
from tests.live.test_trouble import pid_of

pytestmark = pytest.mark.live


def models(folder: Path, **keys: object) -> str:
    write_snapshot(folder / "models", "m", "1")
    return config(folder, scripted_model("m", {"1": 100}, limit=8, **keys))


def told(gateway: Gateway) -> list[str]:
    return [str(line.get("message")) for line in gateway.lines]


async def test_a_frozen_instance_is_reclaimed_and_every_request_it_held_is_named(
    tmp_path: Path,
) -> None:
    text = models(tmp_path, replicas={"1": 2})
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        streaming = await streams(gateway, "m", 6, until=tmp_path / "end")
        leases = (await gateway.read("/leases"))["leases"]
        held = {one["request_id"] for one in leases if one["instance"] == "m-1-0"}
        assert held
        pid = (await gateway.pids())["m-1-0"]
        os.kill(pid, signal.SIGSTOP)
        code, output = await gateway.command("stop", "m-1-0", "--force", "--wait")
        await gone(pid)
        (tmp_path / "end").touch()
        assert code == 1  # requests were lost
        assert set(re.findall(r"^([0-9a-f]{16}) ", output, re.MULTILINE)) == held
        answers = await asyncio.gather(*streaming)
        cut = [one for one in answers if not one.whole]
        assert {one.instance for one in cut} == {"m-1-0"}
        assert (len(cut), all(one.broke for one in cut)) == (len(held), True)
        stopped = await gateway.read("/instances/m-1-0")
        assert (stopped["intent"], stopped["phase"], stopped["pid"]) == ("stop", "stopped", None)
        assert (await ask(gateway, "m")).instance == "m-1-1"
        after = len(gateway.lines)
        assert (await gateway.command("start", "m-1-0"))[0] == 0
        await gateway.ready("m-1-0", after=after)
        assert (await gateway.pids())["m-1-0"] != pid


async def test_a_frozen_instance_that_is_stopped_without_force_is_killed_in_the_end(
    tmp_path: Path,
) -> None:
    """It hears neither the call nor SIGTERM."""
    text = models(tmp_path, replicas={"1": 2})
    text += "\n[drain]\nkill_after_s = 0.5\n[poll]\ninterval_s = 0.1\ntimeout_s = 0.1\n"
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        pid = (await gateway.pids())["m-1-0"]
        os.kill(pid, signal.SIGSTOP)
        assert (await gateway.command("stop", "m-1-0", "--grace", "1", "--wait"))[0] == 0
        await gone(pid)
        await gateway.says(lambda text: text == "m-1-0 ended by signal 9 (SIGKILL)")


# Starts one in a session of its own, registers nowhere, hears no SIGTERM, reads no pipe.
FOREIGN = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], os.environ["ASCEND_RT_VISIBLE_DEVICES"])
print("started", flush=True)
time.sleep(600)
"""


async def lines_of(log: Path, count: int) -> list[dict[str, str]]:
    """The first lines that its guard writes to the log, which is a FIFO made for that."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    file = os.fdopen(os.open(log, os.O_RDWR), "r+b", 0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    lines = [orjson.loads(await reader.readline()) for _ in range(count)]
    transport.close()
    return lines


def commands(pids: list[int]) -> list[bytes]:
    return [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]


async def test_nothing_of_a_foreign_command_outlives_a_gateway_that_is_killed(
    tmp_path: Path,
) -> None:
    text = models(tmp_path, command=[sys.executable, "-c", FOREIGN])
    text = text.replace("memory_gb", 'kind = "ascend"\nindex = 3\nmemory_gb')
    (tmp_path / "log").mkdir()
    os.mkfifo(log := tmp_path / "log" / "m-1-0.log")
    async with running(tmp_path, text) as gateway:
        lines = await lines_of(log, 2)
        assert [line["message"] for line in lines] == ["sees  3", "started"]
        assert {(one["instance_id"], one["model_version"]) for one in lines} == {("m-1-0", "1")}
        started = descendants(gateway.process.pid)
        assert any(command.startswith(b"sleep\0") for command in commands(started))
        gateway.process.kill()
        for pid in started:
            await gone(pid)


async def test_one_that_loads_while_control_dies_is_neither_restarted_nor_doubled(
    tmp_path: Path,
) -> None:
    text = models(tmp_path, replicas={"1": 2})
    async with running(tmp_path, text, {"SCRIPTED_LOAD_S": "3"}) as gateway:
        await gateway.says(lambda text: text.startswith("m-1-0 INITIALIZING loading_model"))
        pid = (await gateway.pids())["m-1-0"]
        os.kill(pid_of(gateway, "gateway.mains.control"), signal.SIGKILL)
        await gateway.says(lambda text: text == f"m-1-0 adopted, pid {pid}")
        await gateway.ready("m-1-0", "m-1-1")
        assert (await gateway.pids())["m-1-0"] == pid
        lines = told(gateway)
        starts = [line for line in lines if "starting on" in line]
        assert starts == ["m-1-0 starting on cpu0", "m-1-1 starting on cpu0"]
        first_ready = next(n for n, line in enumerate(lines) if line.startswith("m-1-0 READY"))
        assert lines.index(starts[1]) > first_ready


UNTIL_MENDED = """
import os, sys
os.path.exists(sys.argv[1]) or sys.exit(9)
os.execv(sys.argv[2], sys.argv[2:])
"""


async def test_a_crash_loop_is_shown_with_its_cause_and_a_start_ends_it(tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    text = models(tmp_path, command=[sys.executable, "-c", UNTIL_MENDED, str(mended), *COMMAND])
    text += "\n[launch]\nrestart_min_s = 0.5\nrestart_max_s = 3600\n"
    async with running(tmp_path, text) as gateway:
        await gateway.says(lambda text: "crash loop" in text)  # the next try is 8 s away
        instance = await gateway.read("/instances/m-1-0")
        problems = (await gateway.read("/status"))["problems"]
        mended.touch()
        code, receipt = await gateway.change("POST", "/instances/m-1-0/start")
        assert (code, receipt["changes"]) == (200, ["m-1-0 is started"])
        await gateway.ready("m-1-0")
        assert (instance["phase"], instance["restarts"]) == ("crash_loop", 5)
        assert "the last by exit 9" in instance["reason"]
        assert any("crash loop" in problem for problem in problems)
        assert (await gateway.read("/instances/m-1-0"))["phase"] == "serving"
