"""Requests sent before the answer to the one ahead: counted each by itself, kept in bounds."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

import pytest

from gateway.records import Stage
from gateway.state.shared import FIRST_BYTE, FIRST_BYTE_SUM_US, HISTOGRAM_CELLS, LATENCY_SUM_US
from tests.gateway.dataplane.rig import NS, FakeTransport, Rig, get, ok, post
from tests.gateway.plain import BOUNDS, route, table, target, version

UPLOAD: Final = b"POST /b HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\n"
HEAD_MAX: Final = 1000
SHORT_HEADS: Final = replace(BOUNDS, head_max_bytes=HEAD_MAX)
READ: Final = get(b"/v1/models") * 100  # what one read of a flood brings
HERE: Final = get(b"/v1/models")  # answered from the table


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1))), bounds=SHORT_HEADS))
    yield made
    made.check()
    made.close()


def stages(rig: Rig) -> list[Stage]:
    return [lease.stage for lease in rig.segment.leases(0)]


def first_bytes(rig: Rig) -> tuple[int, int]:
    """How many responses began, and after how many microseconds in all."""
    totals = rig.segment.slot_totals(1)
    return sum(totals[FIRST_BYTE : FIRST_BYTE + HISTOGRAM_CELLS]), totals[FIRST_BYTE_SUM_US]


# --- the next request goes out inside the read that ended the one before ---


async def test_a_request_sent_from_within_the_end_of_another_waits_for_its_own_answer(
    rig: Rig,
) -> None:
    """It was told of the other's first byte: it counted as streaming before it was answered, its
    own first byte came a boot time too early, and the sum went below 0."""
    client, instance = await rig.asked(get(b"/a") + get(b"/b"))
    rig.now += 5 * NS
    instance.feed(ok(b"A"))
    assert rig.busy(client) is instance
    assert stages(rig) == [Stage.WAITING]
    assert first_bytes(rig) == (1, 5_000_000)
    rig.now += 2 * NS
    instance.feed(ok(b"B"))
    assert first_bytes(rig) == (2, 7_000_000)
    assert rig.segment.slot_totals(1)[LATENCY_SUM_US] == 7_000_000
    assert rig.outcomes() == {"served": 2}


async def test_an_upload_sent_from_within_the_end_of_another_is_unsent_until_it_is_whole(
    rig: Rig,
) -> None:
    """A drain asks how many are: with one too few, it stops an instance in the middle of one."""
    client, instance = await rig.asked(get(b"/a") + UPLOAD + b"half")
    instance.feed(ok(b"A"))
    assert stages(rig) == [Stage.SENDING]
    assert rig.ledger.unsent(1) == 1
    client.feed(b"whole")
    assert stages(rig) == [Stage.WAITING]
    assert rig.ledger.unsent(1) == 0
    instance.feed(ok(b"B"))
    assert rig.ledger.unsent(1) == 0
    assert first_bytes(rig)[0] == 2


async def test_each_of_many_pipelined_responses_begins_once_however_it_is_read(rig: Rig) -> None:
    client, instance = await rig.asked(get(b"/x") * 6)
    for number in range(6):
        rig.now += NS
        answer = ok(b"%d" % number)
        for piece in (answer,) if number % 2 else (answer[:-1], answer[-1:]):
            instance.feed(piece)
        assert first_bytes(rig) == (number + 1, (number + 1) * 1_000_000)
    assert client.out.count(b"HTTP/1.1 200 OK") == 6
    assert rig.ledger.unsent(1) == 0


# --- what was read and cannot be served yet is kept in bounds ---


def flood(client: FakeTransport, read: bytes) -> None:
    """The client sends for as long as it is read, and no more than makes the point."""
    for _ in range(20):
        if not client.reading:
            return
        client.feed(read)


async def test_a_client_that_pipelines_and_does_not_read_is_not_read_either(rig: Rig) -> None:
    """It cost the memory of all that it sent, and a copy of that with each read."""
    client = rig.client()
    client.full = True
    client.feed(HERE)
    flood(client, READ)
    assert not client.reading
    assert len(client.protocol.pending) <= HEAD_MAX + len(READ)


async def test_a_client_that_reads_again_is_read_again_and_answered(rig: Rig) -> None:
    client = rig.client()
    client.full = True
    client.feed(HERE + READ)
    client.feed(READ)
    assert not client.reading
    client.protocol.resume_writing()
    assert client.reading
    assert client.out.count(b"HTTP/1.1 200 OK") == 201
    client.feed(HERE)
    assert rig.outcomes() == {"answered": 202}


async def test_a_client_that_reads_a_little_at_a_time_is_not_read_ahead_of_itself(
    rig: Rig,
) -> None:
    """Each answer that it takes lets in no more than that: else a whole read stays each time."""
    client = rig.client()
    client.full = True
    client.feed(HERE)
    for _ in range(30):
        flood(client, READ)
        client.full = True  # the next answer fills it again
        client.protocol.resume_writing()
        assert len(client.protocol.pending) <= HEAD_MAX + len(READ)


async def test_many_pipelined_requests_are_not_read_ahead_of_their_instance(rig: Rig) -> None:
    """Each answer lets the client go on, however much of what it sent is still to be served."""
    read = get() * 100
    client, instance = await rig.asked(get())
    for _ in range(30):
        flood(client, read)
        assert len(client.protocol.pending) <= HEAD_MAX + len(read)
        instance.feed(ok())
    assert rig.outcomes() == {"served": 30}


@pytest.mark.parametrize(
    "behind",
    [lambda client: client.feed(b"GET / HT"), lambda client: client.feed(b"")],
    ids=["half a head", "nothing"],
)
async def test_what_is_short_of_a_request_does_not_hold_a_client(
    rig: Rig, behind: Callable[[FakeTransport], None]
) -> None:
    client = rig.client()
    client.full = True
    client.feed(HERE)
    behind(client)
    assert client.reading
    client.protocol.resume_writing()
    assert client.reading
    assert rig.outcomes() == {"answered": 1}


@pytest.mark.parametrize("first", ["at an instance", "not read"])
@pytest.mark.parametrize("path", [b"/v1/completions", b"/upload"])
async def test_a_body_whose_beginning_was_held_is_read_to_its_end(
    rig: Rig, path: bytes, first: str
) -> None:
    """More than a head of it came before its turn. Nothing else lets its client go on: its model
    is in the part that is not read yet, and no deadline runs while we are the ones who hold."""
    body = b'{"model":"m","prompt":"%s"}' % (b"x" * 3 * HEAD_MAX)
    sent = post(body, path=path)
    client = rig.client()
    client.full = first == "not read"
    client.feed(HERE if client.full else get())
    await rig.dialled()
    client.feed(sent[: 2 * HEAD_MAX])
    assert not client.reading
    if first == "not read":
        client.protocol.resume_writing()
    else:
        rig.busy(client).feed(ok())
    await rig.dialled()
    assert client.reading
    client.feed(sent[2 * HEAD_MAX :])
    await rig.dialled()
    instance = rig.busy(client)
    assert instance.out.endswith(b"\r\n\r\n" + body)
    instance.feed(ok())
    assert client.out.count(b"HTTP/1.1 200 OK") == 2
