"""Under steady load nothing is lost: not by a drain, not by weights, not by a reload."""

import asyncio
import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from tests.live.clients import Answer, ask, crowd, streams
from tests.live.gateways import Gateway, config, running, scripted_model
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live


def two_instances(folder: Path, **keys: object) -> str:
    write_snapshot(folder / "models", "m", "1")
    return config(folder, scripted_model("m", {"1": 100}, replicas={"1": 2}, limit=8, **keys))


def two_versions(folder: Path, small: float = 5) -> str:
    for version in ("1", "2"):
        write_snapshot(folder / "models", "m", version)
    return config(folder, scripted_model("m", {"1": 95, "2": small}, limit=8))


async def in_flight(gateway: Gateway, instance: str) -> int:
    held: int = (await gateway.read(f"/instances/{instance}"))["in_flight"]
    return held


async def test_draining_one_of_two_instances_under_load_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        async with crowd(gateway, "m", clients=8, max_tokens=20) as traffic:
            await traffic.has(16)
            assert set(traffic.by_instance()) == {"m-1-0", "m-1-1"}
            code, said = await gateway.command("drain", "m-1-0", "--wait")
            assert code == 0, said
            assert await in_flight(gateway, "m-1-0") == 0
            before = traffic.by_instance()["m-1-0"]
            await traffic.more(24)
            assert traffic.by_instance()["m-1-0"] == before  # held out: sent nothing
            code, said = await gateway.command("undrain", "m-1-0")
            assert code == 0, said
            await gateway.ready("m-1-0", after=_line_of(gateway, "undrained"))
            await traffic.more(32)
            assert traffic.by_instance()["m-1-0"] > before
        assert traffic.lost == []
        (drain,) = (await gateway.read("/drains"))["drains"]
        assert drain["lost"] == []
        assert await gateway.end() == 0


def _line_of(gateway: Gateway, words: str) -> int:
    return next(n for n, line in enumerate(gateway.lines) if words in str(line["message"]))


