"""Nothing of an instance outlives its guard, and what it writes is kept in bounds."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import pytest

from gateway.children import END

pytestmark = pytest.mark.live

PATIENCE_S: Final = 300.0
LOG_MAX_BYTES: Final = 1 << 16

# A process that starts one of its own in another session, which starts one in its group and is
# then gone itself: who is left is nobody's child. All of them are deaf to SIGTERM.
TREE: Final = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
depth, fifo = int(sys.argv[1]), sys.argv[2]
with open(fifo, "w") as told:
    told.write(f"{os.getpid()}\\n")
if depth:
    own = {"start_new_session": True} if depth == 2 else {}
    subprocess.Popen([sys.executable, "-c", sys.argv[3], str(depth - 1), fifo, sys.argv[3]], **own)
if depth != 1:
    time.sleep(600)
"""


@dataclass(slots=True)
class Guarded:
    process: subprocess.Popen[bytes]
    life: int  # write end
    said: int  # read end
    log: Path
    heard: bytes = b""

    def line(self) -> str:
        """The next line that the guard says; "" at the end."""
        while b"\n" not in self.heard:
            assert select.select([self.said], [], [], PATIENCE_S)[0], "it says nothing"
            received = os.read(self.said, 4096)
            if not received:
                return ""
            self.heard += received
        line, _, self.heard = self.heard.partition(b"\n")
        return line.decode()

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)

    def lines(self) -> list[dict[str, object]]:
        before = self.log.with_name(f"{self.log.name}.1")
        found = [path.read_bytes() for path in (before, self.log) if path.exists()]
        return [orjson.loads(line) for line in b"".join(found).split(b"\n")[:-1]]


@contextmanager
def guard(
    folder: Path, *command: str, log: Path | None = None, log_max_bytes: int = LOG_MAX_BYTES
) -> Iterator[Guarded]:
    life, life_write = os.pipe()
    said_read, said = os.pipe()
    path = log or folder / "logs" / "m-1-0.log"
    given = (
        *("--life-fd", str(life), "--said-fd", str(said), "--log", str(path)),
        *("--log-max-bytes", str(log_max_bytes), "--instance-id", "m-1-0"),
        *("--model", "m", "--version", "1", "--", *command),
    )
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "gateway.mains.guard", *given),
        pass_fds=(life, said),
        process_group=0,
    )
    os.close(life)
    os.close(said)
    guarded = Guarded(process, life_write, said_read, path)
    try:
        yield guarded
    finally:
        with suppress(OSError):
            os.close(guarded.life)
        process.wait(PATIENCE_S)
        os.close(said_read)


def python(program: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program, *arguments)


@dataclass(slots=True)
class Tree:
    """Processes that say who they are on a FIFO."""

    fifo: Path

    def command(self) -> tuple[str, ...]:
        return python(TREE, "2", str(self.fifo), TREE)

    def pids(self) -> list[int]:
        """Pidfds of all three; the middle one ends by itself."""
        fd = os.open(self.fifo, os.O_RDWR)
        told = b""
        while told.count(b"\n") < 3:
            assert select.select([fd], [], [], PATIENCE_S)[0], "they have not started"
            told += os.read(fd, 4096)
        os.close(fd)
        return [int(pid) for pid in told.split()]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    os.mkfifo(tmp_path / "fifo")
    return Tree(tmp_path / "fifo")


def all_gone(pids: list[int]) -> bool:
    """Whether all have ended; the kernel says when."""
    for pid in pids:
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            assert select.select([pidfd], [], [], PATIENCE_S)[0], f"{pid} goes on"
            os.close(pidfd)
    return True


def running(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        with suppress(OSError):
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
    return found


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(78)", 78),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 6)", -6),
        ("import os; os.kill(os.getpid(), 15)", -15),
    ],
)
def test_its_end_is_told_and_taken_over(tmp_path: Path, program: str, status: int) -> None:
    with guard(tmp_path, *python(program)) as guarded:
        assert guarded.line().startswith("pid ")
        assert guarded.line() == f"ended {status}"
        assert guarded.ended() == status


def test_a_program_that_is_not_there_is_told_with_its_name(tmp_path: Path) -> None:
    with guard(tmp_path, "/no/such/program") as guarded:
        said = guarded.line()
        assert said.startswith("failed /no/such/program: ")
        assert guarded.line() == ""
        assert guarded.ended() == 127


def test_a_log_that_cannot_be_opened_is_told_and_nothing_is_started(tmp_path: Path) -> None:
    with guard(tmp_path, *python("1"), log=tmp_path) as guarded:
        assert guarded.line().startswith("failed ")
        assert guarded.line() == ""


def test_the_end_of_the_life_pipe_is_the_end_of_all_in_whatever_session(
    tmp_path: Path, tree: Tree
) -> None:
    with guard(tmp_path, *tree.command()) as guarded:
        pids = tree.pids()
        os.close(guarded.life)
        guarded.ended()
        assert running(pids) == []


