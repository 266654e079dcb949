"""A real worker process: the conversation with control, and how it ends."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from gateway.dataplane.worker import NOBODY
from gateway.messages import (
    Accept,
    Ack,
    Close,
    Cut,
    Empty,
    Heard,
    Hello,
    Leave,
    Publish,
    Sampled,
    Sent,
    Suspected,
    TellEmpty,
    TellSent,
    WereCut,
)
from gateway.native import interpreted
from gateway.records import Outcome, Sampling, Stage
from gateway.state.shared import ACCEPTED, ATTEMPTS, CONNECTIONS, REQUESTS, SETTLED
from tests.gateway.dataplane.harness import PATIENCE_S, WorkerProcess, running
from tests.gateway.dataplane.rig import get, post
from tests.gateway.dataplane.stub import StubInstance, stub_instance
from tests.gateway.plain import route, table, target, version
from tests.ports import free_port

pytestmark = pytest.mark.live


@pytest.fixture
async def instance() -> AsyncIterator[StubInstance]:
    async with stub_instance() as made:
        yield made


@pytest.fixture
async def worker(tmp_path: Path, instance: StubInstance) -> AsyncIterator[WorkerProcess]:
    async with running(tmp_path) as made:
        await made.publish(table(1, route(version(target(1, instance.port)))))
        yield made


async def held_stream(
    worker: WorkerProcess, instance: StubInstance
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client in the middle of an event stream."""
    reader, writer = await worker.connect()
    writer.write(get(b"/hold", b"x-request-id: client-1"))
    held = await instance.held.get()
    held.begin()
    await reader.readuntil(b"data: 1\n\n\r\n")
    instance.held.put_nowait(held)  # for whoever ends it
    return reader, writer


