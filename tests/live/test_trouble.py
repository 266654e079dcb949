"""Whatever dies, the rest goes on: instances, workers, control, the gateway itself."""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Final

import pytest

from sluicegate.processes import descendants
from tests.live.clients import Answer, ask, begun, crowd, streams
from tests.live.gateways import PATIENCE_S, Gateway, config, gone, running, scripted_model
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live

CLIENTS: Final = 12  # over two workers and two instances of eight places each


def two_instances(folder: Path, gateway: str = "") -> str:
    write_snapshot(folder / "models", "m", "1")
    model = scripted_model("m", {"1": 100}, replicas={"1": 2}, limit=8)
    return config(folder, model, gateway=gateway)


def children(gateway: Gateway) -> dict[int, str]:
    """Processes below the supervisor, with their command lines."""
    pid = gateway.process.pid
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {
        int(child): Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        for child in found
    }


def below(gateway: Gateway) -> list[int]:
    """Everything that the supervisor has started, directly or not."""
    return descendants(gateway.process.pid)


def pid_of(gateway: Gateway, words: str) -> int:
    return next(pid for pid, command in children(gateway).items() if words in command)


async def test_an_instance_killed_in_a_stream_is_a_visible_cut_and_comes_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        streaming = await streams(gateway, "m", 4, until=tmp_path / "end")
        held = {lease["instance"] for lease in (await gateway.read("/leases"))["leases"]}
        assert held == {"m-1-0", "m-1-1"}
        after = len(gateway.lines)
        os.kill((await gateway.pids())["m-1-0"], signal.SIGKILL)
        await gateway.says(lambda text: text.startswith("m-1-0 ended"), after)
        (tmp_path / "end").touch()
        answers = await asyncio.gather(*streaming)
        for answer in answers:
            assert answer.status == 200
            if answer.instance == "m-1-0":
                assert not answer.whole
                assert answer.broke  # no clean end of a cut answer
            else:
                assert answer.whole
        assert (await ask(gateway, "m")).whole  # by the other, or by the one that is back
        await gateway.ready("m-1-0", after=after)
        await gateway.routes("m", {"1": 100})
        again = [await ask(gateway, "m") for _ in range(16)]
        assert {answer.instance for answer in again} == {"m-1-0", "m-1-1"}
        assert all(answer.whole for answer in again)


async def test_a_killed_worker_loses_its_own_requests_by_name_and_is_replaced(
    tmp_path: Path,
) -> None:
    """Nobody else's: what clients miss, what is counted, and what is named are the same."""
    async with running(tmp_path, two_instances(tmp_path, "workers = 2")) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        events = [asyncio.Event() for _ in range(CLIENTS)]
        clients = [asyncio.create_task(asks_twice(gateway, seen)) for seen in events]
        await asyncio.gather(*(begun(*one) for one in zip(events, clients, strict=True)))
        leases = (await gateway.read("/leases"))["leases"]
        victim = leases[0]["worker"]
        mine = {lease["request_id"] for lease in leases if lease["worker"] == victim}
        after = len(gateway.lines)
        os.kill(victim, signal.SIGKILL)
        answers = await asyncio.gather(*clients)
        lost = [first for first, _ in answers if not first.whole]
        assert len(lost) == len(mine)
        assert all(answer.broke for answer in lost)
        assert all(then.whole for _, then in answers)  # traffic goes on, for those who lost one too
        await gateway.says(
            lambda text: text.startswith("worker") and text.endswith("serves"), after
        )
        workers = (await gateway.read("/status"))["workers"]
        assert len(workers) == 2
        assert victim not in {worker["pid"] for worker in workers}
        await gateway.quiet()
        causes = await counted(gateway, "sluicegate_requests_lost_total", "cause")
        assert {cause: n for cause, n in causes.items() if n} == {"worker_died": len(mine)}
        outcomes = await counted(gateway, "sluicegate_requests_total", "outcome")
        served = 2 * CLIENTS - len(mine)
        assert {one: n for one, n in outcomes.items() if n} == {"served": served, "lost": len(mine)}
        assert set((await counted(gateway, "sluicegate_in_flight", "instance")).values()) == {0}
        said = " ".join(str(line.get("message")) for line in gateway.lines[after:])
        assert set(re.findall(r"request (\w+) lost on m-1-[01]: worker died", said)) == mine
        assert await gateway.end() == 0


async def asks_twice(gateway: Gateway, seen: asyncio.Event) -> tuple[Answer, Answer]:
    """A long stream, and as soon as that is over, whatever its end, a short one."""
    return await ask(gateway, "m", 300, seen=seen), await ask(gateway, "m")


