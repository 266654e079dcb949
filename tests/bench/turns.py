"""Contenders in turns, round by round; what they were seen to cost.

Floor 3, I/O.   Owner of the samples and notes: Bench.
Contenders alternate every second or two and change their order from turn to turn, so that a
neighbour who uses the machine for a minute does not decide who is faster. A round has several turns
of each load and processes of its own. Memory is looked at in processes that did nothing else.
Routers that do not start, or fail in a load, cost a note and not the run; the others end it.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from tests.bench import loads
from tests.bench.contenders import Contender, Start
from tests.bench.loads import Load, Sizes, Values
from tests.bench.outputs import LoadFailed
from tests.bench.report import Sample
from tests.bench.starting import CannotStart

WARM_UP_S: Final = 1
LOADS: Final[dict[str, Load]] = {
    "post": loads.post,
    "uniq": loads.uniq,
    "sse": loads.sse,
    "up": loads.up,
    "down": loads.down,
}
TURNS: Final = {"post": 4, "uniq": 4, "sse": 2, "up": 2, "down": 2}  # of each load in a round
OPTIONAL: Final = frozenset({"sglang-router", "vllm-router"})


class Bench:
    """`ports` are the instances'; `starts` the contenders by name, in the order of the table."""

    def __init__(self, starts: Mapping[str, Start], ports: Sequence[int], sizes: Sizes) -> None:
        self.samples: list[Sample] = []
        self.notes: list[str] = []
        self._failed: set[tuple[str, str]] = set()
        self.ports = ports
        self.sizes = sizes
        self._names = list(starts)
        self._starts = dict(starts)

    def names(self) -> list[str]:
        """Contenders of which there is anything to show."""
        seen = {sample.contender for sample in self.samples}
        return [name for name in self._names if name in seen]

    async def round(self, number: int, kinds: Sequence[str]) -> None:
        if wanted := [kind for kind in LOADS if kind in kinds]:
            async with AsyncExitStack() as stack:
                running = [await self._started(stack, name) for name in list(self._starts)]
                for kind in wanted:
                    await self._turns(number, kind, [who for who in running if who is not None])

    async def memory(self, number: int) -> None:
        for name in list(self._starts):
            async with AsyncExitStack() as stack:
                who = await self._started(stack, name)
                if who is not None:
                    await self.look(number, "memory", loads.memory, who)

    async def _started(self, stack: AsyncExitStack, name: str) -> Contender | None:
        """Warm: every instance has a connection, whatever is made once is made."""
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluicegate-bench-"))
        os.chmod(folder, 0o755)  # nginx's worker is another user
        addresses = [f"127.0.0.1:{port}" for port in self.ports]
        try:
            who = await stack.enter_async_context(self._starts[name](Path(folder), addresses))
            await loads.requests(who.port, "post.lua", WARM_UP_S, loads.CONNECTIONS)
        except (CannotStart, LoadFailed) as exc:
            if name not in OPTIONAL:
                raise
            del self._starts[name]
            self.tell(f"{name} is left out: {exc}")
            return None
        return who

    async def _turns(self, number: int, kind: str, running: Sequence[Contender]) -> None:
        without = await loads.direct(self.ports[0], self.sizes) if kind == "sse" else 0.0
        turns = min(TURNS[kind], self.sizes.turns)
        for k in range(turns):
            turn = number * turns + k
            first = turn % len(running)
            for who in [*running[first:], *running[:first]]:
                await self.look(turn, kind, LOADS[kind], who, without)

    async def look(
        self, turn: int, kind: str, load: Load, who: Contender, without: float = 0.0
    ) -> None:
        try:
            found = await load(who, self.sizes)
        except (LoadFailed, OSError) as exc:  # OSError: it has ended, and /proc knows it no more
            if who.name not in OPTIONAL:
                raise
            if (who.name, kind) not in self._failed:  # the first of each kind is enough to read
                self._failed.add((who.name, kind))
                self.tell(f"{who.name}, {kind}: {exc}")
            return
        if kind == "sse":
            found["sse_added_us"] = found["sse_p50_us"] - without
        self.note(turn, who.name, found)

    def note(self, turn: int, name: str, found: Values) -> None:
        said = " ".join(f"{figure}={value:.1f}" for figure, value in found.items())
        print(f"turn {turn + 1}: {name:11} {said}", file=sys.stderr, flush=True)
        self.samples += [Sample(turn, name, figure, value) for figure, value in found.items()]

    def tell(self, note: str) -> None:
        print(note, file=sys.stderr, flush=True)
        self.notes.append(note)
