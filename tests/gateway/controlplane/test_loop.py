import asyncio
from dataclasses import dataclass

from gateway.controlplane.loop import ControlLoop


@dataclass(frozen=True)
class Say:
    word: str


@dataclass(frozen=True)
class Wait:
    word: str


@dataclass(frozen=True)
class Break:
    pass


class Bench:
    """A loop whose state is the tuple of events so far; every event orders what it spells."""

    def __init__(self, orders: dict[str, list[object]]) -> None:
        self.said: list[str] = []
        self.gate = asyncio.Event()
        self.seen = asyncio.Event()
        self.loop = ControlLoop[tuple[str, ...], str](
            (),
            lambda state, event: ((*state, event), orders.get(event, [])),
            {Say: self.say, Wait: self.wait, Break: self.breaks},
            lambda command, exc: f"broken {type(command).__name__} {exc}",
        )

    def say(self, command: Say) -> None:
        self.said.append(command.word)

    async def wait(self, command: Wait) -> str:
        await self.gate.wait()
        return command.word

    def breaks(self, command: Break) -> None:
        raise OSError("disk full")

    async def until(self, event: str) -> None:
        done = asyncio.Event()
        if event in self.loop.state:
            return
        self.loop.after.append(lambda state: done.set() if event in state else None)
        async with asyncio.timeout(300):
            await done.wait()


async def test_effects_that_do_not_wait_happen_in_the_order_of_the_commands() -> None:
    bench = Bench({"a": [Say("1"), Wait("slow"), Say("2")], "b": [Say("3")]})
    running = asyncio.create_task(bench.loop.run())
    waited = asyncio.create_task(bench.until("slow"))
    for event in ("a", "b"):
        bench.loop.post(event)
    await asyncio.create_task(bench.until("b"))
    bench.gate.set()
    await waited
    assert bench.said == ["1", "2", "3"]
    assert bench.loop.state == ("a", "b", "slow")
    running.cancel()


async def test_what_the_world_broke_becomes_an_event_and_the_loop_goes_on() -> None:
    bench = Bench({"a": [Break(), Say("after")]})
    running = asyncio.create_task(bench.loop.run())
    bench.loop.post("a")
    await bench.until("broken Break disk full")
    assert bench.said == ["after"]
    assert not running.done()
    running.cancel()
