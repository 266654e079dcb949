"""A server of somebody else behind the real gateway: launched with its agent, used, ended."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import openai
import pytest
import pytest_asyncio

from sluicegate.processes import descendants
from tests.live.clients import ask
from tests.live.gateways import Gateway, config, gone, running, scripted_model

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module")]

# As in README.md, but for the server behind the last --.
COMMAND: Final = (
    *(sys.executable, "-m", "backends.external"),
    *("--model", "{model}", "--version", "{version}", "--instance-id", "{instance_id}"),
    *("--registry", "{registry}", "--device", "{device}", "--device-kind", "{device_kind}"),
    *("--life-fd", "{instances_life}", "--error-linger-s", "1", "--warm-up", "3"),
    *("--", sys.executable, "-m", "tests.backends.external.server"),
    *("--model", "{model}", "--port", "{port}", "--grandchild"),
)


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    folder = tmp_path_factory.mktemp("external")
    keys: dict[str, Any] = {"command": COMMAND, "limit": 8, "replicas": {"1": 1}, "memory_gb": 1}
    text = config(folder, scripted_model("m", {"1": 100}, **keys))
    async with running(folder, text) as started:
        await started.ready("m-1-0")
        await started.routes("m", {"1": 100})
        yield started


async def test_the_official_client_streams_through_gateway_and_agent(gateway: Gateway) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any") as client:
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=6, stream=True
        )
        told = [chunk.choices[0].delta.content async for chunk in stream]
        whole = await client.completions.create(model="m", prompt="hi", max_tokens=3)
    assert told == ["0", "1", "2", "3", "4", "5"]
    assert whole.choices[0].text == "0 1 2"
    shown = await gateway.read("/instances/m-1-0")
    assert (shown["state"], shown["phase"]) == ("READY", "serving")


async def test_a_drain_loses_nothing_and_undrain_gives_the_server_back(gateway: Gateway) -> None:
    begun = asyncio.Event()
    stream = asyncio.create_task(ask(gateway, "m", 60, seen=begun))
    await begun.wait()
    code, output = await gateway.command("drain", "m-1-0", "--force", "--wait")
    assert code == 0, output
    assert (await stream).whole
    refused = await ask(gateway, "m")
    assert (refused.status, refused.code) == (503, "no_ready_instance")
    assert (await gateway.command("undrain", "m-1-0"))[0] == 0
    await gateway.routes("m", {"1": 100})
    assert (await ask(gateway, "m")).whole


async def test_a_stop_leaves_nothing_of_agent_and_server(gateway: Gateway) -> None:
    guard = (await gateway.pids())["m-1-0"]
    below = descendants(guard)
    assert sum("sleep" in command_of(pid) for pid in below) == 1  # in a session of its own
    code, output = await gateway.command("drain", "m-1-0", "--stop", "--force", "--wait")
    assert code == 0, output
    for pid in (guard, *below):
        await gone(pid)
