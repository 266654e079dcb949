"""What a reader has to know of a run: the machine, the programs, their versions.

Floor 3, I/O.
No name of a host or a place: the document is the same whoever runs it.
"""

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.loads import Sizes


def facts(
    rounds: int, sizes: Sizes, loaded: tuple[float, float], peers: Path, took_s: float
) -> list[str]:
    """`loaded`: the load average before and after."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    kernel = ".".join(platform.release().split(".")[:2])
    programs = [
        said("nginx", "-v"),
        f"HAProxy {said('haproxy', '-v')}",
        f"Python {platform.python_version()}",
        *(f"{name} {version}" for name, version in installed(peers)),
    ]
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, {rounds} rounds in {took_s / 60:.0f} minutes; turns of "
        f"{sizes.seconds} s, of streams {sizes.window_s} s",
        f"{os.cpu_count()} cores of {cpu[1] if cpu else platform.machine()}, Linux {kernel}; "
        f"load average {loaded[0]:.1f} before the run, {loaded[1]:.1f} after it, itself included",
        ", ".join(programs),
        "one working process each, on a core of its own, the routers with one thread for their "
        "tasks; instances and load on the other core; Sluicegate whole: `sluicegate serve`",
    ]


def said(*command: str) -> str:
    """The version that a program tells."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return f"{command[0]}: none"
    found = re.search(r"nginx/\S+|(?<=version )[\d.]+", done.stdout + done.stderr)
    return found[0] if found else "of unknown version"


def installed(peers: Path) -> Sequence[tuple[str, str]]:
    """The routers in a virtual environment, with their versions."""
    folders = peers.glob("lib/python*/site-packages/*_router-*.dist-info")
    names = (folder.name.removesuffix(".dist-info").split("-") for folder in sorted(folders))
    return [(name.replace("_", "-"), version) for name, version in names]
