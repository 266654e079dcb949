"""The supervisor does what control says, outlives control, and takes everything down with it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import orjson
import pytest

from gateway.children import Child
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
from gateway.supervisor import EXIT_CUT, Supervisor

pytestmark = pytest.mark.live
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
    await asyncio.wait_for(ended.wait(), 60)
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


async def test_a_child_gets_its_descriptor_and_its_exit_is_told(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        assert await life.told(Children) == Children({}, 2, {})
        command = (sys.executable, "-c", "import os,sys; os.fstat(int(sys.argv[1])); sys.exit(7)")
        life.order(Spawn("a", (*command, "{x}"), {"x": "life"}, {}, False))
        spawned = await life.told(Spawned)
        assert await life.told(Exited) == Exited("a", spawned.pid, 7)


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        life.order(Spawn("a", ("/no/such/program",), {}, {}, False))
        failed = await life.told(SpawnFailed)
        assert failed.name == "a"
        assert "/no/such/program" in failed.reason


async def test_a_name_that_still_runs_is_not_given_again(tmp_path: Path) -> None:
    """The second child took the place of the first, whose end then took the gateway down."""
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        life.order(child("a", False))
        pid = (await life.told(Spawned)).pid
        life.order(child("a", False))
        assert await life.told(SpawnFailed) == SpawnFailed("a", "a child called a still runs")
        life.order(Kill("a", signal.SIGKILL))
        assert await life.told(Exited) == Exited("a", pid, -signal.SIGKILL)
        life.order(child("a", False))
        assert (await life.told(Spawned)).pid != pid


async def test_control_that_dies_is_started_again_and_told_what_runs(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running)
        life.order(Kill("a", signal.SIGKILL))
        exited = await life.told(Exited)
        assert (exited.pid, exited.status) == (pid, -signal.SIGKILL)
        assert await group_gone(exited.pid)


async def test_the_label_of_a_child_comes_back_to_the_next_control(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        first = await running.lives.get()
        await first.told(Children)
        sleep = (sys.executable, "-c", "import time; time.sleep(600)")
        first.order(Spawn("a", sleep, {}, {}, False, label="hash cpu0"))
        first.order(Spawn("b", sleep, {}, {}, False))
        await first.told(Spawned)
        await first.told(Spawned)
        os.kill(first.pid, signal.SIGKILL)
        second = await running.lives.get()
        assert (await second.told(Children)).labels == {"a": "hash cpu0"}


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
        life, pid = await second_life(running)
        for count in (1, 2):
            running.process.terminate()
            assert await life.told(Signalled) == Signalled(count, reload=False)
        running.process.terminate()
        assert await running.process.wait() == EXIT_CUT
        assert await group_gone(pid)


async def test_a_control_that_cannot_go_on_ends_nothing_that_serves(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running)
        life.order(Serving())
        life.writer.close()  # this control now exits with 78
        life = await running.lives.get()
        assert (await life.told(Children)).pids == {"a": pid}


async def test_nothing_outlives_the_supervisor_not_even_when_it_is_killed(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        _, pid = await second_life(running, grandchild=False)
        running.process.kill()
        await running.process.wait()
        assert await gone(pid)


async def test_children_that_are_left_at_the_end_go_with_their_whole_group(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life, pid = await second_life(running)
        life.order(Exit(0))
        assert await running.process.wait() == 0
        assert await group_gone(pid)


async def test_a_control_that_calls_itself_unusable_ends_the_gateway(tmp_path: Path) -> None:
    program = SUPERVISOR.replace("sys.argv[2]", "'raise SystemExit(78)'")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, "x", "x")
    assert await asyncio.wait_for(process.wait(), 20) == 78


# --- instances, which stand behind a guard -------------------------------------------------------


async def test_the_exit_of_an_instance_is_told_when_nothing_of_it_is_left(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        pids = await family(life, tmp_path)
        os.kill(pids[0], signal.SIGKILL)
        assert await life.told(Exited) == Exited("instance.i", pids[0], -signal.SIGKILL)
        assert running_among(pids) == []


async def test_a_stopped_instance_is_deaf_to_sigterm_and_ended_by_sigkill(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        pids = await family(life, tmp_path)
        for pid in (parent(pids[0]), *running_among(pids)):  # the guard as well
            os.kill(pid, signal.SIGSTOP)
        life.order(Kill("instance.i", signal.SIGTERM))
        life.order(Kill("instance.i", signal.SIGKILL))
        assert await life.told(Exited) == Exited("instance.i", pids[0], -signal.SIGKILL)
        assert running_among(pids) == []


async def test_the_exit_of_an_instance_whose_guard_was_killed_waits_for_all_of_it(
    tmp_path: Path,
) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        pids = await family(life, tmp_path)
        os.kill(parent(pids[0]), signal.SIGKILL)
        assert await life.told(Exited) == Exited("instance.i", pids[0], -signal.SIGKILL)
        assert running_among(pids) == []


async def test_no_descendant_of_an_instance_outlives_a_supervisor_that_is_killed(
    tmp_path: Path,
) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        pids = await family(life, tmp_path)
        guard = parent(pids[0])
        running.process.kill()
        await running.process.wait()
        assert await gone(guard)
        assert running_among(pids) == []


async def test_a_control_that_was_started_again_is_told_the_pid_of_the_instance(
    tmp_path: Path,
) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        pids = await family(life, tmp_path)
        os.kill(life.pid, signal.SIGKILL)
        life = await running.lives.get()
        assert (await life.told(Children)).pids == {"instance.i": pids[0]}
        life.order(Exit(0))
        assert await running.process.wait() == 0
        assert running_among(pids) == []


async def test_an_instance_that_could_not_be_started_is_told_once(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as running:
        life = await running.lives.get()
        await life.told(Children)
        life.order(instance(tmp_path, "/no/such/program"))
        failed = await life.told(SpawnFailed)
        assert "/no/such/program" in failed.reason
        life.order(Kill("instance.i", signal.SIGKILL))
        life.order(child("a", grandchild=False))
        await life.told(Spawned)  # and no Exited before it


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_gateway_without_control_is_not_taken_over_now() -> None:
    """Once the question was lost, and whoever had put it waited for a minute."""
    supervisor = Supervisor({}, (), 1)
    supervisor._carry_out(Serving())
    assert "control of the running gateway has died" in supervisor.hindrance()


async def test_a_signal_that_was_blocked_when_the_gateway_was_started_is_heard(
    tmp_path: Path,
) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        async with supervisor(tmp_path) as running:
            life = await running.lives.get()
            await life.told(Children)
            running.process.terminate()
            said = await asyncio.wait_for(life.told(Signalled), 60)
            assert said == Signalled(1, reload=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_what_is_ready_twice_of_one_child_is_served_once() -> None:
    """Once the end of an instance, ready together with the last words of its guard, ended the
    supervisor, and with it everything below."""
    supervisor = Supervisor({}, (), 1)
    guard = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    said, theirs = os.pipe()
    os.set_blocking(said, False)
    pidfd = os.pidfd_open(guard.pid)
    child = Child(guard.pid, pidfd, handed_over=True, started=0.0, said_fd=said, adopted=True)
    supervisor.children["instance.a"] = child
    supervisor.adopt()
    assert guard.stdin is not None
    guard.stdin.close()
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)  # so its end is what is ready first
    os.write(theirs, b"ended 0\n")
    os.close(theirs)
    supervisor.serve_ready(0.0)
    assert supervisor.children == {}
    assert (child.ended, child.said_fd) == (True, -1)
    assert guard.wait() == 0
