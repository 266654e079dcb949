"""No request reaches an instance before it is READY: real MindSpore, from the first second."""

import asyncio
from dataclasses import dataclass

import pytest
import pytest_asyncio

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
BOTH = ("tiny-1-0", "tiny-1-1")
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


@dataclass(frozen=True, slots=True)
class Start:
    """What was seen of a gateway from its first second until both instances have answered."""

    meanwhile: list[Answer]  # to somebody who never stopped asking
    last: list[Answer]
    rejected: dict[str, float]  # by an instance's own gate
    told: list[str]
    code: int


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_snapshot(folder / "models")
    async with running(folder, config(folder, TINY)) as gateway:
        ready = asyncio.create_task(gateway.ready(*BOTH))
        meanwhile: list[Answer] = []
        while not ready.done():
            meanwhile.append(await ask(gateway, "tiny", 2, stream=False))
        await ready
        await gateway.routes("tiny", {"1": 100})
        async with asyncio.TaskGroup() as tasks:
            last = [tasks.create_task(ask(gateway, "tiny", 8)) for _ in range(4)]
        rejected = {
            instance: await counted(gateway, instance, "sluicegate_instance_rejected_total")
            for instance in BOTH
        }
        code = await gateway.end()
        told = [str(line["message"]) for line in gateway.lines]
    return Start(meanwhile, [task.result() for task in last], rejected, told, code)


def test_no_request_reaches_an_instance_before_it_is_ready(start: Start) -> None:
    assert {answer.instance for answer in start.last} == set(BOTH)
    refused = [answer for answer in start.meanwhile if answer.status != 200]
    served = [answer for answer in start.meanwhile if answer.status == 200]
    assert all(answer.whole for answer in [*served, *start.last])
    assert {(answer.status, answer.code) for answer in refused} == {(503, "no_ready_instance")}
    for answer in refused:
        error = answer.body["error"]
        assert error["retry_after_s"] >= 1
        assert {one["instance"] for one in error["instances"]} == set(BOTH)
        assert all(one["state"] != "READY" for one in error["instances"])
    # The instances' own gates agree: they never had to turn anything away.
    assert start.rejected == dict.fromkeys(BOTH, 0.0)
    assert start.code == 0


def test_one_instance_loads_at_a_time_and_the_other_says_that_it_waits(start: Start) -> None:
    told = start.told
    waits = next(n for n, text in enumerate(told) if text.startswith("tiny-1-1 waits for cpu0"))
    ready = next(n for n, text in enumerate(told) if text.startswith("tiny-1-0 READY"))
    begins = next(n for n, text in enumerate(told) if text.startswith("tiny-1-1 starting"))
    assert waits < ready < begins
    phases = [text.split()[2] for text in told if text.startswith("tiny-1-0 INITIALIZING")]
    seen = list(dict.fromkeys(phases))  # a tiny model may be through a phase unseen
    assert seen == [phase for phase in WAY if phase in seen]
    assert "compiling" in seen
