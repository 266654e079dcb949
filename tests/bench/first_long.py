"""Whether the first long request after READY pays for anything: `python -m tests.bench.first_long`.

Floor 5, I/O.
An instance of the real model becomes READY with an empty compile cache, then answers ten prompts
that are as long as its context allows, each with a beginning of its own. Once with its warm-up and
once without. The last line has the times of the first and of the tenth, and how many graphs were
compiled after READY.
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tests.bench.instances import CannotMeasure, instance

# Token ids: as many as are wanted, whatever the tokenizer. Of 1024 positions, with the answer's.
LENGTH: Final = 1000
TOKENS: Final = 4
REQUESTS: Final = 10
WORDS: Final = "lock water gate boat level rise hold open close wait minute feet upper lower way"


def prompt(number: int) -> str:
    """About LENGTH tokens (a word of these is one, or two), beginning as no other does."""
    words = WORDS.split()
    first = words[number % len(words) :] + words[: number % len(words)]
    return " ".join((first * LENGTH)[: LENGTH * 4 // 5])


async def measure(rounds: int) -> str:
    with TemporaryDirectory() as scratch:
        options = ("--warmup-rounds", str(rounds))
        async with instance("long", Path(scratch) / "cache", *options) as served:
            await served.ready
            before = await served.gauge("sluicegate_instance_graphs{")
            took = [sum(await served.gaps(prompt(n), TOKENS)) for n in range(REQUESTS)]
            compiled = await served.gauge("sluicegate_instance_graphs{") - before
    return (
        f"{rounds} rounds: first {took[0]:.2f} s, tenth {took[-1]:.2f} s, "
        f"graphs compiled after READY {compiled:.0f} of {before + compiled:.0f}"
    )


async def both(rounds: int) -> str:
    return f"first long: {await measure(rounds)}; {await measure(0)}"


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
def main(rounds: int) -> None:
    """First and tenth long request after READY, with a warm-up and without."""
    try:
        print(asyncio.run(both(rounds)))
    except CannotMeasure as exc:
        sys.exit(f"first long: {exc}")


if __name__ == "__main__":
    main()
