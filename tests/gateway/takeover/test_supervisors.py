"""Two supervisors and the instance that goes from one to the other; control is the test itself."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.messages import (
    Children,
    Committed,
    Exit,
    Exited,
    Freeze,
    Frozen,
    HandedOver,
    Held,
    Kill,
    Serving,
    Signalled,
    Spawn,
    Spawned,
    SpawnFailed,
    Thaw,
)
from gateway.supervisor import EXIT_NOT_TAKEN, Supervisor
from gateway.takeover.offer import Facts, Lines, Offer
from gateway.takeover.taking import Taking
from tests.gateway.supervising import (
    CONTROL,
    Life,
    child,
    family,
    gone,
    instance,
    parent,
)

pytestmark = pytest.mark.live

PROGRAM = """
import os, sys
from pathlib import Path
from gateway.takeover.house import received
from gateway.mains.belongings import open_door
from gateway.supervisor import Supervisor
from gateway.takeover.giving import Giving
from gateway.takeover.offer import DOOR, Facts, ask
from gateway.takeover.taking import Taking

folder, control, test, take = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "take"
held = {name: os.open("/dev/null", os.O_RDONLY) for name in ("segment", "door")}
held["life"], held["life_write"] = os.pipe()
if take:
    sock, offer, fds = ask(folder)
    held |= dict(zip(offer.names, fds))
    rest = iter(fds[len(offer.names):])
else:
    held["instances_life"], held["instances_life_write"] = os.pipe()
    held["admin"] = os.open("/dev/null", os.O_RDONLY)
supervisor = Supervisor(held, (sys.executable, "-c", control, "{supervisor}", test), 1)
facts = Facts(os.getpid(), "1", (), "", "", "")
own = folder / f"{os.getpid()}.sock"
supervisor.giving = Giving(supervisor, open_door(own), facts)
ours = lambda: own.replace(folder / DOOR)
if take:
    for ward in offer.wards:
        supervisor.children[ward.name] = received(ward, rest)
    supervisor.taking = Taking(supervisor, sock, offer, ours)
else:
    ours()
sys.exit(supervisor.serve())
"""


@dataclass(slots=True)
class Running:
    process: asyncio.subprocess.Process
    control: Life
    lives: asyncio.Queue[Life]  # of controls that come after it


@asynccontextmanager
async def supervisor(folder: Path, how: str) -> AsyncIterator[Running]:
    lives: asyncio.Queue[Life] = asyncio.Queue()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lives.put_nowait(Life(int(await reader.readline()), reader, writer))

    path = str(folder / f"{how}.test")
    door = await asyncio.start_unix_server(connected, path)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(folder), CONTROL, path, how),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Running(process, await asyncio.wait_for(lives.get(), 300), lives)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        door.close()


@asynccontextmanager
async def with_instance(folder: Path, *command: str) -> AsyncIterator[tuple[Running, int]]:
    """A supervisor that serves, and the pid of its one instance."""
    async with supervisor(folder, "begin") as old:
        await old.control.told(Children)
        old.control.order(Serving())
        old.control.order(instance(folder, *(command or ("sleep", "600"))))
        yield old, (await old.control.told(Spawned)).pid


@asynccontextmanager
async def standing_by(old: Running, folder: Path) -> AsyncIterator[Running]:
    answering = asyncio.create_task(_freeze(old))
    async with supervisor(folder, "take") as new:
        await answering
        yield new


async def _freeze(old: Running) -> None:
    await old.control.told(Freeze)
    old.control.order(Frozen())


async def committed(old: Running, new: Running) -> None:
    new.control.order(Serving())
    await new.control.told(Committed)
    await old.control.told(HandedOver)


async def test_the_instance_outlives_its_first_supervisor_and_its_end_is_known_to_the_next(
    tmp_path: Path,
) -> None:
    async with with_instance(tmp_path) as (old, pid), standing_by(old, tmp_path) as new:
        children = await new.control.told(Children)
        assert (children.pids, children.labels) == ({"instance.i": pid}, {"instance.i": "hash d0"})
        await committed(old, new)
        old.control.order(Held({"i": 3}))
        assert await new.control.told(Held) == Held({"i": 3})
        old.control.order(Exit(0))
        assert await old.process.wait() == 0
        assert await new.control.told(Held) == Held({}, over=True)
        os.kill(pid, 0)  # it lives
        os.kill(pid, signal.SIGTERM)
        exited = await new.control.told(Exited)
        assert (exited.name, exited.pid, exited.status) == ("instance.i", pid, -signal.SIGTERM)


async def test_the_end_of_an_instance_is_known_while_its_first_supervisor_lives(
    tmp_path: Path,
) -> None:
    async with with_instance(tmp_path) as (old, pid), standing_by(old, tmp_path) as new:
        await new.control.told(Children)
        await committed(old, new)
        new.control.order(Kill("instance.i", signal.SIGKILL))
        exited = await new.control.told(Exited)
        assert (exited.pid, exited.status) == (pid, -signal.SIGKILL)
        assert await gone(pid)
        old.process.terminate()
        assert await old.control.told(Signalled) == Signalled(1, reload=False)  # and of no exit


# Says on a FIFO that it listens, and by its exit status whether a file was there at SIGTERM.
LISTENER = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(3 if os.path.exists(sys.argv[1]) else 4))
with open(sys.argv[2], "w") as told:
    told.write("ready")
while True:
    signal.pause()
"""


