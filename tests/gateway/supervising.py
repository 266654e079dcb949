"""A real supervisor whose control is the test, and what it starts."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import orjson

from gateway.messages import (
    Children,
    Kill,
    LineBuffer,
    Message,
    Spawn,
    Spawned,
    encode,
)

M = TypeVar("M")

SUPERVISOR = """
import os, sys
from gateway.supervisor import Supervisor

life, life_write = os.pipe()
spare = os.open("/dev/null", os.O_RDONLY)
held = {"life": life, "life_write": life_write, "segment": spare, "door": spare, "admin": spare}
held["instances_life"], held["instances_life_write"] = os.pipe()
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


# An instance that starts one in another session, which starts one in its group and is gone: those
# that are left are nobody's children, and have one. Their pids are in its log.
INSTANCE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid", os.getpid(), flush=True)
depth = int(sys.argv[1])
if depth:
    own = {"start_new_session": True} if depth == 2 else {}
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]], **own)
if depth == 0:
    print("pid", subprocess.Popen(["sleep", "600"]).pid)
if depth != 1:
    print("stays", flush=True)
    time.sleep(600)
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


def child(name: str, grandchild: bool) -> Spawn:
    command = (sys.executable, "-c", CHILD, "{life}", str(grandchild))
    return Spawn(name, command, {"life": "life"}, {"A": "b"}, False)


def instance(folder: Path, *command: str) -> Spawn:
    """One behind its guard, as the launcher orders it."""
    given = (
        *("--life-fd", "{instances_life}", "--said-fd", "{said}", "--log-max-bytes", "65536"),
        *("--log", str(folder / "i.log"), "--instance-id", "i", "--model", "m", "--version", "1"),
    )
    line = (sys.executable, "-P", "-m", "gateway.mains.guard", *given, "--", *command)
    descriptors = {"instances_life": "instances_life"}
    return Spawn("instance.i", line, descriptors, {}, True, label="hash d0")


async def family(life: Life, folder: Path) -> list[int]:
    """An instance and what it has started: four pids, the second of one that has ended."""
    os.mkfifo(folder / "i.log")
    loop, told = asyncio.get_running_loop(), asyncio.StreamReader()
    log = os.fdopen(os.open(folder / "i.log", os.O_RDWR), "r+b", 0)  # closed by its transport
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), log)
    life.order(instance(folder, sys.executable, "-c", INSTANCE, "2", INSTANCE))
    pids, staying = [], 0
    while staying < 2:
        message = orjson.loads(await told.readline())["message"]
        staying += message == "stays"
        pids += [int(message.removeprefix("pid "))] if message.startswith("pid ") else []
    transport.close()
    spawned = await life.told(Spawned)
    assert spawned == Spawned("instance.i", pids[0])  # whom people look for, not the guard
    return pids


def running_among(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        with suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            found += [pid] if state != "Z" else []
    return found


async def gone(pid: int) -> bool:
    """Whether the process has ended, once the kernel says so; ours or not."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    await asyncio.wait_for(ended.wait(), 300)
    loop.remove_reader(pidfd)
    os.close(pidfd)
    return True


async def group_gone(pid: int) -> bool:
    """Whether everything in the child's group has ended: it was killed, which may take a moment."""
    return all([await gone(one) for one in group_of(pid)])


def group_of(pid: int) -> list[int]:
    """Processes that share the child's group and still run."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return found


async def second_life(running: Running, *, grandchild: bool = True) -> tuple[Life, int]:
    """A control that was started again, and the pid of the child that its predecessor started."""
    first = await running.lives.get()
    await first.told(Children)
    first.order(child("a", grandchild))
    pid = (await first.told(Spawned)).pid
    first.order(Kill("nobody", signal.SIGTERM))
    os.kill(first.pid, signal.SIGKILL)
    second = await running.lives.get()
    assert (await second.told(Children)).pids == {"a": pid}
    return second, pid


@asynccontextmanager
async def with_family(folder: Path) -> AsyncIterator[tuple[Running, Life, list[int]]]:
    """A supervisor with its control, and an instance that has started others."""
    async with supervisor(folder) as running:
        life = await running.lives.get()
        await life.told(Children)
        yield running, life, await family(life, folder)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
