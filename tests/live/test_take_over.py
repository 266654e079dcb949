"""One gateway takes over from another: no connection is refused, no stream is cut, no instance
restarts; and what fails before the commit costs nothing.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.live.clients import ask, crowd, streams
from tests.live.gateways import PATIENCE_S, Gateway, config, running, scripted_model, started
from tests.live.scripted_instance import write_snapshot

pytestmark = pytest.mark.live

CLIENTS: Final = 8  # over two instances of eight places each, streams beside them
STREAMS: Final = 4
FROZEN: Final = "a successor asks to take over: changes are refused meanwhile"
GOES_ON: Final = "the successor has failed: going on"


def two_instances(folder: Path, **keys: object) -> str:
    write_snapshot(folder / "models", "m", "1")
    model = scripted_model("m", {"1": 100}, replicas={"1": 2}, limit=8, **keys)
    patient = "[drain]\ngrace_s = 120\n"  # for what is held, on a machine that does other work too
    return config(folder, patient, model, gateway="workers = 2")


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Gateway]:
    async with running(folder, two_instances(folder)) as gateway:
        await gateway.ready("m-1-0", "m-1-1")
        await gateway.routes("m", {"1": 100})
        yield gateway


@asynccontextmanager
async def successor(old: Gateway) -> AsyncIterator[Gateway]:
    """A gateway that has taken over from `old`, which may still finish what it holds."""
    async with started(old.folder, None, "--take-over") as new:
        await new.start()
        yield new


async def lives(gateway: Gateway) -> dict[str, tuple[int, str]]:
    """Pid and incarnation of every instance."""
    found = (await gateway.read("/instances"))["instances"]
    return {one["id"]: (one["pid"], one["incarnation"]) for one in found}


async def ended(gateway: Gateway) -> int:
    return await asyncio.wait_for(gateway.process.wait(), PATIENCE_S)


async def test_no_request_fails_over_two_take_overs_and_no_instance_restarts(
    tmp_path: Path,
) -> None:
    """Short requests all the time, and streams that begin before and end after; a third generation
    takes over from the second as the second did from the first.
    """
    async with AsyncExitStack() as gateways, serving(tmp_path) as gateway:
        before = await lives(gateway)
        async with crowd(gateway, "m", CLIENTS, max_tokens=4) as traffic:
            for end in (tmp_path / "end1", tmp_path / "end2"):
                await traffic.more(2 * CLIENTS)
                long = await streams(gateway, "m", STREAMS, until=end)
                old, gateway = gateway, await gateways.enter_async_context(successor(gateway))
                assert not any(stream.done() for stream in long)
                await traffic.more(2 * CLIENTS)
                assert await lives(gateway) == before
                end.touch()
                assert all(answer.whole for answer in await asyncio.gather(*long))
                assert await ended(old) == 0
            await traffic.more(2 * CLIENTS)
        assert traffic.lost == []
        assert await lives(gateway) == before
        await gateway.quiet()
        assert await gateway.end() == 0


async def test_a_successor_that_dies_before_its_commit_costs_nothing(tmp_path: Path) -> None:
    """While it is there, changes are refused; when it is gone, they are taken as before."""
    async with serving(tmp_path) as gateway:
        before = await lives(gateway)
        async with crowd(gateway, "m", CLIENTS, max_tokens=4) as traffic:
            long = await streams(gateway, "m", STREAMS, until=tmp_path / "end")
            after = len(gateway.lines)
            async with started(tmp_path, None, "--take-over") as failing:
                failing.listen()
                await gateway.says(lambda text: text == FROZEN, after)
                failing.process.send_signal(signal.SIGSTOP)  # it can commit no more
                status, said = await gateway.change("PUT", "/instances/m-1-0/weight", {"weight": 2})
                assert (status, said["error"]["code"]) == (503, "handing_over")
                await traffic.more(CLIENTS)
                failing.process.kill()
                await gateway.says(lambda text: text == GOES_ON, after)
            status, said = await gateway.change("PUT", "/instances/m-1-0/weight", {"weight": 2})
            assert status == 200, said
            await traffic.more(2 * CLIENTS)
            (tmp_path / "end").touch()
            assert all(answer.whole for answer in await asyncio.gather(*long))
        assert traffic.lost == []
        assert await lives(gateway) == before
        async with successor(gateway) as second:  # and the next one is as welcome as the first
            assert await lives(second) == before
            assert (await second.read("/instances/m-1-0"))["weight"] == 2
            assert await ended(gateway) == 0


async def test_weights_and_drains_survive_and_a_signal_to_the_predecessor_does_no_harm(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as first:
        before = await lives(first)
        assert (await first.change("PUT", "/instances/m-1-0/weight", {"weight": 3}))[0] == 200
        assert (await first.command("drain", "m-1-1", "--wait"))[0] == 0
        (long,) = await streams(first, "m", 1, until=tmp_path / "end")
        async with successor(first) as second:
            first.process.send_signal(signal.SIGTERM)
            assert await lives(second) == before
            assert (await second.read("/instances/m-1-0"))["weight"] == 3
            assert (await second.read("/instances/m-1-1"))["intent"] == "drain"
            answers = [await ask(second, "m") for _ in range(4)]
            assert {answer.instance for answer in answers} == {"m-1-0"}
            after = len(second.lines)
            assert (await second.command("undrain", "m-1-1"))[0] == 0
            await second.ready("m-1-1", after=after)
            await second.routes("m", {"1": 100})
            (tmp_path / "end").touch()
            assert (await long).whole
            assert await ended(first) == 0
            answers = [await ask(second, "m") for _ in range(100)]  # a quarter is its share
            assert all(answer.whole for answer in answers)
            assert {answer.instance for answer in answers} == {"m-1-0", "m-1-1"}


async def test_an_instance_that_came_along_is_watched_and_killed_as_if_it_was_ours(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as first, successor(first) as second:
        assert await ended(first) == 0
        pid, _ = (await lives(second))["m-1-0"]
        after = len(second.lines)
        os.kill(pid, signal.SIGKILL)
        await second.says(lambda text: text.startswith("m-1-0 ended: signal 9"), after)
        await second.ready("m-1-0", after=after)
        assert (await second.change("POST", "/instances/m-1-1/stop", {"force": True}))[0] == 200
        await second.says(lambda text: text.startswith("m-1-1 ended"), after)
        assert (await ask(second, "m")).whole


async def test_an_instance_that_ends_meanwhile_costs_the_predecessor_nothing_it_still_holds(
    tmp_path: Path,
) -> None:
    """Once the predecessor read from the guard's pipe that it had given away, and died of it."""
    async with serving(tmp_path) as first:
        (long,) = await streams(first, "m", 1, until=tmp_path / "end")
        (held,) = {lease["instance"] for lease in (await first.read("/leases"))["leases"]}
        (other,) = {"m-1-0", "m-1-1"} - {held}
        async with successor(first) as second:
            after = len(second.lines)
            os.kill((await second.pids())[other], signal.SIGKILL)
            await second.says(lambda text: text.startswith(f"{other} ended"), after)
            (tmp_path / "end").touch()
            assert (await long).whole
            assert await ended(first) == 0


