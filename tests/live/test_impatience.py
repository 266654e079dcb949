"""Clients that leave a gateway under load: nothing is held for them, and no instance is blamed."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path

import pytest

from tests.live.clients import ask, streams
from tests.live.gateways import Gateway, config, running, scripted_model
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live


async def counted(gateway: Gateway, metric: str, version: str) -> dict[str, float]:
    """Values of a metric of this version, by outcome; those that are 0 left out."""
    async with gateway.http.get(f"{gateway.admin}/metrics") as response:
        text = await response.text()
    lines = re.findall(rf"^{metric}{{(.*)}} (\S+)$", text, re.MULTILINE)
    told = {
        match[1]: float(value)
        for labels, value in lines
        if f'version="{version}"' in labels and (match := re.search('outcome="([^"]*)"', labels))
    }
    return {outcome: value for outcome, value in told.items() if value}


async def test_fifty_clients_that_leave_a_canary_are_no_failure_of_it(tmp_path: Path) -> None:
    """Half of them while they wait for room or a first token, half in mid-stream. It goes on being
    healthy and takes the next request; a drain finds nothing of theirs."""
    for version in ("1", "2"):
        write_snapshot(tmp_path / "models", "m", version)
    model = scripted_model("m", {"1": 0, "2": 100}, limit=8)
    async with running(tmp_path, config(tmp_path, model)) as gateway:
        await gateway.ready("m-1-0", "m-2-0")
        await gateway.routes("m", {"1": 0, "2": 100})
        streaming = await streams(gateway, "m", 8)  # as many as the limit lets in
        waiting = [
            asyncio.create_task(ask(gateway, "m", 3000, stream=number < 17)) for number in range(42)
        ]
        everyone = [*streaming, *waiting]
        for client in everyone:
            client.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*everyone)
        assert (await ask(gateway, "m", 2)).whole
        instance = await gateway.read("/instances/m-2-0")
        assert (instance["health"], instance["state"]) == ("good", "READY")
        code, said = await gateway.command("drain", "m-2-0", "--force", "--wait")
        assert code == 0, said
        (drain,) = (await gateway.read("/drains"))["drains"]
        assert drain["lost"] == []
        ended = await counted(gateway, "sluicegate_attempts_total", "2")
        # refused: the instance still held, for a moment, what its clients had left
        assert set(ended) - {"refused"} == {"client_gone", "served"}
        assert ended["client_gone"] >= 8
        assert (await gateway.read("/leases"))["leases"] == []
