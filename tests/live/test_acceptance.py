"""The acceptance script against whole gateways: raw bytes in, judged from both ends.

After each case a plain request must be served as ever and the in-flight gauge be back at 0.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bench.serving import gateway_over
from tests.ports import free_port

pytestmark = pytest.mark.live

SCRIPT: Final = Path(__file__).parents[1] / "http_cases.py"
# What is buffered comes 1.2 s late and more; on a busy machine, what is not may take its time too.
LIMITS: Final = ("--latency", "0.8", "--abort-within", "5", "--ttft", "1")
# So that the script need not wait for minutes; the cases that are slow on purpose go on to pass.
SHORT: Final = "\n[timeouts]\nclient_head_s = 3\nclient_body_idle_s = 3\nclient_idle_s = 5\n"


async def judged(folder: Path, deadlines: str, *chosen: str) -> list[dict[str, Any]]:
    """What the script says of a gateway of its own."""
    port, report = free_port(), folder / "report.json"
    async with gateway_over(folder, [f"127.0.0.1:{port}"]) as gateway:
        config = folder / "config.toml"
        config.write_text(config.read_text() + deadlines)
        code, said = await gateway.command("reload")
        assert code == 0, said
        script = await asyncio.create_subprocess_exec(
            *(sys.executable, str(SCRIPT), gateway.where["listen"][0]),
            *("--upstream-port", str(port), "--json", str(report), *LIMITS, *chosen),
            *("--metrics", f"{gateway.admin}/metrics", "--inflight-metric", "sluicegate_in_flight"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        await script.wait()
        assert await gateway.end() == 0
    results: list[dict[str, Any]] = json.loads(report.read_text())
    return results


async def test_every_case_passes_and_leaves_nothing_in_flight(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Two gateways side by side: the script waits most of the time."""
    folder = tmp_path_factory.mktemp
    parsing, streaming = await asyncio.gather(
        judged(folder("parsing"), "", "--only", "A*"),
        judged(folder("streaming"), SHORT, "--only", "B*,S*", "--slow"),
    )
    results = [*parsing, *streaming]
    failed = [
        f"{case['id']} ({case['level']}): {case['verdict']} {case['why']}"
        for case in results
        if case["verdict"] != "PASS"
    ]
    assert failed == []
    assert len(results) >= 186  # all of them, the three slow ones too