async def test_a_drain_of_the_successor_waits_for_what_the_predecessor_holds(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as first:
        (long,) = await streams(first, "m", 1)
        (held,) = (await first.read("/leases"))["leases"]
        async with successor(first) as second:
            name = held["instance"]
            assert (await second.command("drain", name))[0] == 0
            await second.says(lambda text: text == f"drain of {name}: waiting")
            (drain,) = (await second.read("/drains"))["drains"]
            assert (drain["phase"], drain["held"]) == ("waiting", 1)
            assert not long.done()
            long.cancel()  # its client leaves
            await second.says(lambda text: text == f"drain of {name}: done")
            assert await ended(first) == 0


async def test_a_drain_of_the_successor_cuts_at_its_deadline_what_the_predecessor_holds(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as first:
        (long,) = await streams(first, "m", 1)
        (held,) = (await first.read("/leases"))["leases"]
        async with successor(first) as second:
            assert (await second.command("drain", held["instance"], "--grace", "0.5"))[0] == 0
            answer = await long
            assert answer.broke
            assert await ended(first) == 0  # it held nothing else
            request = held["request_id"]
            await first.says(lambda text: text.startswith(f"request {request} lost"))


async def test_a_run_folder_that_cannot_be_written_costs_no_take_over(tmp_path: Path) -> None:
    """A disk may be full: what is written there is for those who come later."""
    async with serving(tmp_path) as first:
        before = await lives(first)
        for name in ("gateway.new", "accepted.new"):
            (tmp_path / "run" / name).mkdir()
        async with started(tmp_path, None, "--take-over") as second:
            second.listen()
            await second.says(lambda text: text == "taken over")
            assert await ended(first) == 0
            second.where = first.where
            await second.says(lambda text: text == "the settings in force are not kept")
            assert await lives(second) == before
            assert (await ask(second, "m")).whole
            await second.says(lambda text: text == "the run folder cannot be written")


async def test_without_a_gateway_it_starts_as_usual_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(two_instances(tmp_path))
    async with started(tmp_path, None, "--take-over") as gateway:
        await gateway.start()
        await gateway.says(lambda text: "no gateway runs here to take over from" in text)
        await gateway.ready("m-1-0", "m-1-1")
        assert await gateway.end() == 0


async def test_a_config_that_disagrees_on_addresses_is_refused_and_the_old_one_goes_on(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as gateway:
        file = tmp_path / "config.toml"
        file.write_text(file.read_text().replace('"127.0.0.1:0"', '"127.0.0.1:1"'))
        async with started(tmp_path, None, "--take-over") as failing:
            assert failing.process.stderr is not None
            said = (await failing.process.stderr.read()).decode()
            assert await ended(failing) == 1
        assert "gateway.listen is 127.0.0.1:1, not " in said
        assert "a take-over cannot change that, a restart can" in said
        await gateway.says(lambda text: text == GOES_ON)
        assert (await ask(gateway, "m")).whole
