"""The supervisor does what control says, outlives control, and takes everything down with it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from gateway.messages import (
    Children,
    Exit,
    Exited,
    Kill,
    LineBuffer,
    Message,
    Serving,
    Signalled,
    Spawn,
    Spawned,
    SpawnFailed,
    encode,
)
from gateway.supervisor import EXIT_CUT

pytestmark = pytest.mark.live
M = TypeVar("M")

SUPERVISOR = """
import os, sys
from gateway.supervisor import Supervisor

life, life_write = os.pipe()
spare = os.open("/dev/null", os.O_RDONLY)
held = {"life": life, "life_write": life_write, "segment": spare, "door": spare, "admin": spare}
command = (sys.executable, "-c", sys.argv[2], "{supervisor}", sys.argv[1])
sys.exit(Supervisor(held, command, 2).serve())
"""

# Stands where control does: carries every byte between the supervisor and the test.
CONTROL = """
import os, socket, sys, threading

ours = socket.socket(fileno=int(sys.argv[1]))
test = socket.socket(socket.AF_UNIX)
test.connect(sys.argv[2])
test.sendall(b"%d\\n" % os.getpid())

def carry(source, sink):
    while received := source.recv(65536):
        sink.sendall(received)
    os._exit(78)

threading.Thread(target=carry, args=(test, ours), daemon=True).start()
carry(ours, test)
"""

# Ends with the pipe, as workers and instances do; its own child, if it has one, does not.
CHILD = """
import os, subprocess, sys
if sys.argv[2] == "True":
    subprocess.Popen(["sleep", "600"])
os.read(int(sys.argv[1]), 1)
os._exit(70)
"""


@dataclass(slots=True)
class Life:
    """One life of the control process, seen from the test."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    lines: LineBuffer = field(default_factory=LineBuffer)
    waiting: list[Message] = field(default_factory=list)

    def order(self, message: Message) -> None:
        self.writer.write(encode(message))

    async def told(self, kind: type[M]) -> M:
        """The next message, which must be of this kind."""
        while not self.waiting:
            received = await self.reader.read(65536)
            assert received, "the supervisor has gone"
            self.waiting += self.lines.feed(received)
        message = self.waiting.pop(0)
        assert isinstance(message, kind), message
        return message


@dataclass(slots=True)
class Running:
    process: asyncio.subprocess.Process
    lives: asyncio.Queue[Life]


@asynccontextmanager
async def supervisor(folder: Path) -> AsyncIterator[Running]:
    lives: asyncio.Queue[Life] = asyncio.Queue()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lives.put_nowait(Life(int(await reader.readline()), reader, writer))

    path = str(folder / "t.sock")
    door = await asyncio.start_unix_server(connected, path)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SUPERVISOR, path, CONTROL)
    try:
        yield Running(process, lives)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        door.close()


def child(name: str, folder: Path, grandchild: bool) -> Spawn:
    command = (sys.executable, "-c", CHILD, "{life}", str(grandchild))
    return Spawn(name, command, {"life": "life"}, {"A": "b"}, str(folder / "logs" / name), False)


async def gone(pid: int) -> bool:
    """Whether the process has ended, once the kernel says so; ours or not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    await asyncio.wait_for(ended.wait(), 60)
    loop.remove_reader(pidfd)
    os.close(pidfd)
    return True


def group_of(pid: int) -> list[int]:
    """Processes that share the child's group and still run."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


async def second_life(
    running: Running, folder: Path, *, grandchild: bool = True
) -> tuple[Life, int]:
    """A control that was started again, and the pid of the child that its predecessor started."""
    first = await running.lives.get()
    await first.told(Children)
    first.order(child("a", folder, grandchild))
    pid = (await first.told(Spawned)).pid
    first.order(Kill("nobody", signal.SIGTERM))
    os.kill(first.pid, signal.SIGKILL)
    second = await running.lives.get()
    assert (await second.told(Children)).pids == {"a": pid}
    return second, pid


async def test_a_child_gets_its_descriptor_and_its_exit_is_told(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        assert await life.told(Children) == Children({}, 2)
        command = (sys.executable, "-c", "import os,sys; os.fstat(int(sys.argv[1])); sys.exit(7)")
        life.order(Spawn("a", (*command, "{x}"), {"x": "life"}, {}, "", False))
        spawned = await life.told(Spawned)
        assert await life.told(Exited) == Exited("a", spawned.pid, 7)


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        life.order(Spawn("a", ("/no/such/program",), {}, {}, "", False))
        failed = await life.told(SpawnFailed)
        assert failed.name == "a"
        assert "/no/such/program" in failed.reason


async def test_control_that_dies_is_started_again_and_told_what_runs(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running, tmp_path)
        life.order(Kill("a", signal.SIGKILL))
        exited = await life.told(Exited)
        assert (exited.pid, exited.status) == (pid, -signal.SIGKILL)
        assert group_of(exited.pid) == []


async def test_signals_are_control_s_to_decide(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        running.process.send_signal(signal.SIGHUP)
        assert await life.told(Signalled) == Signalled(0, reload=True)
        running.process.terminate()
        assert await life.told(Signalled) == Signalled(1, reload=False)
        running.process.send_signal(signal.SIGINT)
        assert await life.told(Signalled) == Signalled(2, reload=False)
        life.order(Exit(5))
        assert await running.process.wait() == 5


async def test_a_successor_of_control_is_told_that_the_gateway_is_ending(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        running.process.terminate()
        await life.told(Signalled)
        os.kill(life.pid, signal.SIGKILL)
        life = await running.lives.get()
        await life.told(Children)
        assert await life.told(Signalled) == Signalled(1, reload=False)


async def test_a_third_signal_ends_without_a_control_that_does_not_answer(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running, tmp_path)
        for count in (1, 2):
            running.process.terminate()
            assert await life.told(Signalled) == Signalled(count, reload=False)
        running.process.terminate()
        assert await running.process.wait() == EXIT_CUT
        assert group_of(pid) == []


async def test_a_control_that_cannot_go_on_ends_nothing_that_serves(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running, tmp_path)
        life.order(Serving())
        life.writer.close()  # this control now exits with 78
        life = await running.lives.get()
        assert (await life.told(Children)).pids == {"a": pid}


async def test_nothing_outlives_the_supervisor_not_even_when_it_is_killed(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        _, pid = await second_life(running, tmp_path, grandchild=False)
        running.process.kill()
        await running.process.wait()
        assert await gone(pid)


async def test_children_that_are_left_at_the_end_go_with_their_whole_group(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running, tmp_path)
        life.order(Exit(0))
        assert await running.process.wait() == 0
        assert group_of(pid) == []


async def test_a_control_that_calls_itself_unusable_ends_the_gateway(tmp_path: Path) -> None:
    program = SUPERVISOR.replace("sys.argv[2]", "'raise SystemExit(78)'")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, "x", "x")
    assert await asyncio.wait_for(process.wait(), 20) == 78
