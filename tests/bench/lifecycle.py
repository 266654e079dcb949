"""`make bench-lifecycle`: how fast a change reaches every worker, and what instances cost control.

Floor 5, I/O.
"""

import argparse
import asyncio
import os
import platform
import resource
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.bench.lifecycle_crowd import polled
from tests.bench.lifecycle_text import PART, Figures, costs, section, times
from tests.bench.lifecycle_trials import timings
from tests.bench.parts import with_part
from tests.bench.programs import missing_build, newest_build
from tests.bench.serving import INTERPRETED, Build

TRIALS: Final = 100
SECONDS: Final = 20.0  # of polling that is measured
COUNTS: Final = (100, 1000)
KINDS: Final = ("times", "costs")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.lifecycle", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few trials, to see that it runs")
    parser.add_argument("--trials", type=int, help=f"of each kind; default: {TRIALS}")
    parser.add_argument("--seconds", type=float, help=f"of polling; default: {SECONDS:g}")
    parser.add_argument("--only", choices=KINDS, help="one half")
    parser.add_argument("--compiled", type=Path, default=newest_build(), help="default: the newest")
    parser.add_argument("--write", type=Path, metavar="FILE", help="whose part is written")
    given = parser.parse_args()
    given.trials = given.trials or (5 if given.short else TRIALS)
    given.seconds = given.seconds or (5.0 if given.short else SECONDS)
    return given


async def run(given: argparse.Namespace, build: Build) -> Figures:
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        if given.only != "costs":
            figures |= await timings(_inside(folder, "times"), build, given.trials)
        for count in COUNTS:
            if given.only != "times":
                inside = _inside(folder, f"crowd{count}")
                figures |= await polled(inside, build, count, given.seconds)
    return figures


def _inside(folder: str, name: str) -> Path:
    path = Path(folder) / name
    path.mkdir()
    return path


def facts(given: argparse.Namespace, build: Build, load_before: float) -> list[str]:
    kernel = ".".join(platform.release().split(".")[:2])
    return [
        f"{datetime.now(UTC):%Y-%m-%d}; data plane {build.name}; CPU of polling over "
        f"{given.seconds:g} s",
        f"{os.cpu_count()} cores, Linux {kernel}, Python {platform.python_version()}; load average "
        f"{load_before:.1f} before the run, {os.getloadavg()[0]:.1f} after it, itself included",
    ]


def main() -> None:
    given = arguments()
    missing = missing_build(given.compiled)
    build = INTERPRETED if missing else Build("compiled", given.compiled.resolve())
    if missing:
        print(f"the data plane runs interpreted: {missing}")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    load_before = os.getloadavg()[0]
    figures = asyncio.run(run(given, build))
    print("\n\n".join(text for text in (times(figures), costs(figures)) if text))
    if given.write:
        old = given.write.read_text() if given.write.exists() else ""
        said = section(figures, facts(given, build, load_before))
        given.write.write_text(with_part(old, PART, said))


if __name__ == "__main__":
    main()
