"""No request reaches an instance before it is READY: real MindSpore, from the first second."""

import asyncio
from pathlib import Path

import pytest

from tests.live.clients import Answer, ask
from tests.live.gateways import Gateway, config, running
from tests.tiny import write_tiny_snapshot

pytestmark = [pytest.mark.live, pytest.mark.mindspore]

WAY = [
    "starting",
    "fetching_model",
    "checking_dependencies",
    "loading_model",
    "allocating_cache",
    "compiling",
    "warming_up",
]
TINY = """
[[model]]
name = "tiny"
weights = { "1" = 100 }
replicas = { "1" = 2 }
limit = 2
"""


async def counted(gateway: Gateway, instance: str, metric: str) -> float:
    """A counter of the instance's own, from its `/metrics`."""
    address = (await gateway.read(f"/instances/{instance}"))["http"]
    async with gateway.http.get(f"http://{address}/metrics") as response:
        lines = (await response.text()).splitlines()
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith(metric)]
    return float(value)


async def test_no_request_reaches_an_instance_before_it_is_ready(tmp_path: Path) -> None:
    write_tiny_snapshot(tmp_path / "models")
    async with running(tmp_path, config(tmp_path, TINY)) as gateway:
        ready = asyncio.create_task(gateway.ready("tiny-1-0", "tiny-1-1"))
        answers: list[Answer] = []
        while not ready.done():
            answers.append(await ask(gateway, "tiny", 2, stream=False))
        await ready
        async with asyncio.TaskGroup() as tasks:
            last = [tasks.create_task(ask(gateway, "tiny", 8)) for _ in range(4)]
        assert {task.result().instance for task in last} == {"tiny-1-0", "tiny-1-1"}
        refused = [answer for answer in answers if answer.status != 200]
        served = [answer for answer in answers if answer.status == 200]
        assert all(answer.whole for answer in [*served, *(task.result() for task in last)])
        assert {(answer.status, answer.code) for answer in refused} == {(503, "no_ready_instance")}
        for answer in refused:
            error = answer.body["error"]
            assert error["retry_after_s"] >= 1
            assert {one["instance"] for one in error["instances"]} == {"tiny-1-0", "tiny-1-1"}
            assert all(one["state"] != "READY" for one in error["instances"])
        # The instances' own gates agree: they never had to turn anything away.
        for instance in ("tiny-1-0", "tiny-1-1"):
            assert await counted(gateway, instance, "sluicegate_instance_rejected_total") == 0
        assert await gateway.end() == 0


async def test_one_instance_loads_at_a_time_and_the_other_says_that_it_waits(
    tmp_path: Path,
) -> None:
    write_tiny_snapshot(tmp_path / "models")
    async with running(tmp_path, config(tmp_path, TINY)) as gateway:
        await gateway.ready("tiny-1-0", "tiny-1-1")
        told = [str(line["message"]) for line in gateway.lines]
        waits = next(n for n, text in enumerate(told) if text.startswith("tiny-1-1 waits for cpu0"))
        ready = next(n for n, text in enumerate(told) if text.startswith("tiny-1-0 READY"))
        begins = next(n for n, text in enumerate(told) if text.startswith("tiny-1-1 starting"))
        assert waits < ready < begins
        phases = [text.split()[2] for text in told if text.startswith("tiny-1-0 INITIALIZING")]
        seen = list(dict.fromkeys(phases))  # a tiny model may be through a phase unseen
        assert seen == [phase for phase in WAY if phase in seen]
        assert {"loading_model", "compiling"} <= set(seen)
