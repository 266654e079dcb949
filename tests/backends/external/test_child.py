"""A server as a process behind its guard: its last words, its end, and nothing left of it."""

import asyncio
import os
import shlex
import subprocess
import sys

import pytest

from backends.external.child import GUARD, KEPT_BYTES, Child, Exit
from backends.external.guard import EXIT_NO_COMMAND

PATIENCE_S = 60.0
PYTHON = (sys.executable, "-c")


async def end_of(child: Child) -> Exit:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.shield(child.exited)


async def run(*command: str) -> Exit:
    child = Child(command, os.environ)
    await child.start()
    return await end_of(child)


async def test_the_last_lines_of_both_outputs_are_the_reason() -> None:
    script = "import sys\nfor i in range(9): print(i, flush=True)\n"
    end = await run(*PYTHON, script + "print('no  memory', file=sys.stderr)\nexit(3)")
    assert end == Exit(3, "7 | 8 | no memory")
    assert str(end) == "the server exited with status 3; it said last: 7 | 8 | no memory"


async def test_of_a_flood_the_end_is_kept() -> None:
    end = await run(*PYTHON, f"print('x' * {100 * KEPT_BYTES}); print('the end')")
    assert end.last.endswith(" | the end")
    assert len(end.last) < 1000


@pytest.mark.parametrize(
    ("status", "useless"), [(0, False), (1, False), (2, True), (64, True), (78, True)]
)
async def test_some_exits_say_that_another_start_is_useless(status: int, useless: bool) -> None:
    assert (await run(*PYTHON, f"exit({status})")).is_useless is useless


async def test_a_command_that_is_not_there_ends_as_in_a_shell() -> None:
    end = await run("/nowhere/server")
    assert end == Exit(EXIT_NO_COMMAND, "/nowhere/server: No such file or directory")
    assert end.is_useless


async def test_a_signal_has_its_name() -> None:
    end = await run(*PYTHON, "import os; os.kill(os.getpid(), 11)")
    assert str(end) == "the server was ended by signal 11 (SIGSEGV)"


@pytest.mark.parametrize(
    ("answer", "kill_after_s", "status"),
    [("lambda *_: os._exit(5)", PATIENCE_S, 5), ("signal.SIG_IGN", 0.05, -9)],
    ids=["it is asked first and answers", "it does not listen and is killed"],
)
async def test_a_stop(answer: str, kill_after_s: float, status: int) -> None:
    child = await up(f"signal.signal(signal.SIGTERM, {answer})")
    await child.stop(kill_after_s)
    assert (await end_of(child)).status == status


async def test_a_stop_of_what_has_ended_or_never_began_is_nothing() -> None:
    child = Child((*PYTHON, "pass"), os.environ)
    await child.stop(0.0)
    await child.start()
    await end_of(child)
    await child.stop(0.0)


async def test_what_a_dead_guard_left_is_swept_before_the_end_is_told() -> None:
    swept: list[bool] = []
    child = Child((*PYTHON, "exit(1)"), os.environ, lambda: swept.append(child.exited.done()))
    await child.start()
    await end_of(child)
    assert swept == [False]


def test_the_end_of_its_starter_is_the_end_of_all_below_a_guard() -> None:
    """In whatever session: the pipe's other end is closed by the kernel, however that one dies."""
    theirs, ours = os.pipe()
    told, tell = os.pipe()
    script = "import os, time; os.setsid(); print(1, flush=True); time.sleep(1000)"
    below = shlex.join([*PYTHON, script])
    guard = subprocess.Popen(
        [sys.executable, "-m", GUARD, str(theirs), "/bin/sh", "-c", f"{below} & wait"],
        stdout=tell,
        pass_fds=(theirs,),
    )
    os.close(theirs)
    os.close(tell)
    with open(told, "rb") as output:
        assert output.readline() == b"1\n"  # it has a session of its own by now
        os.close(ours)
        guard.wait(PATIENCE_S)
        assert output.read() == b""  # nobody holds the other end any more


async def up(preparation: str) -> Child:
    """A server that has prepared itself so, and sleeps. Naps: a signal that comes just before one
    is heard after it."""
    told, tell = os.pipe()
    script = f"""
import os, signal, time
{preparation}
os.write(os.open('/proc/{os.getpid()}/fd/{tell}', os.O_WRONLY), b'up')
while True:
    time.sleep(0.05)
"""
    child = Child((*PYTHON, script), os.environ)
    await child.start()
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.to_thread(os.read, told, 2) == b"up"
    os.close(told)
    os.close(tell)
    return child
