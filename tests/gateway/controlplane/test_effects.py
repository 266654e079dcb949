"""Commands carried out on real gRPC, a real segment and fakes that record the rest."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.config import Settings, parse
from gateway.controlplane.channels import Channels
from gateway.controlplane.effects import Effects, Shells, WorkerCommand
from gateway.controlplane.folds import Folds
from gateway.controlplane.journal import Journal
from gateway.controlplane.link import WorkerLinks
from gateway.controlplane.orders import SupervisorLink
from gateway.controlplane.poll import Poller
from gateway.controlplane.reload import SettingsFile
from gateway.controlplane.tickets import Tickets
from gateway.controlplane.validating import Validating
from gateway.fleet import commands as c
from gateway.fleet.events import (
    Asked,
    CallFailed,
    ChildExited,
    Event,
    FactKept,
    LaunchOrdered,
    NeedsRead,
    Observed,
    Registered,
    RowSettled,
    SettingsRead,
    Source,
    Ticked,
    WriteFailed,
)
from gateway.fleet.handing import (
    ClaimFailed,
    CutAsked,
    FreezeAsked,
    GivenAway,
    HeldElsewhere,
    StoreClaimed,
    Thawed,
    TookOver,
    WritesSettled,
)
from gateway.fleet.registry import hashed
from gateway.fleet.stock import Stock
from gateway.messages import (
    Committed,
    CutHeld,
    Freeze,
    HandedOver,
    Held,
    LineBuffer,
    Message,
    Spawn,
    Thaw,
    encode,
)
from gateway.rollouts import StartRollout
from gateway.state.ledger import Ledger
from gateway.state.shared import Layout, Segment, create
from gateway.store.base import Remove
from gateway.telemetry.tally import Tally
from sluicegate.v1.states import State
from tests.gateway.controlplane.lifecycle import FakeLifecycle
from tests.gateway.controlplane.test_folds import FakeStore
from tests.gateway.fleet.builders import LAUNCHED, STATICS, both_ready, status


class FakeLauncher:
    def __init__(self) -> None:
        self.launched: list[tuple[str, str]] = []

    def launch(self, order: c.Launch, settings: Settings, token: str) -> None:
        self.launched.append((order.name, token))


class Pipe(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[Message] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += LineBuffer().feed(bytes(data))


class Bench:
    def __init__(self, fd: int, folder: Path) -> None:
        self.segment = Segment(fd)
        self.store, self.launcher, self.pipe = FakeStore(), FakeLauncher(), Pipe()
        self.channels, self.tally = Channels(), Tally()
        self.front: list[str] = []
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.file = SettingsFile(folder / "config.toml", folder / "accepted.toml")
        self.instance = FakeLifecycle()
        settings = parse(f'[repository]\nroot = "{folder}"\n{LAUNCHED}')
        folds = Folds(self.segment, self.store, 1, both_ready)
        orders = SupervisorLink(self.segment, self.events.put_nowait, lambda: None)
        orders.connection_made(self.pipe)
        self.poller = Poller(
            self.channels,
            self.events.put_nowait,
            lambda: settings.poll,
            folds.sample,
            lambda name: "",
            random.Random(1),
        )
        self.validating = Validating(orders.order, folder, 42, ("json", "error"))
        effects = Effects(
            Shells(
                segment=self.segment,
                store=self.store,
                links=WorkerLinks(self.events.put_nowait),
                orders=orders,
                poller=self.poller,
                channels=self.channels,
                launcher=self.launcher,
                file=self.file,
                folds=folds,
                tickets=Tickets(),
                journal=Journal(lambda: 0.0, 1),
                tally=self.tally,
                worker=WorkerCommand("/door", 2, 42, "json", "error"),
                settings=lambda: settings,
                open_front=self._open_front,
                close_front=self._close_front,
                post=self.events.put_nowait,
                validating=self.validating,
            )
        )
        self.table = effects.by_command()

    async def _open_front(self) -> None:
        self.front.append("open")

    async def _close_front(self) -> None:
        self.front.append("closed")

    async def do(self, command: c.Command) -> Any:
        result = self.table[type(command)](command)
        return await result if asyncio.iscoroutine(result) else result


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    fd = create(Layout(rows=4, slots=8, sections=4, leases=8))
    made = Bench(fd, tmp_path)
    yield made
    await made.poller.close()
    await made.channels.close()
    await made.instance.stop()
    os.close(fd)


def test_every_command_has_an_effect(bench: Bench) -> None:
    assert set(bench.table) == set(c.Command.__args__)


async def test_drain_resume_and_stop_bring_the_status_that_answers_them(bench: Bench) -> None:
    address = await bench.instance.start()
    for command, state in (
        (c.CallDrain("a", address, 7.0, "why"), State.DRAINING),
        (c.CallResume("a", address), State.READY),
        (c.CallStop("a", address, 7.0, True), State.STOPPED),
    ):
        event = await bench.do(command)
        assert isinstance(event, Observed)
        assert (event.source, event.grpc, event.status.state) == (Source.REPLY, address, state)
    assert bench.instance.calls == ["drain 7", "resume", "stop True"]


async def test_a_call_that_reaches_nobody_says_so(bench: Bench) -> None:
    address = await bench.instance.start()
    await bench.instance.stop()
    for command in (
        c.CallDrain("a", address, 7.0, ""),
        c.CallResume("a", address),
        c.CallStop("a", address, 7.0, False),
    ):
        event = await bench.do(command)
        assert isinstance(event, CallFailed)
        assert event.name == "a"


async def test_an_answer_that_means_nothing_is_a_call_that_failed(bench: Bench) -> None:
    """It once broke the effect, and nobody was told which instance it was about."""
    address = await bench.instance.start()
    bench.instance.status.incarnation = "two\nlines"
    for command in (
        c.CallDrain("a", address, 7.0, ""),
        c.CallResume("a", address),
        c.CallStop("a", address, 7.0, False),
    ):
        event = await bench.do(command)
        assert isinstance(event, CallFailed)
        assert (event.name, event.call) == ("a", type(command).__name__.removeprefix("Call"))
        assert "incarnation" in event.reason


async def test_a_write_comes_back_as_what_has_become_true(bench: Bench) -> None:
    write = c.Write((Remove("drains", "a"),), FactKept(-1.0))
    event = await bench.do(write)
    assert isinstance(event, FactKept)
    assert event.now > 0  # when it was kept, not when it was asked for
    assert bench.store.written == [Remove("drains", "a")]
    bench.store.broken = True
    event = await bench.do(write)
    assert isinstance(event, WriteFailed)
    assert event.reason == "disk full"


async def test_a_worker_is_given_every_listening_socket(bench: Bench) -> None:
    await bench.do(c.StartWorker(1, 3, 2))
    (spawn,) = bench.pipe.written
    assert isinstance(spawn, Spawn)
    assert spawn.name == "worker1.3"
    assert spawn.command[:4] == (sys.executable, "-P", "-m", "gateway.mains.worker")
    fds = spawn.command[spawn.command.index("--listen-fds") + 1]
    assert spawn.command[-4:] == ("--log-format", "json", "--log-level", "error")
    assert fds == "0:{listen0.0},0:{listen0.1},1:{listen1.0},1:{listen1.1}"
    sockets = {"listen0.0", "listen0.1", "listen1.0", "listen1.1"}
    bells = spawn.command[spawn.command.index("--bell-fds") + 1]
    assert bells == "{bell0},{bell1},{bell2},{bell3}"
    rung = {"bell0", "bell1", "bell2", "bell3"}
    assert set(spawn.descriptors) == {"segment", "life"} | sockets | rung


async def test_each_launch_has_a_token_of_its_own_and_only_its_hash_comes_back(
    bench: Bench,
) -> None:
    first = await bench.do(c.Launch("x", "m", "1", "d0"))
    second = await bench.do(c.Launch("x", "m", "1", "d0"))
    assert isinstance(first, LaunchOrdered)
    (_, one), (_, two) = bench.launcher.launched
    assert one != two
    assert (first.token, second.token) == (hashed(one), hashed(two))


async def test_a_dead_row_is_settled(bench: Bench) -> None:
    Ledger(bench.segment, 1).open(2, 1, 0xFF, b"", 0)
    event = await bench.do(c.SettleRow(1))
    assert isinstance(event, RowSettled)
    assert [lost.request_id for lost in event.lost] == [0xFF]
    assert bench.segment.in_flight(2) == 1  # until it is on record
    await bench.do(c.FreeRow(1))
    assert bench.segment.in_flight(2) == 0


async def test_files_are_read_when_they_are_asked_for(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(STATICS)
    event = await bench.do(c.ReadSettings(3, "why", True, 9))
    assert isinstance(event, SettingsRead)
    assert (event.ticket, event.dry_run, event.revision, event.text) == (3, True, 9, STATICS)
    await bench.do(c.KeepText("kept"))
    assert (tmp_path / "accepted.toml").read_text() == "kept"


async def test_what_a_snapshot_needs_is_what_was_measured_on_the_kinds_of_device_that_there_are(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / ".measured-1.toml").write_text("[bytes]\nascend = 5\ncpu = 3\n")
    event = await bench.do(c.ReadNeeds(frozenset({("m", "1")})))
    assert isinstance(event, NeedsRead)
    assert event.bytes == {("m", "1"): 3}


async def test_an_ask_comes_back_with_what_the_repository_has(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "manifest.toml").write_text("")
    ask = Asked(3, StartRollout("m", "2"), True, None, 0.0, "ann")
    event = await bench.do(c.LookUp(ask, "m", "2"))
    assert event == replace(ask, stock=Stock("2", False, ("1",)), now=event.now)
    assert event.now > 0.0


async def test_the_last_wish_to_be_woken_counts(bench: Bench) -> None:
    now = asyncio.get_running_loop().time()
    await bench.do(c.WakeAt(now))
    await bench.do(c.WakeAt(now + 3600))
    await bench.do(c.WakeAt(now + 0.01))
    async with asyncio.timeout(300):
        event = await bench.events.get()
    assert isinstance(event, Ticked)
    assert bench.events.empty()


async def test_counts_go_to_the_tally(bench: Bench) -> None:
    await bench.do(c.Count("reloads", "applied"))
    await bench.do(c.CountDrain("done", 1.5))
    assert bench.tally.reloads["applied"] == 1
    assert bench.tally.drains["done"] == 1


# --- a registration that is asked for ------------------------------------------------------------


def claim(address: str, incarnation: str = "a1") -> Registered:
    said = status("a", incarnation=incarnation, grpc=address, sequence=1 << 60)
    return Registered(5, said, "secret of the launcher", 0.0, 0, 1.0)


async def test_what_is_said_at_the_address_takes_the_place_of_what_was_claimed(
    bench: Bench,
) -> None:
    address = await bench.instance.start()
    event = await bench.do(c.Confirm(claim(address)))
    assert (event.ticket, event.asked, event.doubt) == (5, True, "")
    assert (event.status.incarnation, event.status.sequence) == ("a1", 1)


async def test_who_is_not_found_at_its_address_is_not_believed(bench: Bench) -> None:
    address = await bench.instance.start()
    event = await bench.do(c.Confirm(claim(address, "a2")))
    assert event.doubt == f"another incarnation of a answers at {address}"
    assert event.status.incarnation == "a2"  # who was refused, not who is there
    bench.instance.status.tokens_per_s = float("nan")
    event = await bench.do(c.Confirm(claim(address)))
    assert "tokens_per_s" in event.doubt
    await bench.instance.stop()
    await bench.channels.drop(address)
    event = await bench.do(c.Confirm(claim(address)))
    assert event.doubt.startswith(f"a is not found at {address}: ")


def test_a_command_that_is_logged_shows_no_launch_token() -> None:
    assert "launcher" not in repr(c.Confirm(claim("127.0.0.1:1")))


async def test_what_a_take_over_asks_of_the_store_comes_back_as_events(bench: Bench) -> None:
    assert isinstance(await bench.do(c.SettleWrites()), WritesSettled)
    assert isinstance(await bench.do(c.ClaimStore()), StoreClaimed)
    assert isinstance(await bench.do(c.ReclaimStore((Remove("slots", "1"),))), FactKept)
    assert bench.store.written == [Remove("slots", "1")]
    bench.store.broken = True
    failed = await bench.do(c.ClaimStore())
    assert isinstance(failed, ClaimFailed)
    assert failed.reason == "somebody else writes"
    assert isinstance(await bench.do(c.ReclaimStore(())), WriteFailed)


async def test_the_front_opens_and_closes_when_it_is_said(bench: Bench) -> None:
    await bench.do(c.OpenFront())
    await bench.do(c.CloseFront())
    assert bench.front == ["open", "closed"]


async def test_a_worker_of_a_gateway_that_stands_by_is_told_to_wait(bench: Bench) -> None:
    await bench.do(c.StartWorker(0, 0, 1, waits=True))
    (spawn,) = bench.pipe.written
    assert isinstance(spawn, Spawn)
    assert spawn.command[-1] == "--wait"


async def test_what_the_supervisor_says_of_a_take_over_is_an_event(bench: Bench) -> None:
    orders = SupervisorLink(bench.segment, bench.events.put_nowait, lambda: None)
    for message in (
        Freeze(),
        Thaw(),
        HandedOver(),
        Committed(),
        Held({"a": 1}, True),
        CutHeld("a"),
    ):
        orders.data_received(encode(message))
    heard = [bench.events.get_nowait() for _ in range(6)]
    kinds = [FreezeAsked, Thawed, GivenAway, TookOver, HeldElsewhere, CutAsked]
    assert [type(event) for event in heard] == kinds
    assert isinstance(heard[4], HeldElsewhere)
    assert (heard[4].leases, heard[4].over) == ({"a": 1}, True)


async def test_samples_are_tried_by_a_child_and_its_end_is_the_answer(bench: Bench) -> None:
    validate = c.Validate("m", "m/1", "samples.jsonl", ("h:2",), ("h:1",))
    answer = asyncio.create_task(bench.do(validate))
    await asyncio.sleep(0)
    (spawn,) = bench.pipe.written
    assert isinstance(spawn, Spawn)
    assert spawn.command[2:4] == ("-m", "gateway.mains.validate")
    assert (spawn.descriptors, spawn.handed_over) == ({"life": "life"}, False)
    bench.validating.sifted(ChildExited(spawn.name, 9, 1, 0.0))
    validated = await answer
    assert (validated.model, validated.rollout, validated.passed) == ("m", "m/1", False)
    assert validated.reason == "the validation ended with status 1"
    assert [one.name for one in validated.checks] == ["samples"]
