"""The acceptance script's raw bytes against a compiled worker process.

The interpreted one passes it as part of a whole gateway (`tests/live/test_acceptance.py`).
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from gateway.native import interpreted
from tests.gateway.dataplane.harness import running
from tests.gateway.plain import route, table, target, version
from tests.ports import free_port

SCRIPT = Path(__file__).parents[2] / "http_cases.py"


@pytest.mark.live
@pytest.mark.skipif(bool(interpreted(sys.modules)), reason="a whole gateway is tested instead")
async def test_every_case_passes(tmp_path: Path) -> None:
    port = free_port()
    report = tmp_path / "report.json"
    async with running(tmp_path) as worker:
        await worker.publish(table(1, route(version(target(1, port)))))
        script = await asyncio.create_subprocess_exec(
            *(sys.executable, str(SCRIPT), f"127.0.0.1:{worker.port}"),
            *("--upstream-port", str(port), "--json", str(report), "--ttft", "1"),
            # What is buffered comes 1.2 s late and more; what is not may take its time as well.
            *("--latency", "0.8", "--abort-within", "5"),
            stdout=asyncio.subprocess.DEVNULL,
        )
        await script.wait()
        failed = [
            f"{case['id']} ({case['level']}): {case['why']}"
            for case in json.loads(report.read_text())
            if case["verdict"] != "PASS"
        ]
        assert failed == []
        assert worker.segment.in_flight(1) == 0
