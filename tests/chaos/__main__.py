"""A chaos run: real processes, steady load, an operator who never rests, and SIGKILL if wanted.

Floor 5.
`python -m tests.chaos --seconds 300 --kills 6 --seed 1`. Prints what happened as a table, and one
last line: `sent=... answered=... lost=... unnamed=...`. Exit code 0: every loss has a name, without
kills nothing is lost, the gateway's own counters agree, and the fleet is whole again at the end.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Final

import click
import uvloop

from admin.calls import Unanswered
from tests.chaos.audit import Account, Kill, audit
from tests.chaos.clients import CROWD, MINDSPORE, Book, client
from tests.chaos.fleet import (
    PATIENCE_S,
    TINY,
    VOLUME,
    Failed,
    Fleet,
    awaited,
    can_take_over,
    serving,
)
from tests.chaos.kills import killer
from tests.chaos.operations import Operator, for_seconds
from tests.chaos.report import counters, table

QUIET_S: Final = 120.0  # for the last answers after the last question


class Run:
    """One run; `problems` are the reasons for an exit code other than 0."""

    def __init__(self, folder: Path, seconds: float, kills: int, seed: int, tiny: bool) -> None:
        self.fleet = Fleet(folder, tiny, kills > 0)
        self.book = Book("", seed)
        self.kills: list[Kill] = []
        self.problems: list[str] = []
        self.operator = Operator(self.fleet, Random(f"{seed} operator"))
        self._seconds = seconds
        self._wanted_kills = kills
        self._seed = seed

    async def whole(self) -> Account:
        """The run from start to end; nothing of it is left running, whatever happens."""
        try:
            await self._go()
        except (Failed, Unanswered) as exc:
            self.problems.append(str(exc))
        finally:
            self.fleet.kill()
        return self._account()

    async def _go(self) -> None:
        fleet = self.fleet
        self.operator.may_take_over = await can_take_over()
        await fleet.start()
        self.book.address = fleet.address
        print(f"gateway on {fleet.address}, admin on {fleet.admin}", flush=True)
        await self._served(VOLUME)
        crowds = [asyncio.create_task(self._crowd(kind)) for kind in CROWD if kind != MINDSPORE]
        try:
            if fleet.tiny:
                await self._served(TINY)
                crowds.append(asyncio.create_task(self._crowd(MINDSPORE)))
            await self._trouble()
            await self.operator.restore()
        except asyncio.CancelledError:  # somebody wants the end, and no account
            for crowd in crowds:
                crowd.cancel()
            raise
        finally:
            self.book.leaving = True
            async with asyncio.timeout(QUIET_S):
                await asyncio.gather(*crowds)
        await awaited("nothing is in flight", self._is_quiet)
        self._compare(await fleet.metrics())
        code = await fleet.end()
        if code != 0:
            self.problems.append(f"the gateway ended with exit code {code}")

    async def _served(self, model: str) -> None:
        """Returns when every instance of the model serves."""

        async def look() -> bool:
            found = await self.fleet.ask(lambda client: client.read.instances())
            mine = [one for one in found if one.model == model]
            return bool(mine) and all(serving(one) and one.routable for one in mine)

        await awaited(f"{model} serves", look)

    async def _crowd(self, kind: str) -> None:
        count, ask = CROWD[kind]
        async with asyncio.TaskGroup() as tasks:
            for i in range(count):
                rng = Random(f"{self._seed} {kind} {i}")
                tasks.create_task(client(self.book, kind, ask, rng))

    async def _trouble(self) -> None:
        operator, rng = self.operator, Random(f"{self._seed} kills")
        work = [operator.operates(), operator.replaces(VOLUME)]
        if self.fleet.tiny:
            work.append(operator.replaces(TINY))
        if self._wanted_kills:
            work.append(killer(self.fleet, self._wanted_kills, self._seconds, rng, self.kills))
        tasks = [asyncio.create_task(one) for one in work]
        watch = asyncio.create_task(self.fleet.lives())
        try:
            await for_seconds(self._seconds, *tasks, watch)
            operator.leaving = True
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, watch):
                task.cancel()

    async def _is_quiet(self) -> bool:
        status = await self.fleet.ask(lambda client: client.read.status())
        return status.in_flight == 0 and all(one.waiting == 0 for one in status.models)

    def _compare(self, metrics: str) -> None:
        """What the gateway has counted itself against what its clients saw."""
        account = self._audit()
        self.problems += counters(metrics, account, whole=not self.operator.done["take-over"])

    def _audit(self) -> Account:
        return audit(self.book.asked, self.fleet.named(), self.kills)

    def _account(self) -> Account:
        unended = [one for one in self.book.asked if one.end is None]
        if unended:
            self.problems.append(f"{len(unended)} requests have not ended")
        account = self._audit()
        deaths = sum(kill.what.startswith("worker") for kill in self.kills)
        if account.unnamed:
            self.problems.append(f"{len(account.unnamed)} losses that nobody named")
        if account.lost and not self._wanted_kills:
            self.problems.append("requests were lost without a kill")
        if (
            len(account.false) > deaths
        ):  # a worker may die between an answer's last byte and its note
            self.problems.append(f"named as lost, but answered: {', '.join(account.false)}")
        return account


@click.command()
@click.option("--seconds", default=300.0, help="How long the trouble lasts, start and end apart.")
@click.option("--kills", default=6, help="SIGKILLs of instances, workers and control, in turn.")
@click.option("--seed", default=1, help="Of everything that is drawn by lot.")
@click.option("--mindspore/--no-mindspore", default=True, help="With a tiny MindSpore model.")
def main(seconds: float, kills: int, seed: int, mindspore: bool) -> None:
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    run = Run(folder, seconds, kills, seed, mindspore)
    began = time.monotonic()
    print(f"seconds={seconds:g} kills={kills} seed={seed} mindspore={mindspore}", flush=True)
    try:
        account = uvloop.run(_until_signal(run))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(f"interrupted; the gateway's log and config: {folder}", flush=True)
        sys.exit(130)  # as a shell has it for Ctrl-C
    print(table(account, run.book.asked, run.kills, run.fleet.named(), run.operator))
    print(f"took {time.monotonic() - began:.0f} s")
    for problem in run.problems:
        print(f"PROBLEM: {problem}")
    if run.problems or account.lost:
        print(f"the gateway's log and config: {folder}")
    else:
        shutil.rmtree(folder)
    print(account.last_line, flush=True)
    sys.exit(1 if run.problems else 0)


async def _until_signal(run: Run) -> Account:
    """SIGTERM ends a run as Ctrl-C does: whatever it has started is ended first."""
    task = asyncio.ensure_future(run.whole())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


if __name__ == "__main__":
    main()