def test_a_command_that_exits_leaves_nobody_behind(tmp_path: Path, tree: Tree) -> None:
    """The guard's own end says that the device is free."""
    with guard(tmp_path, *tree.command()) as guarded:
        pids = tree.pids()
        os.kill(pids[0], signal.SIGKILL)
        assert guarded.ended() == -9
        assert running(pids) == []


def test_what_is_stopped_is_deaf_to_sigterm_and_ends_by_order(tmp_path: Path, tree: Tree) -> None:
    with guard(tmp_path, *tree.command()) as guarded:
        pids = tree.pids()
        for pid in running(pids):
            os.kill(pid, signal.SIGSTOP)
        guarded.process.terminate()
        assert running(pids)
        guarded.process.send_signal(END)
        assert guarded.ended() == -9
        assert all_gone(pids)


def test_sigterm_goes_to_the_command_which_ends_as_it_likes(tmp_path: Path, tree: Tree) -> None:
    program = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
open(sys.argv[1], "w").write("1\\n" * 3)
signal.sigwait([signal.SIGTERM])
raise SystemExit(5)
"""
    with guard(tmp_path, *python(program, str(tree.fifo))) as guarded:
        tree.pids()
        guarded.process.terminate()
        assert guarded.ended() == 5


def test_a_guard_that_is_killed_takes_the_command_along(tmp_path: Path) -> None:
    with guard(tmp_path, "sleep", "600") as guarded:
        pid = int(guarded.line().removeprefix("pid "))
        guarded.process.kill()
        assert all_gone([pid])


# --- the log -------------------------------------------------------------------------------------

NAMES: Final = {"instance_id": "m-1-0", "model": "m", "model_version": "1"}


def test_every_line_says_who_wrote_it_whatever_it_is_made_of(tmp_path: Path) -> None:
    program = r"""
import os, sys
os.write(1, b'plain\n{"level": "error", "message": "json", "instance_id": "liar"}\n{"half\n')
os.write(2, b"\xff\x00\x1b[31mred\n" + b"x" * 40_000 + b"\nno newline")
"""
    with guard(tmp_path, *python(program)) as guarded:
        guarded.ended()
        lines = guarded.lines()
    assert all(line.items() >= NAMES.items() for line in lines)
    messages = [str(line["message"]) for line in lines]
    assert messages[:4] == ["plain", "json", '{"half', "\\xff\x00\x1b[31mred"]
    assert messages[-1] == "no newline"
    assert "".join(messages[4:-1]) == "x" * 40_000
    assert lines[1]["level"] == "error"


def test_a_chatty_command_is_not_held_up_and_its_files_are_bounded(tmp_path: Path) -> None:
    program = r"""
import os
for _ in range(1000):
    os.write(1, b"0123456789abcde\n" * 4096)
"""
    with guard(tmp_path, *python(program)) as guarded:
        assert guarded.ended() == 0
        files = sorted(guarded.log.parent.iterdir())
        assert [path.name for path in files] == ["m-1-0.log", "m-1-0.log.1"]
        one_read = 1 << 20  # bytes of lines that it can become
        assert all(path.stat().st_size < LOG_MAX_BYTES + one_read for path in files)
        assert "lines dropped" in str(guarded.lines()[-1]["message"])


def test_a_full_disk_holds_nobody_up(tmp_path: Path) -> None:
    with guard(tmp_path, *python("print('x' * 1_000_000)"), log=Path("/dev/full")) as guarded:
        assert guarded.ended() == 0


def test_a_disk_that_hangs_keeps_nobody_from_writing_or_from_being_ended(
    tmp_path: Path, tree: Tree
) -> None:
    """The log is a FIFO that nobody reads."""
    os.mkfifo(log := tmp_path / "hangs.log")
    reader = os.open(log, os.O_RDWR)
    program = """
import sys, time
for _ in range(500):
    print("x" * 20_000, flush=True)
open(sys.argv[1], "w").write("1\\n" * 3)
time.sleep(600)
"""
    command = python(program, str(tree.fifo))
    with guard(tmp_path, *command, log=log, log_max_bytes=1 << 30) as guarded:
        tree.pids()  # it has written 10 MB
        guarded.process.send_signal(END)
        assert guarded.ended() == -9
    os.close(reader)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_what_a_background_job_ignores_its_instances_do_not(tmp_path: Path, number: int) -> None:
    program = f"import signal; print(signal.getsignal({int(number)}) is signal.SIG_IGN, flush=True)"
    before = signal.signal(number, signal.SIG_IGN)  # as a shell does for what it starts with &
    try:
        with guard(tmp_path, *python(program), log=(log := tmp_path / "said.log")) as guarded:
            assert guarded.ended() == 0
    finally:
        signal.signal(number, before)
    assert '"False"' in log.read_text()


def test_output_that_is_closed_is_no_end(tmp_path: Path) -> None:
    program = "import os, signal; os.close(1); os.close(2); signal.raise_signal(3)"
    with guard(tmp_path, *python(program)) as guarded:
        assert guarded.ended() == -3
