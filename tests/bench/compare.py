"""`make bench` and `make bench-quick`: contenders in turns, one table.

Floor 5, I/O.
Contenders alternate every second or two and change their order from turn to turn, so that a
neighbour who uses the machine for a minute does not decide who is faster. A round has several turns
of each load and processes of its own. Memory is looked at in processes that did nothing else.
"""

import argparse
import asyncio
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import gateway.wire.heads
from tests.bench import loads
from tests.bench.contenders import (
    CONTENDERS,
    HERE,
    LOAD_CORE,
    PROXY_CORE,
    CannotStart,
    Contender,
    process,
)
from tests.bench.loads import Load, Sizes
from tests.bench.outputs import LoadFailed
from tests.bench.report import BASELINE, OURS, Sample, document, quick_line, table

ROOT: Final = HERE.parents[1]
BUILT: Final = ROOT / "var" / "bench"
INSTANCES: Final = 10  # ports of the one stub: picks have something to choose from
WARM_UP_S: Final = 1
WINDOW_S: Final = 2  # of streams: 40,000 events
COMPILE: Final = ("cc", "-O2", "-Wall", "-Wextra", "-Werror")

LOADS: Final[dict[str, Load]] = {
    "post": loads.post,
    "uniq": loads.uniq,
    "sse": loads.sse,
    "up": loads.up,
    "down": loads.down,
}
TURNS: Final = {"post": 4, "uniq": 4, "sse": 2, "up": 2, "down": 2}  # of each load in a round
QUICK: Final = ["post", "sse", "memory"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.compare", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of nginx and Sluicegate")
    parser.add_argument("--rounds", type=int, help="default: 4, with --quick 1")
    parser.add_argument("--seconds", type=int, default=1, help="of each turn; default: %(default)s")
    parser.add_argument("--only", type=lambda text: text.split(","), help="loads, with commas")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where the document goes")
    return parser.parse_args()


def build(name: str) -> Path:
    """The compiled program."""
    BUILT.mkdir(parents=True, exist_ok=True)
    subprocess.run([*COMPILE, "-o", str(BUILT / name), str(HERE / f"{name}.c")], check=True)
    return BUILT / name


@asynccontextmanager
async def instances() -> AsyncIterator[list[int]]:
    """Ports of a running stub."""
    async with process(str(build("stub")), str(INSTANCES), stdout=subprocess.PIPE) as stub:
        assert stub.stdout is not None
        yield [int(port) for port in (await stub.stdout.readline()).split()]


class Bench:
    """Owner of the samples. `ports` are the instances'."""

    def __init__(self, contenders: Sequence[str], ports: Sequence[int], sizes: Sizes) -> None:
        self.samples: list[Sample] = []
        self._contenders = contenders
        self._ports = ports
        self._addresses = [f"127.0.0.1:{port}" for port in ports]
        self._sizes = sizes

    async def round(self, number: int, kinds: Sequence[str]) -> None:
        if wanted := [kind for kind in LOADS if kind in kinds]:
            async with AsyncExitStack() as stack:
                running = [await self._started(stack, name) for name in self._contenders]
                for kind in wanted:
                    await self._turns(number, kind, running)
        if "memory" in kinds:
            for name in self._contenders:
                async with AsyncExitStack() as stack:
                    who = await self._started(stack, name)
                    self._note(number, name, await loads.memory(who, self._sizes))

    async def _started(self, stack: AsyncExitStack, name: str) -> Contender:
        """Warm: every instance has a connection, whatever is made once is made."""
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluicegate-bench-"))
        os.chmod(folder, 0o755)  # nginx's worker is another user
        who = await stack.enter_async_context(CONTENDERS[name](Path(folder), self._addresses))
        await loads.requests(who.port, "post.lua", WARM_UP_S, loads.CONNECTIONS)
        return who

    async def _turns(self, number: int, kind: str, running: Sequence[Contender]) -> None:
        without = await loads.direct(self._ports[0], self._sizes) if kind == "sse" else 0.0
        for k in range(TURNS[kind]):
            turn = number * TURNS[kind] + k
            first = turn % len(running)
            for who in [*running[first:], *running[:first]]:
                found = await LOADS[kind](who, self._sizes)
                if kind == "sse":
                    found["sse_added_us"] = found["sse_p50_us"] - without
                self._note(turn, who.name, found)

    def _note(self, turn: int, name: str, found: loads.Values) -> None:
        said = " ".join(f"{figure}={value:.1f}" for figure, value in found.items())
        print(f"turn {turn + 1}: {name:11} {said}", file=sys.stderr, flush=True)
        self.samples += [Sample(turn, name, figure, value) for figure, value in found.items()]


def facts(rounds: int, seconds: int, load: tuple[float, float]) -> list[str]:
    """What a reader has to know of the run; no name of a host or a place."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    kernel = ".".join(platform.release().split(".")[:2])
    is_python = str(gateway.wire.heads.__file__).endswith(".py")
    kind = "interpreted" if is_python else "compiled"
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, `make bench`: {rounds} rounds; turns of {seconds} s, "
        f"of streams {WINDOW_S} s",
        f"{os.cpu_count()} cores of {cpu[1] if cpu else platform.machine()}, Linux {kernel}; "
        f"load average {load[0]:.1f} before the run, {load[1]:.1f} after it",
        f"{_version('nginx', '-v')}, HAProxy {_version('haproxy', '-v')}, "
        f"Python {platform.python_version()}, data plane {kind}",
        f"one working process each, on a core of its own; {INSTANCES} instances and the load on "
        "the other; Sluicegate whole: `sluicegate serve`, one worker, model read from the body",
    ]


def _version(*command: str) -> str:
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"nginx/\S+|(?<=version )[\d.]+", said.stdout + said.stderr)
    return found[0] if found else "of unknown version"


async def run(given: argparse.Namespace) -> Bench:
    rounds = given.rounds or (1 if given.quick else 4)
    kinds = given.only or (QUICK if given.quick else [*LOADS, "memory"])
    contenders = [BASELINE, OURS] if given.quick else list(CONTENDERS)
    before = os.getloadavg()[0]
    async with instances() as ports:
        bench = Bench(contenders, ports, Sizes(build("sse"), given.seconds, 5000, WINDOW_S))
        for number in range(rounds):
            await bench.round(number, kinds)
    shown = table(bench.samples, contenders)
    print(shown)
    if given.write:
        said = facts(rounds, given.seconds, (before, os.getloadavg()[0]))
        given.write.write_text(document(shown, said))
    return bench


def main() -> None:
    given = arguments()
    if not {PROXY_CORE, LOAD_CORE} <= os.sched_getaffinity(0):
        sys.exit("bench: two cores are needed, one for the proxy and one for everything else")
    os.sched_setaffinity(0, {LOAD_CORE})  # inherited; working processes are moved off it
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        bench = asyncio.run(run(given))
    except (CannotStart, LoadFailed) as exc:
        sys.exit(f"bench: {exc}")
    if given.quick and not given.only:
        print(quick_line(bench.samples))


if __name__ == "__main__":
    main()
