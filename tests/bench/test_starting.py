"""Programs are waited for as long as they live, and ended."""

import asyncio
import sys

import pytest

from tests.bench.starting import CannotStart, answers, listens, process
from tests.ports import free_port

SERVER = """
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
for status in (b"503 No", b"503 No", b"200 OK"):
    accepted, _ = listening.accept()
    accepted.recv(4096)
    accepted.sendall(b"HTTP/1.1 " + status + b"\\r\\ncontent-length: 0\\r\\n\\r\\n")
    accepted.close()
"""


async def test_a_program_that_is_not_there_cannot_start() -> None:
    with pytest.raises(CannotStart, match="no-such-proxy is not installed"):
        async with process("no-such-proxy"):
            raise AssertionError("it has started")


async def test_a_program_that_ends_is_not_waited_for() -> None:
    async with process(sys.executable, "-c", "raise SystemExit(3)") as started:
        with pytest.raises(CannotStart, match="exit code 3"):
            await listens(free_port(), started)


@pytest.mark.live
async def test_a_router_answers_when_its_first_200_has_come() -> None:
    port = free_port()
    async with process(sys.executable, "-c", SERVER, str(port)) as started:
        await answers(port, started)
        assert await started.wait() == 0  # both refusals were met before


@pytest.mark.live
async def test_a_program_is_ended_at_the_end() -> None:
    command = (sys.executable, "-c", "print(flush=True); input()")
    async with process(*command, stdout=asyncio.subprocess.PIPE) as started:
        assert started.stdout is not None
        await started.stdout.readline()
    assert started.returncode is not None