async def counted(gateway: Gateway, metric: str, label: str) -> dict[str, int]:
    """A metric's values by one of its labels."""
    async with gateway.http.get(f"{gateway.admin}/metrics") as response:
        text = await response.text()
    found = re.findall(rf'^{metric}{{.*?{label}="(\w[^"]*)".*}} (\S+)$', text, re.MULTILINE)
    return {name: int(float(value)) for name, value in found}


async def test_control_killed_under_load_costs_nobody_anything(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        pids = await gateway.pids()
        async with crowd(gateway, "m", clients=8, max_tokens=20) as traffic:
            for _ in range(2):
                await traffic.more(16)
                after = len(gateway.lines)
                os.kill(pid_of(gateway, "gateway.mains.control"), signal.SIGKILL)
                await gateway.says(lambda text: "every worker serves" in text, after)
                await traffic.more(16)
        assert traffic.lost == []
        assert await gateway.pids() == pids
        await gateway.quiet()
        assert await gateway.end() == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sluicegate.db", "other.db"),
        ('listen = ["127.0.0.1:0"]', 'listen = ["127.0.0.1:0", "127.0.0.1:0"]'),
    ],
)
async def test_a_refused_edit_of_the_config_does_not_come_in_by_a_crash_of_control(
    old: str, new: str, tmp_path: Path
) -> None:
    """Once it did: the new control opened the other store, knew no instance, and all was 503."""
    text = two_instances(tmp_path)
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        assert (await gateway.command("drain", "m-1-0", "--wait"))[0] == 0
        (tmp_path / "config.toml").write_text(text.replace(old, new))
        assert (await gateway.command("reload"))[0] == 1
        after = len(gateway.lines)
        os.kill(pid_of(gateway, "gateway.mains.control"), signal.SIGKILL)
        await gateway.says(lambda text: "every worker serves" in text, after)
        answer = await ask(gateway, "m")
        assert (answer.whole, answer.instance) == (True, "m-1-1")
        assert (await gateway.read("/instances/m-1-0"))["intent"] == "drain"
        assert not (tmp_path / "other.db").exists()
        problems = (await gateway.read("/status"))["problems"]
        assert any("cannot change live" in problem for problem in problems)


async def test_sigterm_finishes_the_streams_then_ends_everything(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        everyone = below(gateway)
        assert len(everyone) == 6  # control, a worker, two instances and their guards
        (stream,) = await streams(gateway, "m", 1, 200)
        code = await gateway.end()
        assert (await stream).whole
        assert code == 0
        for pid in everyone:
            await gone(pid)


async def test_a_second_sigterm_cuts_what_is_left(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        everyone = below(gateway)
        (stream,) = await streams(gateway, "m", 1)
        gateway.process.send_signal(signal.SIGTERM)
        await gateway.says(lambda text: text.startswith("closing"))
        gateway.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(gateway.process.wait(), PATIENCE_S) == 0
        answer = await stream
        assert not answer.whole
        assert answer.broke
        for pid in everyone:
            await gone(pid)


async def test_no_orphan_is_left_when_the_gateway_is_killed(tmp_path: Path) -> None:
    async with running(tmp_path, two_instances(tmp_path)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        everyone = below(gateway)
        gateway.process.kill()
        for pid in everyone:
            await gone(pid)


async def test_a_snapshot_with_a_wrong_checksum_is_an_error_that_names_the_file(
    tmp_path: Path,
) -> None:
    text = two_instances(tmp_path)
    weights = tmp_path / "models" / "m" / "1" / "model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes().replace(b"weights", b"damaged"))
    async with running(tmp_path, text) as gateway:
        await gateway.says(lambda text: text.startswith("m-1-0 ERROR") and weights.name in text)
        refused = await ask(gateway, "m")
        assert (refused.status, refused.code) == (503, "no_ready_instance")
        await gateway.says(lambda text: text.startswith("m-1-1 ERROR"))
        instance = await gateway.read("/instances/m-1-0")
        assert weights.name in instance["reason"]
        assert (await gateway.read("/status"))["serving"]  # the gateway itself is up
        assert await gateway.end() == 0


async def test_a_config_that_asks_for_too_much_memory_starts_what_fits(tmp_path: Path) -> None:
    text = two_instances(tmp_path).replace("memory_gb = 16", "memory_gb = 1")
    async with running(tmp_path, text) as gateway:
        await gateway.ready("m-1-0")
        await gateway.says(lambda text: text.startswith("m-1-1 waits for"))
        await gateway.routes("m", {"1": 100})
        assert (await ask(gateway, "m")).instance == "m-1-0"
        waits = await gateway.read("/instances/m-1-1")
        assert "memory" in waits["reason"], waits["reason"]
