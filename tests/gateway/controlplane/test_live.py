"""The facade over the real loop and the real decision; the world around is answered at once."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.control import (
    CancelLease,
    Control,
    Denied,
    DrainInstance,
    SetWeights,
)
from gateway.controlplane import live
from gateway.controlplane.folds import Folds
from gateway.controlplane.journal import Journal
from gateway.controlplane.live import About, LiveControl
from gateway.controlplane.loop import ControlLoop
from gateway.controlplane.tickets import Tickets
from gateway.fleet import commands as c
from gateway.fleet.decide import decide
from gateway.fleet.events import BeatsWentStale, EffectFailed, Event, Ticked, WorkerAcked
from gateway.fleet.snapshot import FleetSnapshot
from gateway.messages import Publish
from gateway.records import Outcome
from gateway.state.ledger import Ledger
from gateway.state.shared import Layout, Segment, create
from gateway.telemetry.tally import Tally
from tests.gateway.controlplane.test_folds import FakeStore
from tests.gateway.fleet.builders import STATICS, both_ready


class Bench:
    def __init__(self, fd: int) -> None:
        self.segment = Segment(fd)
        self.ledger = Ledger(self.segment, 0)
        self.tickets = Tickets()
        self.journal = Journal(lambda: 1000.0, 1)
        self.acknowledging = True
        self.published: list[int] = []
        self.told = asyncio.Event()
        self.loop = ControlLoop[FleetSnapshot, Event](
            both_ready(), decide, self.effects(), self.broken
        )
        store = FakeStore()
        folds = Folds(self.segment, store, 1, lambda: self.loop.state)
        about = About(1, 900.0, ("127.0.0.1:8080",))
        self.live = LiveControl(
            self.loop, self.segment, folds, self.tickets, self.journal, Tally(), about
        )

    def broken(self, command: object, exc: Exception) -> Event:
        return EffectFailed(str(command), str(exc), 0.0)

    def effects(self) -> dict[type, Callable[[Any], Any]]:
        quiet: dict[type, Callable[[Any], Any]] = {
            kind: lambda command: None for kind in c.Command.__args__
        }
        return {
            **quiet,
            c.Write: lambda command: command.then,
            c.Answer: lambda command: self.tickets.answer(command.ticket, command.value),
            c.Record: lambda one: self.journal.record(
                one.kind, one.subject, one.text, one.fields, one.warn
            ),
            c.Tell: self.tell,
        }

    def tell(self, command: c.Tell) -> Event | None:
        if not isinstance(command.message, Publish):
            return None
        self.published.append(command.message.table.generation)
        self.told.set()
        return self.ack() if self.acknowledging else None

    def ack(self) -> Event:
        now = asyncio.get_running_loop().time()
        return WorkerAcked(0, self.published[-1], now)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    fd = create(Layout(rows=4, slots=8, sections=4, leases=8))
    made = Bench(fd)
    running = asyncio.create_task(made.loop.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    os.close(fd)


def control(bench: Bench) -> Control:
    return bench.live  # mypy holds the class and the Protocol together


async def test_a_change_is_answered_with_the_generation_that_contains_it(bench: Bench) -> None:
    live = control(bench)
    ask = SetWeights("m", {"1": 5.0})
    receipt = await live.ask(ask, wait=True, dry_run=False, revision=None)
    assert receipt.generation == live.status().generation == bench.published[-1]
    assert receipt.revision == 1
    assert live.models()[0].versions[0].weight == 5.0
    assert live.config()["model.m.weights.1"] == {"value": 5.0, "origin": "run-time"}


async def test_wait_is_over_when_every_worker_serves_it(bench: Bench) -> None:
    bench.acknowledging = False
    ask = SetWeights("m", {"1": 5.0})
    asking = bench.live.ask(ask, wait=True, dry_run=False, revision=None)
    waiting = asyncio.ensure_future(asking)
    await bench.told.wait()
    for _ in range(10):  # whatever was ready to run has run
        await asyncio.sleep(0)
    assert not waiting.done()
    bench.loop.post(bench.ack())
    async with asyncio.timeout(300):
        await waiting


async def test_a_refusal_is_raised(bench: Bench) -> None:
    ask = DrainInstance("nobody", None, False, False)
    with pytest.raises(Denied) as denied:
        await bench.live.ask(ask, wait=False, dry_run=False, revision=None)
    assert denied.value.code == "unknown_instance"


async def test_a_drain_is_shown_with_what_it_holds(bench: Bench) -> None:
    slot = bench.loop.state.instances["a"].slot
    bench.ledger.open(slot, 1, 0xFF, b"mine", 0)
    ask = DrainInstance("a", 30.0, False, False)
    await bench.live.ask(ask, wait=True, dry_run=False, revision=None)
    (drain,) = bench.live.drains()
    assert (drain.instance, drain.phase, drain.held, drain.ended) == ("a", "settling", 1, None)
    (one, other) = bench.live.instances()
    assert (one.intent, one.routable, other.routable) == ("drain", False, True)
    assert one.reason == "held out by an operator"


async def test_leases_are_listed_and_only_a_held_one_can_be_cancelled(bench: Bench) -> None:
    slot = bench.loop.state.instances["a"].slot
    bench.ledger.open(slot, 1, 0xFF, b"mine", 0)
    (lease,) = bench.live.leases("a", "m")
    assert (lease.request_id, lease.client_request_id) == ("00000000000000ff", "mine")
    assert bench.live.leases("b", None) == ()
    cancel = CancelLease("00000000000000ff")
    await bench.live.ask(cancel, wait=False, dry_run=False, revision=None)
    cancel = CancelLease("00000000000000aa")
    with pytest.raises(Denied) as denied:
        await bench.live.ask(cancel, wait=False, dry_run=False, revision=None)
    assert denied.value.code == "unknown_lease"


async def test_who_waits_for_an_instance_is_listed_with_its_model_and_not_in_flight(
    bench: Bench,
) -> None:
    section = bench.loop.state.book.sections["m"]
    bench.ledger.list_unplaced(section, 0xFF, b"mine", 0)
    (one,) = bench.live.leases(None, "m")
    assert (one.client_request_id, one.instance, one.stage) == ("mine", "", "unplaced")
    status = bench.live.status()
    assert (status.in_flight, [worker.in_flight for worker in status.workers]) == (0, [0])


async def test_a_candidate_is_checked_with_what_cannot_change_live(bench: Bench) -> None:
    live = bench.live
    assert live.check(STATICS) == ()
    assert [p.path for p in live.check("[gateway]\nworkers = 9\n" + STATICS)] == ["gateway.workers"]
    assert live.check("nonsense")[0].message.startswith("not TOML")


async def test_origins_tell_file_from_default(bench: Bench) -> None:
    found = bench.live.config()
    assert found["instance.a.http"] == {"value": "127.0.0.1:1001", "origin": "file"}
    assert found["model.m.limit"] == {"value": 4, "origin": "default"}


async def test_events_follow_what_is_done(bench: Bench) -> None:
    following = asyncio.ensure_future(anext(bench.live.events(None)))
    await asyncio.sleep(0)
    ask = SetWeights("m", {"1": 5.0})
    await bench.live.ask(ask, wait=False, dry_run=False, revision=None)
    async with asyncio.timeout(300):
        event = await following
    assert (event.kind, event.text) == ("weights", "weights of m: 1 5")


async def test_metrics_are_read_from_the_segment_and_say_what_the_views_say(bench: Bench) -> None:
    slot = bench.loop.state.instances["a"].slot
    bench.ledger.settle(bench.ledger.open(slot, 1, 1, b"", 0), Outcome.SERVED, 0, 0)
    text = bench.live.metrics().decode()
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    served = (("model", "m"), ("outcome", "served"), ("version", "1"))
    assert samples["sluicegate_requests_total", served] == 1.0
    assert samples["sluicegate_generation", (("kind", "published"),)] == (
        bench.live.status().generation
    )


async def test_the_observed_share_is_that_of_lately_accepted_requests(bench: Bench) -> None:
    turned: asyncio.Queue[float] = asyncio.Queue()

    async def pause(seconds: float) -> None:
        turned.put_nowait(seconds)
        await asyncio.Event().wait()

    sampling = asyncio.create_task(bench.live.sample(pause))
    async with asyncio.timeout(300):
        await turned.get()
    slot = bench.loop.state.instances["a"].slot
    bench.ledger.settle(bench.ledger.open(slot, 1, 1, b"", 0), Outcome.SERVED, 0, 0)
    assert bench.live.models()[0].versions[0].observed == 1.0
    sampling.cancel()


async def test_status_says_what_an_operator_should_read(bench: Bench) -> None:
    status = bench.live.status()
    assert (status.instances, status.routable, status.problems) == (2, 2, ())
    assert [worker.pid for worker in status.workers] == [77]
    ask = DrainInstance("a", 0.0, False, False)
    await bench.live.ask(ask, wait=True, dry_run=False, revision=None)
    ask = DrainInstance("b", 0.0, False, True)
    await bench.live.ask(ask, wait=True, dry_run=False, revision=None)
    assert "m: no instance can take a request" in bench.live.status().problems
    bench.loop.post(Ticked(0.0))


async def test_a_gateway_whose_workers_have_stopped_does_not_serve(bench: Bench) -> None:
    assert bench.live.status().serving
    bench.loop.post(BeatsWentStale(frozenset({0}), asyncio.get_running_loop().time()))
    decided = asyncio.Event()
    bench.loop.after.append(lambda fleet: decided.set())
    async with asyncio.timeout(300):
        await decided.wait()
    assert not bench.live.status().serving


async def test_who_waits_for_workers_that_do_not_come_is_told_that_it_is_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WAIT_S", 0.0)
    bench.acknowledging = False
    ask = SetWeights("m", {"1": 7.0})
    with pytest.raises(Denied, match="it is made") as caught:
        await bench.live.ask(ask, wait=True, dry_run=False, revision=None)
    assert caught.value.code == "not_served"
    assert bench.loop.state.weights("m")["1"].weight == 7.0


async def test_what_shells_beside_us_say_is_a_problem_of_the_status(bench: Bench) -> None:
    bench.live.ailing = lambda: ("webhook chat: not delivered",)
    assert bench.live.status().problems[-1] == "webhook chat: not delivered"