async def answered(life: Life) -> None:
    """The supervisor has carried out every order so far."""
    life.order(Spawn("x", ("/no/such/program",), {}, {}, False))
    await life.told(SpawnFailed)


async def test_a_successor_that_stands_by_kills_nobody_until_its_commit(tmp_path: Path) -> None:
    commit, fifo = tmp_path / "commit", tmp_path / "fifo"
    os.mkfifo(fifo)
    listener = (sys.executable, "-c", LISTENER, str(commit), str(fifo))
    async with with_instance(tmp_path, *listener) as (old, pid):
        assert await asyncio.to_thread(fifo.read_text) == "ready"
        async with standing_by(old, tmp_path) as new:
            await new.control.told(Children)
            new.control.order(Kill("instance.i", signal.SIGTERM))
            await answered(new.control)
            await answered(old.control)
            commit.touch()
            await committed(old, new)
            exited = await new.control.told(Exited)
            assert (exited.pid, exited.status) == (pid, 3)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_a_successor_that_ends_before_its_commit_leaves_everything_where_it_was(
    how: signal.Signals, tmp_path: Path
) -> None:
    async with with_instance(tmp_path) as (old, pid):
        async with standing_by(old, tmp_path) as new:
            new.process.send_signal(how)
            code = await new.process.wait()
            assert code == (EXIT_NOT_TAKEN if how is signal.SIGTERM else -how)
        await old.control.told(Thaw)
        os.kill(pid, signal.SIGTERM)
        assert (await old.control.told(Exited)).pid == pid


async def test_a_successor_whose_control_dies_before_the_commit_gives_up(tmp_path: Path) -> None:
    async with with_instance(tmp_path) as (old, pid):
        async with standing_by(old, tmp_path) as new:
            os.kill(new.control.pid, signal.SIGKILL)
            assert await new.process.wait() == EXIT_NOT_TAKEN
        await old.control.told(Thaw)
        os.kill(pid, 0)


async def test_a_predecessor_s_control_that_dies_is_not_started_again(tmp_path: Path) -> None:
    """It would claim the store, which is the successor's. Workers finish, then all is over."""
    async with with_instance(tmp_path) as (old, pid), standing_by(old, tmp_path) as new:
        await new.control.told(Children)
        old.control.order(child("worker0.0", grandchild=False))
        worker = (await old.control.told(Spawned)).pid
        await committed(old, new)
        os.kill(old.control.pid, signal.SIGKILL)
        assert old.process.stderr is not None
        said = ""
        while "control died" not in said:
            said = (await old.process.stderr.readline()).decode()
            assert said, "it has ended"
        assert said == "control died, workers finish without it\n"
        os.kill(worker, signal.SIGKILL)
        assert await old.process.wait() == 0
        os.kill(pid, 0)


