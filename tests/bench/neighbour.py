"""What a load costs an instance that serves beside it: `python -m tests.bench.neighbour`.

Floor 5, I/O.
One instance of the real model streams without a pause. Alone; then while another one loads and
compiles beside it (its compile cache is empty); then while one does so that is held back. Only the
time until the other one is READY counts. The last line has all figures.
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tests.bench.instances import CannotMeasure, Served, instance, share

PROMPT: Final = "The water in a lock rises"
TOKENS: Final = 64
ALONE_S: Final = 20.0


async def streamed(served: Served, until: "asyncio.Future[None]") -> list[float]:
    """Gaps between two tokens, answer after answer, until it is time."""
    found: list[float] = []
    while not until.done():
        found += (await served.gaps(PROMPT, TOKENS))[1:]  # the first one is the prompt's
    await until
    return found


async def beside(served: Served, cache: Path, *options: str) -> tuple[list[float], float]:
    """The gaps while another one loads, and how long that took to be READY."""
    now = asyncio.get_running_loop().time
    began = now()
    async with instance("loading", cache, *options) as loading:
        found = await streamed(served, loading.ready)
        return found, now() - began


async def measure(threads: int, nice: int, cpus: int) -> str:
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        few = ("--warmup-rounds", "1")
        async with instance("serving", folder / "serving", *few, cpus=cpus) as served:
            await served.ready
            alone = await streamed(served, asyncio.ensure_future(asyncio.sleep(ALONE_S)))
            plain, plain_s = await beside(served, folder / "plain")
            held = ("--load-threads", str(threads), "--load-nice", str(nice))
            back, back_s = await beside(served, folder / "held", *held)
    parts = [
        ("alone", alone, ""),
        ("beside a load", plain, f" (READY after {plain_s:.0f} s)"),
        (f"threads {threads} nice {nice}", back, f" (READY after {back_s:.0f} s)"),
    ]
    return "neighbour, ms between tokens: " + "; ".join(
        f"{name} p50 {share(gaps, 50):.0f} p99 {share(gaps, 99):.0f}{more}"
        for name, gaps, more in parts
    )


@click.command()
@click.option("--load-threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--load-nice", type=click.IntRange(0, 19), default=10, show_default=True)
@click.option("--serving-cpus", type=click.IntRange(0), default=0, help="the first ones; 0: all")
def main(load_threads: int, load_nice: int, serving_cpus: int) -> None:
    """Inter-token times of an instance alone, beside a load, and beside one that is held back."""
    try:
        print(asyncio.run(measure(load_threads, load_nice, serving_cpus)))
    except CannotMeasure as exc:
        sys.exit(f"neighbour: {exc}")


if __name__ == "__main__":
    main()
