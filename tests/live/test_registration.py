"""An instance that nobody launched: it registers, freezes, rejoins, restarts, and says farewell."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from sluicegate.v1 import lifecycle_pb2 as wire
from sluicegate.v1 import lifecycle_pb2_grpc as stubs
from tests.live.clients import ask
from tests.live.gateways import PATIENCE_S, ROOT, Gateway, config, running
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live

MODEL = '[[model]]\nname = "m"\nweights = { "1" = 100 }\n'


@asynccontextmanager
async def instance(
    gateway: Gateway, http: str = "127.0.0.1:0", rpc: str = "127.0.0.1:0"
) -> AsyncIterator[asyncio.subprocess.Process]:
    """One of our own, named x; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.live.scripted_instance"),
        *("--model", "m", "--version", "1", "--instance-id", "x"),
        *("--registry", gateway.where["registry"], "--root", str(gateway.folder / "models")),
        *("--http", http, "--grpc", rpc),
        cwd=ROOT,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def shown(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = await gateway.read("/instances/x")
    return found


async def serves(gateway: Gateway) -> bool:
    """Whether the first answer that is no refusal comes from it: READY is told before the poll that
    makes it routable."""
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await ask(gateway, "m")).code == "no_ready_instance":
            assert answer.status == 503
    return answer.whole and answer.instance == "x"


async def test_a_registered_instance_freezes_rejoins_restarts_and_says_farewell(
    tmp_path: Path,
) -> None:
    write_snapshot(tmp_path / "models", "m", "1")
    lease = "[registry]\nttl_s = 6\nbeat_s = 1\n"
    text = config(tmp_path, MODEL).replace("[registry]\n", lease)
    async with running(tmp_path, text) as gateway:
        async with instance(gateway) as first:
            await gateway.ready("x")
            assert await serves(gateway)
            before = await shown(gateway)
            assert before["origin"] == "registered"

            after = len(gateway.lines)
            os.kill(first.pid, signal.SIGSTOP)
            await gateway.says(lambda text: text.startswith("x is lost: not heard of for"), after)
            await gateway.routes("m", {"1": 100})
            assert (await ask(gateway, "m")).code == "no_ready_instance"
            assert (await shown(gateway))["health"] == "lost"

            after = len(gateway.lines)
            os.kill(first.pid, signal.SIGCONT)
            await gateway.says(lambda text: text == "x is good", after)
            assert (await shown(gateway))["incarnation"] == before["incarnation"]
            assert await serves(gateway)

            await forge(gateway, before)
            assert (await ask(gateway, "m")).whole
            after = len(gateway.lines)
        async with instance(gateway, before["http"], before["grpc"]) as second:
            await gateway.ready("x", after=after)
            again = await shown(gateway)
            assert again["incarnation"] != before["incarnation"]
            assert (again["http"], again["grpc"]) == (before["http"], before["grpc"])
            assert again["in_flight"] == 0
            assert await serves(gateway)

            after = len(gateway.lines)
            second.send_signal(signal.SIGTERM)
            await gateway.says(lambda text: text.startswith("x said farewell"), after)
            assert await asyncio.wait_for(second.wait(), PATIENCE_S) == 0
        assert (await shown(gateway))["state"] == "STOPPED"
        await gateway.routes("m", {"1": 100})
        assert (await ask(gateway, "m")).code == "no_ready_instance"


async def forge(gateway: Gateway, known: dict[str, Any]) -> None:
    """What somebody can say who has read the admin API: none of it is taken."""
    after = len(gateway.lines)
    status = wire.InstanceStatus(
        instance_id="x",
        incarnation=known["incarnation"],
        sequence=1 << 60,
        model="m",
        version="1",
        http_address=known["http"],
        grpc_address=known["grpc"],
        state=wire.DRAINING,
        phase=wire.PHASE_DRAINING,
    )
    async with grpc.aio.insecure_channel(gateway.where["registry"]) as channel:
        registry = stubs.RegistryStub(channel)
        goodbye = wire.DeregisterRequest(instance_id="x", incarnation=status.incarnation)
        await registry.Deregister(goodbye, timeout=PATIENCE_S)
        beat = await registry.Heartbeat(wire.HeartbeatRequest(status=status), timeout=PATIENCE_S)
        assert beat.order == wire.ORDER_REGISTER
        for incarnation, code in (
            (known["incarnation"], grpc.StatusCode.ALREADY_EXISTS),
            ("another", grpc.StatusCode.UNAVAILABLE),
        ):
            status.incarnation = incarnation
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await registry.Register(wire.RegisterRequest(status=status), timeout=PATIENCE_S)
            assert refused.value.code() is code
    await gateway.says(lambda text: text.startswith("farewell refused: x"), after)
    seen = await shown(gateway)
    assert (seen["state"], seen["incarnation"]) == ("READY", known["incarnation"])