async def test_a_signal_to_end_ends_the_take_over_first(tmp_path: Path) -> None:
    async with with_instance(tmp_path) as (old, _):
        async with standing_by(old, tmp_path) as new:
            old.process.terminate()
            assert await new.process.wait() == EXIT_NOT_TAKEN
        await old.control.told(Thaw)
        assert await old.control.told(Signalled) == Signalled(1, reload=False)


async def test_a_gateway_that_does_not_serve_yet_is_not_taken_over(tmp_path: Path) -> None:
    async with supervisor(tmp_path, "begin") as old:
        await old.control.told(Children)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, str(tmp_path), CONTROL, "x", "take"),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        assert b"the running gateway does not serve yet" in said


async def test_one_whose_predecessor_still_finishes_is_not_taken_over(tmp_path: Path) -> None:
    async with with_instance(tmp_path) as (old, _), standing_by(old, tmp_path) as new:
        await new.control.told(Children)
        await committed(old, new)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, str(tmp_path), CONTROL, "x", "take"),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        assert f"its predecessor (pid {old.process.pid}) still finishes".encode() in said


async def test_nothing_of_an_instance_whose_guard_was_killed_stays_while_its_first_supervisor_lives(
    tmp_path: Path,
) -> None:
    async with supervisor(tmp_path, "begin") as old:
        await old.control.told(Children)
        old.control.order(Serving())
        pids = await family(old.control, tmp_path)
        async with standing_by(old, tmp_path) as new:
            await new.control.told(Children)
            await committed(old, new)
            os.kill(parent(pids[0]), signal.SIGKILL)
            await new.control.told(Exited)
            assert all([await gone(pid) for pid in pids])


# --- between the commit and its answer -----------------------------------------------------------


@asynccontextmanager
async def unanswered(folder: Path) -> AsyncIterator[tuple[Running, Running, int]]:
    """A successor that has asked for the commit, of a predecessor that is stopped."""
    async with with_instance(folder) as (old, pid), standing_by(old, folder) as new:
        await new.control.told(Children)
        old.process.send_signal(signal.SIGSTOP)
        new.control.order(Serving())
        await answered(new.control)
        yield old, new, pid


async def test_a_signal_to_end_waits_for_the_answer_to_the_commit(tmp_path: Path) -> None:
    """Once it ended the successor, the predecessor gave it everything, and no gateway was left."""
    async with unanswered(tmp_path) as (old, new, pid):
        new.process.terminate()
        await answered(new.control)
        old.process.send_signal(signal.SIGCONT)
        await new.control.told(Committed)
        assert await new.control.told(Signalled) == Signalled(1, reload=False)
        await old.control.told(HandedOver)
        os.kill(pid, 0)


async def test_two_signals_end_a_successor_that_is_not_answered_and_the_predecessor_goes_on(
    tmp_path: Path,
) -> None:
    async with unanswered(tmp_path) as (old, new, pid):
        new.process.terminate()
        await answered(new.control)
        new.process.terminate()
        assert await new.process.wait() == EXIT_NOT_TAKEN
        old.process.send_signal(signal.SIGCONT)
        await old.control.told(Thaw)
        os.kill(pid, 0)


def test_a_successor_that_has_given_up_commits_no_more() -> None:
    """Once it said so while it waited for its children to be gone, and was given everything."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    supervisor = Supervisor({}, (), 1)
    offer = Offer(Facts(1, "9", (), "", "", ""), (), ())
    supervisor.taking = Taking(supervisor, ours, offer, lambda: None)
    supervisor.taking.begin()
    supervisor.fail("asked to end")
    supervisor._carry_out(Serving())
    assert Lines(theirs).read() == ([], True)
    theirs.close()


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_a_control_that_dies_before_the_answer_to_the_commit_is_started_again_after_it(
    tmp_path: Path,
) -> None:
    async with unanswered(tmp_path) as (old, new, pid):
        os.kill(new.control.pid, signal.SIGKILL)
        assert new.process.stderr is not None
        assert await new.process.stderr.readline() == b"control died\n"
        old.process.send_signal(signal.SIGCONT)
        await old.control.told(HandedOver)
        life = await asyncio.wait_for(new.lives.get(), 300)
        assert "--stand-by" not in command_of(life.pid)
        assert (await life.told(Children)).pids == {"instance.i": pid}
        await answered(life)  # and it is told of no commit: it has begun behind it
