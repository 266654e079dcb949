"""`python -m tests.bench.prefill`: what a long prompt costs the streams beside it.

Floor 5, I/O.
Three streams of the demonstration model run in one instance. After some quiet tokens of each a long
prompt is sent; the gaps between tokens are those before it, and those until its own first token.
"""

import argparse
import asyncio
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

from tests.bench.lifecycle_text import quantile
from tests.bench.model import Answer, serving, spread, streamed
from tests.live.gateways import Gateway

STREAMS: Final = 3
PROMPT: Final = 900  # ids
QUIET: Final = 40  # tokens of each stream before the prompt comes
TOKENS_MAX: Final = 900  # of each stream: more than a round needs, at 1,024 positions
IDS: Final = range(1000, 40_000)  # plain tokens of the model


@dataclass(slots=True)
class Found:
    """Milliseconds; of all rounds."""

    quiet_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)


class Round:
    """Streams that run until the long prompt beside them has its first token."""

    def __init__(self, gateway: Gateway, rng: Random, tokens: int, quiet: int) -> None:
        self._gateway = gateway
        self._rng = rng
        self._tokens = tokens
        self._quiet = quiet
        self._came: list[list[float]] = [[] for _ in range(STREAMS)]
        self._warm = asyncio.Event()

    async def run(self, found: Found) -> None:
        streams = [asyncio.create_task(self._stream(number)) for number in range(STREAMS)]
        warm = asyncio.create_task(self._warm.wait())
        # A stream that fails must not leave the round waiting.
        await asyncio.wait([warm, *streams], return_when=asyncio.FIRST_COMPLETED)
        if not self._warm.is_set():
            await asyncio.gather(*streams)
        answer = await self._ask(self._tokens, max_tokens=1)
        began, ended = answer.asked_s, answer.came_s[0]
        found.first_ms.append(answer.first_ms)
        for task, came in zip(streams, self._came, strict=True):
            task.cancel()
            gaps = [(after, (after - before) * 1000) for before, after in pairwise(came)]
            # The first of them are beside the streams' own prompts.
            found.quiet_ms += [gap for after, gap in gaps if after < began][-self._quiet :]
            found.beside_ms += [gap for after, gap in gaps if began < after <= ended]
        await asyncio.gather(*streams, return_exceptions=True)

    async def _stream(self, number: int) -> None:
        def on_piece(now: float) -> None:
            self._came[number].append(now)
            if all(len(came) > self._quiet for came in self._came):
                self._warm.set()

        body = self._body(8) | {"max_tokens": TOKENS_MAX, "return_token_ids": True}
        await streamed(self._gateway, "/v1/completions", body, on_piece=on_piece)

    async def _ask(self, tokens: int, max_tokens: int) -> Answer:
        body = self._body(tokens) | {"max_tokens": max_tokens, "return_token_ids": True}
        return await streamed(self._gateway, "/v1/completions", body)

    def _body(self, tokens: int) -> dict[str, object]:
        """A prompt that nothing before it began as."""
        return {"prompt": self._rng.choices(IDS, k=tokens), "ignore_eos": True}


def table(found: Found) -> str:
    return "\n".join(
        [
            "| gap between a stream's tokens, ms | p50 / p99 / largest | gaps |",
            "|---|---|---|",
            f"| {STREAMS} streams alone | {spread(found.quiet_ms)} | {len(found.quiet_ms)} |",
            f"| beside a prompt | {spread(found.beside_ms)} | {len(found.beside_ms)} |",
        ]
    )


def line(found: Found, tokens: int) -> str:
    """The last line, for scripts."""
    figures = {
        "quiet_p50_ms": quantile(found.quiet_ms, 0.5),
        "quiet_p99_ms": quantile(found.quiet_ms, 0.99),
        "beside_p50_ms": quantile(found.beside_ms, 0.5),
        "beside_p99_ms": quantile(found.beside_ms, 0.99),
        "beside_max_ms": max(found.beside_ms),
        "first_token_ms": quantile(found.first_ms, 0.5),
        "prompt_tokens": tokens,
    }
    return " ".join(f"{name}={value:.0f}" for name, value in figures.items())


async def run(given: argparse.Namespace) -> Found:
    found, rng = Found(), Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder), 1) as gateway:
            for _ in range(given.rounds):
                await Round(gateway, rng, given.tokens, given.quiet).run(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.prefill", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=PROMPT, help="of the long prompt")
    parser.add_argument("--quiet", type=int, default=QUIET, help="tokens of a stream before it")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = asyncio.run(run(given))
    print(table(found))
    print(f"\nFirst token of a prompt of {given.tokens}, ms: {spread(found.first_ms)}\n")
    print(line(found, given.tokens))


if __name__ == "__main__":
    main()
