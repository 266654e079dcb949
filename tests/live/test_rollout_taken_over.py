"""One gateway takes over from another in the middle of a rollout, which goes on in the new one."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from gateway.rollout.machine import Phase
from tests.live.clients import crowd
from tests.live.gateways import running
from tests.live.scripted_instance import write_snapshot
from tests.live.test_rollout import enters, rolling
from tests.live.test_rollout import started as rollout_started
from tests.live.test_take_over import ended, lives, successor

pytestmark = pytest.mark.live

# The first one is left when it is promoted, however long the take-over lasts.
STEPS: Final = (
    "[{ weight = 50, hold_s = 0, requests_min = 1, gate = true }, "
    "{ weight = 75, hold_s = 0.1, requests_min = 10 }, "
    "{ weight = 100, hold_s = 0.1, requests_min = 10 }]"
)


async def test_a_rollout_goes_on_over_a_take_over_and_nothing_is_lost(tmp_path: Path) -> None:
    """Counters of the new gateway are its own: it judges the steps that follow by them."""
    for version in ("1", "2"):
        write_snapshot(tmp_path / "models", "m", version)
    text = rolling(tmp_path, {"1": 100}, {"1": 1}, steps=STEPS)
    async with AsyncExitStack() as later, running(tmp_path, text) as old:
        await old.ready("m-1-0")
        await old.routes("m", {"1": 100})
        async with crowd(old, "m", clients=8, max_tokens=4) as clients:
            after = len(old.lines)
            await rollout_started(old, "2")
            await enters(old, Phase.STEP, after)
            await clients.more(20)
            before = await lives(old)
            assert set(before) == {"m-1-0", "m-2-0"}
            new = await later.enter_async_context(successor(old))  # outlives its clients
            assert await lives(new) == before
            assert (await new.read("/models/m/rollout"))["step"] == 1
            await clients.more(20)
            status, said = await new.change("POST", "/models/m/rollout/promote", {"step": 1})
            assert status == 200, said
            for phase in (Phase.STEP, Phase.PROMOTING, Phase.DONE):
                await enters(new, phase, after=0)
            await new.says(lambda line: line.startswith("m-1-0 forgotten"))
            answered = len(clients.answers)
            await clients.more(20)
        assert clients.lost == []
        assert {one.version for one in clients.answers[answered + 8 :]} == {"2"}
        assert await lives(new) == {"m-2-0": before["m-2-0"]}
        told = await new.read("/models/m/rollout")
        steps = [one["step"] for one in told["transitions"] if one["phase"] == "step"]
        assert list(dict.fromkeys(steps)) == [1, 2, 3]  # in order, each counted anew or not
        assert await ended(old) == 0
