"""`make bench` and `make bench-quick`: contenders in turns, Sluicegate alone, one document.

Floor 5, I/O.
Without a compiled build there is no column for it, and the targets that are about it stay open.
"""

import argparse
import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from tests.bench import alone
from tests.bench.alone import Ground
from tests.bench.contenders import LOAD_CORE, PROXY_CORE, known
from tests.bench.document import document
from tests.bench.facts import facts
from tests.bench.loads import Sizes
from tests.bench.outputs import LoadFailed
from tests.bench.parts import keeping_parts
from tests.bench.programs import BUILT, ROOT, build, instances, missing_build, newest_build
from tests.bench.report import BASELINE, OURS, OWN, PLAIN, quick_line, ratio_table, table
from tests.bench.serving import INTERPRETED, Build, named
from tests.bench.stalls import stalls
from tests.bench.starting import CannotStart, process
from tests.bench.targets import verdicts
from tests.bench.turns import LOADS, Bench

INSTANCES: Final = 10  # ports of the one stub: picks have something to choose from
ROUNDS: Final = 4
MEMORY_ROUNDS: Final = 2  # five thousand streams cost the same every time
QUICK: Final = ("post", "sse", "memory")
ALONE: Final[dict[str, Callable[[Ground], Awaitable[None]]]] = {
    "workers": alone.workers,
    "routing": alone.routing,
    "growth": alone.growth,
    "held": alone.held,
    "stalls": stalls,
}
KINDS: Final = (*LOADS, "memory", *ALONE, "picks")
SHORT: Final = {"turns": 1, "streams": 1000, "streams_held": 2000, "requests": 100_000}


def split(text: str) -> list[str]:
    return text.split(",")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.compare", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of nginx and Sluicegate")
    parser.add_argument("--short", action="store_true", help="one turn of everything, to try it")
    parser.add_argument("--rounds", type=int, help=f"default: {ROUNDS}; 1 when quick or short")
    parser.add_argument("--seconds", type=int, default=1, help="of each turn; default: 1")
    parser.add_argument("--requests", type=int, help="of `growth`; default: 1,000,000")
    parser.add_argument("--only", type=split, help=f"with commas, of {', '.join(KINDS)}")
    parser.add_argument("--contenders", type=split, help="with commas; default: all there are")
    parser.add_argument("--compiled", type=Path, default=newest_build(), help="default: the newest")
    parser.add_argument("--peers", type=Path, default=BUILT / "peers", help="virtual environment")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where the document goes")
    given = parser.parse_args()
    given.compiled = given.compiled.resolve()
    if unknown := set(given.only or ()) - set(KINDS):
        parser.error(f"--only knows {', '.join(KINDS)}; not {', '.join(sorted(unknown))}")
    return given


def sizes_of(given: argparse.Namespace) -> Sizes:
    changes = dict(SHORT) if given.short else {}
    if given.requests:
        changes["requests"] = given.requests
    return Sizes(sse=build("sse"), seconds=given.seconds, **changes)


async def picks(bench: Bench, builds: Sequence[Build]) -> None:
    """Each in a process of its own, on the proxy's core."""
    for one in builds:
        path = os.pathsep.join(str(folder) for folder in (one.folder, ROOT) if folder)
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        command = ("taskset", "-c", str(PROXY_CORE), sys.executable, "-m", "tests.bench.picks")
        piped = asyncio.subprocess.PIPE
        async with process(*command, stdout=piped, environment=environment) as measuring:
            output, _ = await measuring.communicate()
        found = {
            f"pick_{policy}_{count}_ns": value
            for policy, row in json.loads(output).items()
            for count, value in row.items()
        }
        bench.note(0, named(one), found)


async def measure(given: argparse.Namespace, builds: Sequence[Build], bench: Bench) -> None:
    kinds = given.only or (QUICK if given.quick else KINDS)
    for number in range(given.rounds):
        await bench.round(number, kinds)
        if "memory" in kinds and number < MEMORY_ROUNDS:
            await bench.memory(number)
    ground = Ground(bench.ports, bench.sizes, builds[0], bench.note)
    for kind in ALONE:
        if kind in kinds:
            await ALONE[kind](ground)
    if "picks" in kinds:
        await picks(bench, builds)


async def run(given: argparse.Namespace) -> None:
    begun, load_before = time.monotonic(), os.getloadavg()[0]
    missing = missing_build(given.compiled)
    builds = [INTERPRETED] if missing else [Build("compiled", given.compiled), INTERPRETED]
    starts = known(builds, given.peers)
    wanted = given.contenders or ([BASELINE, named(builds[0])] if given.quick else list(starts))
    sizes = sizes_of(given)
    build("stub")
    async with instances(INSTANCES) as ports:
        bench = Bench({name: starts[name] for name in starts if name in wanted}, ports, sizes)
        if missing:
            bench.tell(f"Sluicegate (compiled) is left out: {missing}")
        await measure(given, builds, bench)
    show(bench)
    if given.write:
        loaded = (load_before, os.getloadavg()[0])
        said = facts(given.rounds, sizes, loaded, given.peers, time.monotonic() - begun)
        old = given.write.read_text() if given.write.exists() else ""
        text = document(bench.samples, bench.names(), said, bench.notes)
        given.write.write_text(keeping_parts(old, text))
    if given.quick and not given.only:
        print(quick_line(bench.samples, named(builds[0])))


def show(bench: Bench) -> None:
    """What the document holds, for a terminal."""
    names = bench.names()
    ours = [one for one in names if one in (OURS, PLAIN)]
    tables = (
        table(bench.samples, names),
        ratio_table(bench.samples, names),
        table(bench.samples, ours, OWN),
        verdicts(bench.samples, measured_only=True),
        "\n".join(bench.notes),
    )
    print("\n\n".join(text for text in tables if text))


def main() -> None:
    given = arguments()
    given.rounds = given.rounds or (1 if given.quick or given.short else ROUNDS)
    if not {PROXY_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        sys.exit("bench: two cores are needed, one for the proxy and one for everything else")
    os.sched_setaffinity(0, {LOAD_CORE})  # inherited; working processes are moved off it
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        asyncio.run(run(given))
    except (CannotStart, LoadFailed) as exc:
        sys.exit(f"bench: {exc}")


if __name__ == "__main__":
    main()