async def test_a_drain_that_runs_out_of_time_names_what_it_cut(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        (answer,) = await streams(gateway, "m", 1)
        (lease,) = (await gateway.read("/leases"))["leases"]
        instance = lease["instance"]
        code, said = await gateway.command("drain", instance, "--grace", "0.2", "--wait")
        assert code == 1, said
        assert lease["request_id"] in said
        cut = await answer
        assert not cut.whole
        assert cut.broke  # visibly: no clean end of a cut answer
        (drain,) = (await gateway.read("/drains"))["drains"]
        (lost,) = drain["lost"]
        assert (lost["request_id"], lost["instance"]) == (lease["request_id"], instance)
        assert (lost["model"], lost["version"], lost["stage"]) == ("m", "1", "streaming")
        assert lost["bytes"] > 0


async def test_the_last_routable_instance_is_drained_by_force_only(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        assert (await gateway.command("drain", "m-1-0", "--wait"))[0] == 0
        code, said = await gateway.command("drain", "m-1-1")
        assert (code, "--force" in said) == (1, True), said
        assert (await gateway.command("drain", "m-1-1", "--force", "--wait"))[0] == 0
        refused = await ask(gateway, "m")
        assert (refused.status, refused.code) == (503, "no_ready_instance")
        named = {one["instance"] for one in refused.body["error"]["instances"]}
        assert named == {"m-1-0", "m-1-1"}


async def test_weights_95_to_5_give_the_small_version_4_to_6_of_any_100(tmp_path: Path) -> None:
    async with running(tmp_path, two_versions(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-2-0")
        await gateway.routes("m", {"1": 95, "2": 5})
        answers = [await ask(gateway, "m", 1, stream=False) for _ in range(300)]
        small = [answer.version == "2" for answer in answers]
        windows = [sum(small[at : at + 100]) for at in range(201)]
        assert set(windows) <= {4, 5, 6}
        assert all(answer.whole for answer in answers)


async def test_a_weight_of_0_is_none_from_the_answer_on(tmp_path: Path) -> None:
    async with running(tmp_path, two_versions(tmp_path, small=95)) as gateway:
        await gateway.ready("m-1-0", "m-2-0")
        await gateway.routes("m", {"1": 95, "2": 95})
        async with crowd(gateway, "m", clients=4, max_tokens=1) as traffic:
            await traffic.has(20)
            code, said = await gateway.command("weight", "m", "1=100", "2=0")
            assert code == 0, said
            answers = [await ask(gateway, "m", 1, stream=False) for _ in range(40)]
            assert {answer.version for answer in answers} == {"1"}
        assert traffic.lost == []
        assert {answer.version for answer in traffic.answers} == {"1", "2"}


async def test_reloads_under_load_lose_nothing(tmp_path: Path) -> None:
    text = two_instances(tmp_path)
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        async with crowd(gateway, "m", clients=8, max_tokens=20) as traffic:
            await traffic.has(8)
            generations = [(await gateway.read("/status"))["generation"]]
            for limit in (5, 6, 7):
                fresh = text.replace("limit = 8", f"limit = {limit}")
                (tmp_path / "config.toml").write_text(fresh)
                code, said = await gateway.command("reload")
                assert code == 0, said
                await traffic.more(8)
                assert (await gateway.read("/models/m"))["limit"] == limit
                generations.append((await gateway.read("/status"))["generation"])
            # A third instance joins and leaves again; the two others are not touched.
            pids = await gateway.pids()
            bigger = text.replace('replicas = { "1" = 2 }', 'replicas = { "1" = 3 }')
            (tmp_path / "config.toml").write_text(bigger)
            gateway.process.send_signal(signal.SIGHUP)
            await gateway.ready("m-1-2")
            await traffic.more(24)
            (tmp_path / "config.toml").write_text(text)
            gateway.process.send_signal(signal.SIGHUP)
            await gateway.says(lambda message: message.startswith("m-1-2 ended by exit 0"))
            await traffic.more(8)
            assert await gateway.pids() == pids
        assert traffic.lost == []
        assert traffic.by_instance()["m-1-2"] > 0
        assert all(old < new for old, new in pairwise(generations))


async def test_an_invalid_reload_changes_nothing(tmp_path: Path) -> None:
    text = two_instances(tmp_path)
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        before = await gateway.read("/config"), await gateway.pids()
        generation = (await gateway.read("/status"))["generation"]
        bad = text.replace("limit = 8", "limit = 0").replace("[gateway]", "[gateway]\nworkers = 3")
        (tmp_path / "config.toml").write_text(bad)
        code, said = await gateway.command("reload")
        assert code == 1
        assert "model[0].limit: must be at least 1, not 0" in said
        after = len(gateway.lines)
        gateway.process.send_signal(signal.SIGHUP)
        await gateway.says(lambda message: "not taken over (SIGHUP)" in message, after)
        assert (await gateway.read("/config"), await gateway.pids()) == before
        assert (await gateway.read("/status"))["generation"] == generation
        assert (await ask(gateway, "m")).whole
        (tmp_path / "config.toml").write_text(bad.replace("limit = 0", "limit = 8"))
        code, said = await gateway.command("reload")
        assert code == 1
        assert "gateway.workers: cannot change live" in said


async def test_no_room_is_a_429_that_says_when_to_come_back(tmp_path: Path) -> None:
    text = two_instances(tmp_path, queue_max=1, queue_timeout_s=60)
    text = text.replace("limit = 8", "limit = 1")
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        held = await streams(gateway, "m", 2, until=tmp_path / "end")
        two_more = [asyncio.create_task(ask(gateway, "m", 1)) for _ in range(2)]
        done, waiting = await asyncio.wait(two_more, return_when=asyncio.FIRST_COMPLETED)
        (refused,) = [task.result() for task in done]
        assert (refused.status, refused.code) == (429, "saturated")
        assert refused.body["error"]["retry_after_s"] >= 1
        (tmp_path / "end").touch()
        answers: list[Answer] = await asyncio.gather(*held, *waiting)
        assert all(answer.whole for answer in answers)  # the one that waited was served


async def test_an_unknown_model_is_a_404_in_openai_s_shape(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        refused = await ask(gateway, "nobody")
        assert (refused.status, refused.code) == (404, "unknown_model")
        assert set(refused.body["error"]) >= {"message", "type", "code", "param"}


async def test_a_drain_survives_the_control_process(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        assert (await gateway.command("drain", "m-1-0", "--wait"))[0] == 0
        pids = await gateway.pids()
        async with crowd(gateway, "m", clients=4, max_tokens=10) as traffic:
            await traffic.has(4)
            after = len(gateway.lines)
            os.kill(_control_of(gateway), signal.SIGKILL)
            await gateway.says(lambda message: "every worker serves" in message, after)
            await traffic.more(12)
        assert traffic.lost == []  # workers went on without control
        assert set(traffic.by_instance()) == {"m-1-1"}
        instance = await gateway.read("/instances/m-1-0")
        assert (instance["intent"], instance["state"]) == ("drain", "DRAINING")
        assert await gateway.pids() == pids  # no instance was restarted


def _control_of(gateway: Gateway) -> int:
    """The pid of the control process: the supervisor's child that is it."""
    pid = gateway.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (control,) = [
        int(child)
        for child in children
        if b"gateway.mains.control" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    return control
