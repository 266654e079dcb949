"""Programs of others, started and ended; when they listen, and when they answer.

Floor 3, I/O.
None of them tells anybody that it is ready, so they are asked again and again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import IO, Final

PATIENCE_S: Final = 30.0  # for a program to answer: routers look at all their instances first
END_S: Final = 10.0  # from being asked to end to being killed
LOOK_AGAIN_S: Final = 0.02
BODY: Final = b'{"model":"m","prompt":"hi"}'
QUESTION: Final = (
    b"POST /v1/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)

Process = asyncio.subprocess.Process


class CannotStart(Exception):
    """A contender or a part of the bench does not run here."""


@asynccontextmanager
async def process(
    *command: str,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Process]:
    """Ended at the end. Raises: CannotStart."""
    try:
        started = await asyncio.create_subprocess_exec(
            *command, stdout=stdout, stderr=stderr, env=environment
        )
    except FileNotFoundError:
        raise CannotStart(f"{command[0]} is not installed") from None
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            started.terminate()
        try:
            await asyncio.wait_for(started.wait(), END_S)
        except TimeoutError:
            started.kill()
            await started.wait()


async def listens(port: int, started: Process) -> None:
    """Returns when the port takes connections. Raises: CannotStart."""
    await _until(started, lambda: _says(port, b"", b""))


async def answers(port: int, started: Process) -> None:
    """Returns when a request is answered with 200. Raises: CannotStart."""
    await _until(started, lambda: _says(port, QUESTION, b"HTTP/1.1 200 "))


async def _until(started: Process, holds: Callable[[], Awaitable[bool]]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while started.returncode is None:
                if await holds():
                    return
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        raise CannotStart(f"it did not answer within {PATIENCE_S:.0f} s") from None
    raise CannotStart(f"it ended with exit code {started.returncode} before it answered")


async def _says(port: int, question: bytes, wanted: bytes) -> bool:
    """Whether what comes back on the port begins as wanted."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(question)
    try:
        return await reader.readexactly(len(wanted)) == wanted
    except (asyncio.IncompleteReadError, OSError):
        return False
    finally:
        writer.close()