async def test_a_drain_is_acknowledged_told_sent_and_told_empty_in_that_order(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    reader, writer = await held_stream(worker, instance)
    worker.say(Publish(table(2, route(version()))))
    worker.say(TellSent(1, 7))
    worker.say(TellEmpty(1, 8))
    assert await worker.hears(Ack) == Ack(2)
    assert await worker.hears(Sent) == Sent(1, 7)  # it streams: all of the request is out
    assert worker.heard.empty()
    (await instance.held.get()).end()
    assert await worker.hears(Empty) == Empty(1, 8)
    assert (await reader.readuntil(b"0\r\n\r\n")).endswith(b"0\r\n\r\n")
    writer.write(get())
    assert b" 503 " in await reader.readline()
    writer.close()


async def test_a_worker_samples_from_the_table_on_that_says_so(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    plain = route(version(target(1, instance.port)))
    reader, writer = await worker.connect()
    for generation, ratio in ((2, 0.0), (3, 1.0)):
        await worker.publish(table(generation, plain, sampling=Sampling(ratio, True)))
        writer.write(post(b'{"model":"m","prompt":"client%d"}' % generation))
        assert b" 200 " in await reader.readline()
        await reader.readuntil(b"\r\n\r\n/v1/completions")
    sample = await worker.hears(Sampled)
    assert (sample.model, sample.path, sample.bucket) == ("m", "/v1/completions", "<100")
    assert len(sample.body["prompt"]) == len("client3")
    assert "client" not in sample.body["prompt"]
    assert worker.heard.empty()
    writer.close()


async def test_a_request_that_still_uploads_is_not_sent(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    _, writer = await worker.connect()
    writer.write(b"POST /hold HTTP/1.1\r\nhost: g\r\ncontent-length: 4\r\n\r\nab")
    await instance.held.get()
    worker.say(TellSent(1, 1))
    worker.say(TellSent(2, 2))
    assert await worker.hears(Sent) == Sent(2, 2)
    writer.write(b"cd")
    assert await worker.hears(Sent) == Sent(1, 1)
    writer.close()


async def test_a_cut_names_what_was_lost_and_shows_the_client(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    reader, _ = await held_stream(worker, instance)
    worker.say(Cut((1,), (), 5))
    cut = await worker.hears(WereCut)
    (lost,) = cut.lost
    assert (cut.token, lost.slot, lost.client_request_id) == (5, 1, "client-1")
    assert lost.stage == "streaming"
    assert lost.bytes == len(b"9\r\ndata: 1\n\n\r\n")
    assert lost.age_s >= 0
    assert lost.request_id > 0
    assert await reader.read() == b""  # ended, and not by a last chunk
    assert worker.segment.slot_totals(1)[REQUESTS + Outcome.CUT] == 1


async def test_what_was_cut_is_said_again_to_the_next_control_until_one_has_it_on_record(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    """A control that died between its order and the answer took the names along."""
    await held_stream(worker, instance)
    worker.say(Cut((1,), (), 5))
    (lost,) = (await worker.hears(WereCut)).lost
    await worker.hang_up()
    await worker.hears(Hello)
    assert await worker.hears(WereCut) == WereCut(NOBODY, (lost,))
    worker.say(Heard(NOBODY))
    worker.say(TellEmpty(1, 9))
    await worker.hears(Empty)  # it has read what was said before
    await worker.hang_up()
    await worker.hears(Hello)
    worker.say(TellEmpty(1, 10))
    assert await worker.heard.get() == Empty(1, 10)


async def test_what_is_cut_at_the_end_is_named(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    await held_stream(worker, instance)
    worker.say(Close(0.1))
    said = await worker.hears(WereCut)
    assert (said.token, [lost.client_request_id for lost in said.lost]) == (NOBODY, ["client-1"])


async def test_one_request_can_be_cut_by_its_number(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    first, _ = await held_stream(worker, instance)
    await instance.held.get()
    (record,) = worker.segment.leases(0)
    _, other = await held_stream(worker, instance)
    worker.say(Cut((), (record.request_id,), 6))
    (lost,) = (await worker.hears(WereCut)).lost
    assert lost.request_id == record.request_id
    assert await first.read() == b""
    assert worker.segment.in_flight(1) == 1
    other.close()


async def test_a_killed_worker_leaves_its_leases_to_be_named(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    await held_stream(worker, instance)
    worker.say(TellSent(1, 7))  # answered between two reads: the first is over, and counted
    assert await worker.hears(Sent) == Sent(1, 7)
    assert worker.process is not None
    worker.process.send_signal(signal.SIGKILL)
    assert await worker.exited() == -signal.SIGKILL
    (record,) = worker.segment.leases(0)
    assert (record.slot, record.section, record.stage) == (1, 1, Stage.STREAMING)
    assert record.client_request_id == "client-1"
    assert record.bytes == len(b"9\r\ndata: 1\n\n\r\n")
    assert worker.segment.in_flight(1) == 1


async def test_signals_of_the_terminal_are_not_for_workers(worker: WorkerProcess) -> None:
    assert worker.process is not None
    worker.process.send_signal(signal.SIGTERM)
    worker.process.send_signal(signal.SIGINT)
    reader, writer = await worker.connect()
    writer.write(get())
    assert b" 200 " in await reader.readline()
    writer.close()


async def test_a_closing_worker_finishes_what_it_holds_and_exits_0(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    reader, _ = await held_stream(worker, instance)
    kept, keeper = await worker.connect()
    keeper.write(get())
    assert b" 200 " in await kept.readline()
    waiting, waiter = await asyncio.open_connection("127.0.0.1", worker.port)
    worker.say(Close(30))
    assert (await kept.read()).endswith(b"/x")  # idle: closed after its short grace
    (await instance.held.get()).end()
    assert (await reader.read()).endswith(b"0\r\n\r\n")
    waiter.close()
    await waiting.read()
    assert await worker.exited() == 0
    assert worker.segment.head(0)[CONNECTIONS] == 0


async def test_what_overruns_the_grace_is_cut(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    streaming, _ = await held_stream(worker, instance)
    reader, writer = await worker.connect()
    writer.write(get(b"/hold2"))
    await instance.held.get()
    await instance.held.get()
    worker.say(Close(0.2))
    assert b"x-sluicegate-error: gateway_closing" in await reader.read()
    assert not (await streaming.read()).endswith(b"0\r\n\r\n")
    assert await worker.exited() == 0
    assert worker.segment.in_flight(1) == 0


async def test_nothing_is_accepted_before_there_is_a_table(
    tmp_path: Path, instance: StubInstance
) -> None:
    async with running(tmp_path) as worker:
        reader, writer = await worker.connect()  # into the queue
        writer.write(get())
        worker.say(TellEmpty(1, 1))
        await worker.hears(Empty)  # the worker is awake and has read all we said
        assert worker.segment.head(0)[CONNECTIONS] == 0
        await worker.publish(table(1, route(version(target(1, instance.port)))))
        assert b" 200 " in await reader.readline()
        writer.close()


async def test_one_that_waits_for_leave_serves_a_table_and_accepts_nobody_until_it_is_told(
    tmp_path: Path, instance: StubInstance
) -> None:
    """A predecessor still takes the connections; what is in the queue is lost to nobody."""
    waiting = WorkerProcess(tmp_path, arguments=["--wait"])
    await waiting.start()
    try:
        await waiting.publish(table(1, route(version(target(1, instance.port)))))
        reader, writer = await waiting.connect()
        writer.write(get())
        waiting.say(TellEmpty(1, 1))
        await waiting.hears(Empty)
        assert waiting.segment.head(0)[CONNECTIONS] == 0
        await waiting.hang_up()
        assert (await waiting.greeted()).waits  # to every control, until it has leave
        waiting.say(Accept(0))
        assert b" 200 " in await reader.readline()
        writer.close()
        await waiting.hang_up()
        assert not (await waiting.greeted()).waits
    finally:
        await waiting.end()


async def test_a_neighbour_s_queue_is_taken_and_left_without_losing_anyone(
    worker: WorkerProcess,
) -> None:
    async def asks() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await worker.connect(worker.neighbour_port)
        writer.write(get(b"/n", b"connection: close"))
        return reader, writer

    async def heard() -> None:
        worker.say(TellEmpty(5, 1))
        await worker.hears(Empty)

    first, _ = await asks()  # waits in the queue of a worker that is not there
    worker.say(Accept(1))
    assert (await first.read()).endswith(b"/n")
    worker.say(Leave(1))
    await heard()
    second, _ = await asks()
    await heard()
    assert worker.segment.head(0)[CONNECTIONS] == 0
    worker.say(Accept(1))
    assert (await second.read()).endswith(b"/n")


async def test_a_failed_dial_is_reported(worker: WorkerProcess) -> None:
    await worker.publish(table(2, route(version(target(2, free_port())))))
    reader, writer = await worker.connect()
    writer.write(get())
    assert b" 502 " in await reader.readline()
    assert (await worker.hears(Suspected)).slot == 2
    writer.close()


async def test_idle_connections_to_a_slot_that_has_left_are_closed(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    async with stub_instance() as other:
        reader, writer = await worker.connect()
        writer.write(get())
        assert b" 200 " in await reader.readline()
        await worker.publish(table(2, route(version(target(2, other.port)))))
        writer.write(get(b"/y"))
        await reader.readuntil(b"/y")
        assert other.served == 1
        assert instance.served == 1
        writer.close()


async def test_control_may_go_and_come_back(worker: WorkerProcess) -> None:
    await worker.hang_up()
    hello = await worker.greeted()
    assert hello.generation == 1  # it goes on with its last table
    assert hello.compiled == (not interpreted(sys.modules))  # as this run: see tests.compiled
    worker.say(TellEmpty(1, 3))
    assert await worker.hears(Empty) == Empty(1, 3)


async def test_an_orphaned_worker_ends(worker: WorkerProcess) -> None:
    worker.end_life()
    assert await worker.exited() != 0


async def test_everything_adds_up_after_a_random_run(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    rng = Random(11)

    async def answerer() -> None:
        while True:
            held = await instance.held.get()
            held.begin()
            held.end()

    async def client() -> None:
        for _ in range(40):
            reader, writer = await worker.connect()
            writer.write(get(b"/hold" if rng.random() < 0.5 else b"/plain"))
            if rng.random() < 0.3:
                writer.transport.abort()
                continue
            await reader.readuntil(b"\r\n\r\n")  # and leave, the body read or not
            writer.close()

    task = asyncio.create_task(answerer())
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(client() for _ in range(10)))
    worker.say(Close(5))
    assert await worker.exited() == 0
    task.cancel()
    totals = worker.segment.slot_totals(1)
    assert totals[ACCEPTED] == totals[SETTLED] > 200
    outcomes = [totals[ATTEMPTS + outcome] for outcome in Outcome]
    assert sum(outcomes) == totals[SETTLED]
    assert [totals[REQUESTS + outcome] for outcome in Outcome] == outcomes  # none was replayed
    assert list(worker.segment.leases(0)) == []
    assert worker.segment.head(0)[CONNECTIONS] == 0


async def test_the_limit_of_an_instance_is_kept(
    worker: WorkerProcess, instance: StubInstance
) -> None:
    one = replace(target(1, instance.port), limit=1)
    await worker.publish(table(2, route(version(one))))
    _, first = await held_stream(worker, instance)
    reader, second = await worker.connect()
    second.write(get(b"/plain"))
    worker.say(TellSent(3, 1))
    await worker.hears(Sent)
    assert worker.segment.waiting(1) <= 1
    assert instance.served == 0
    (await instance.held.get()).end()
    assert b" 200 " in await reader.readline()
    first.close()
    second.close()
