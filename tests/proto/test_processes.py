import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate.processes import children, descendants, kill, oom_kills

V2 = "0::/a/b\n"
V1 = "4:memory:/x\n1:cpu:/\n0::/\n"
BOTH = "4:memory:/x\n0::/a/b\n"


def test_descendants_are_found_over_sessions_and_generations() -> None:
    """`; true` keeps a shell where it is: what it starts is its own."""
    last = f'{sys.executable} -c "print(1, flush=True); input()"; true'
    command = ["sh", "-c", f"setsid sh -c '{last}'; true"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as top:
        assert top.stdout is not None
        top.stdout.readline()
        assert top.pid in children(os.getpid())
        below = descendants(top.pid)
        assert len(below) == 2
        kill([top.pid, *below])
        assert top.wait() == -signal.SIGKILL
    assert top.pid not in children(os.getpid())


@pytest.mark.parametrize(
    ("group", "files", "count"),
    [
        (V2, {"cg/a/b/memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n"}, 2),
        (V1, {"cg/memory/x/memory.oom_control": "under_oom 0\noom_kill 4\n"}, 4),
        (BOTH, {"cg/memory/x/memory.oom_control": "oom_kill 4\n", "p/vmstat": "oom_kill 9\n"}, 4),
        (V2, {"p/vmstat": "nr_free_pages 5\noom_kill 9\n"}, 9),
        ("", {"p/vmstat": "oom_kill many\n"}, 0),
        ("", {}, 0),
    ],
    ids=["v2", "v1", "v1 under v2's tree", "machine", "garbage", "nothing"],
)
def test_kills_for_want_of_memory_are_counted_where_our_group_is(
    tmp_path: Path, group: str, files: dict[str, str], count: int
) -> None:
    for name, text in {"p/self/cgroup": group, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert oom_kills(tmp_path / "p", tmp_path / "cg") == count
