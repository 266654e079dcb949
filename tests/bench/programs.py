"""The compiled parts: load generator and stub, and whether there is a build of the data plane.

Floor 3, I/O.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.bench.contenders import HERE
from tests.bench.starting import process

ROOT: Final = HERE.parents[1]
BUILT: Final = ROOT / "var" / "bench"
COMPILE: Final = ("cc", "-O2", "-Wall", "-Wextra", "-Werror")


def build(name: str) -> Path:
    """The compiled program."""
    BUILT.mkdir(parents=True, exist_ok=True)
    subprocess.run([*COMPILE, "-o", str(BUILT / name), str(HERE / f"{name}.c")], check=True)
    return BUILT / name


@asynccontextmanager
async def instances(count: int) -> AsyncIterator[list[int]]:
    """Ports of a running stub: so many instances."""
    program = str(BUILT / "stub")
    async with process(program, str(count), stdout=asyncio.subprocess.PIPE) as stub:
        assert stub.stdout is not None
        yield [int(port) for port in (await stub.stdout.readline()).split()]


def newest_build(where: Path = ROOT / "var" / "compiled") -> Path:
    """What `.ci/compiled.py` has made last; the empty folder when that was never called."""
    made = sorted(where.glob("*/gateway"), key=lambda path: path.parent.stat().st_mtime)
    return made[-1].parent if made else where


def missing_build(folder: Path) -> str:
    """Why the folder does not hold the data plane as it is here, compiled; "" when it does."""
    if not any((folder / "gateway").rglob("*.so")):
        return "there is no compiled module: see what setup.py says when it makes them"
    for source in sorted((ROOT / "gateway").rglob("*.py")):
        name = source.relative_to(ROOT)
        copy = folder / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            return f"it was compiled before {name} was changed"
    return ""
