"""Runs a script with the command line of tests/http_cases.py against a gateway of its own.

Floor 5, I/O.
`make http-cases CASES=path/to/script.py ARGS="--only 'A*'"`. The script opens the instance's port
itself; the gateway takes it for READY from the beginning. Exits with the script's code.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.serving import gateway_over
from tests.ports import free_port


async def run(script: str, arguments: Sequence[str]) -> int:
    """The script's exit code."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sluicegate-") as folder:
        async with gateway_over(Path(folder), [f"127.0.0.1:{port}"]) as gateway:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, script, gateway.where["listen"][0]),
                *("--upstream-port", str(port), "--metrics", f"{gateway.admin}/metrics"),
                *("--inflight-metric", "sluicegate_in_flight", *arguments),
            )
            return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1], sys.argv[2:])))
