"""A short chaos run with kills, as `make chaos` does it: every loss has a name."""

import asyncio
import re
import sys

import pytest

from tests.live.gateways import ROOT

pytestmark = pytest.mark.live

SECONDS = "20"  # of trouble; start and end come on top
BOUND_S = 600.0  # on a machine that does everything else at the same time


async def run(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos", "--no-mindspore", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), BOUND_S)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    return process.returncode or 0, output.decode()


async def test_whoever_is_killed_every_lost_request_has_a_name() -> None:
    code, said = await run("--seconds", SECONDS, "--kills", "6", "--seed", "1")
    assert code == 0, said
    last = said.splitlines()[-1]
    assert re.fullmatch(r"sent=\d+ answered=\d+ lost=\d+ unnamed=0", last), said


async def test_what_an_operator_does_in_order_costs_nobody_anything() -> None:
    code, said = await run("--seconds", "10", "--kills", "0", "--seed", "2")
    assert code == 0, said
    last = said.splitlines()[-1]
    assert re.fullmatch(r"sent=(\d+) answered=\1 lost=0 unnamed=0", last), said
