"""Who may take how long: limits belong to one request, one side and one gap each."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest

from gateway.config import Timeouts
from gateway.dataplane.sweep import sweep
from gateway.records import RouteTable
from gateway.state.shared import FIRST_BYTE_SUM_US, LATENCY_SUM_US
from tests.gateway.dataplane.rig import FakeTransport, Rig, code_of, get, ok, post, status_of
from tests.gateway.plain import TIMEOUTS, route, table, target, version

EVENTS_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
EVENT: Final = b"9\r\ndata: 1\n\n\r\n"


def served(**timeouts: float) -> RouteTable:
    return table(1, route(version(target(1, 1))), timeouts=replace(TIMEOUTS, **timeouts))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(served())
    yield made
    made.check()
    made.close()


async def test_time_between_requests_is_not_time_within_one(rig: Rig) -> None:
    """A timer armed for the idle connection must not fire in the request that came meanwhile."""
    client, instance = await rig.asked(get(b"/1"))
    instance.feed(ok())
    assert status_of(client.take()) == 200
    rig.later(74)
    client.feed(get(b"/2"))
    await rig.dialled()
    second = rig.busy(client)
    rig.later(100)
    assert not client.closed
    second.feed(ok())
    assert status_of(client.take()) == 200
    rig.later(74)
    assert not client.closed  # and it begins anew with each answer
    rig.later(2)
    assert client.closed


async def test_a_stream_lasts_as_long_as_its_gaps_are_short(rig: Rig) -> None:
    """Three hours of events: there is no limit on the whole by default."""
    client, instance = await rig.asked(post())
    instance.feed(EVENTS_HEAD)
    for _ in range(108):
        rig.later(100)
        instance.feed(EVENT)
        assert client.take().endswith(EVENT)
    instance.feed(b"0\r\n\r\n")
    assert rig.outcomes() == {"served": 1}


async def test_the_first_byte_and_the_gaps_have_limits_of_their_own(rig: Rig) -> None:
    """A prompt of minutes, then tokens: 599 s of silence before the head, 119 s after it."""
    client, instance = await rig.asked(post())
    rig.later(599)
    instance.feed(EVENTS_HEAD)
    rig.later(119)
    instance.feed(EVENT)
    rig.later(119)
    assert not client.closed
    rig.later(3)
    assert client.closed
    assert rig.outcomes() == {"timed_out": 1}
    assert b" 504 " not in client.out  # only before the head is there an answer to give
    assert not client.out.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("first_byte_s", [5.0, 50.0])
async def test_the_limit_for_the_first_byte_is_the_operator_s(first_byte_s: float) -> None:
    rig = Rig(served(first_byte_s=first_byte_s))
    client, _ = await rig.asked(post())
    rig.later(first_byte_s - 1)
    assert client.out == b""
    rig.later(2)
    assert status_of(client.out) == 504
    rig.close()


async def test_a_limit_of_one_exchange_is_not_left_on_its_connection() -> None:
    """Kept for hours between two requests, then asked again: the clock of the second one begins
    with it."""
    rig = Rig(served(pool_idle_s=0, client_idle_s=0))
    client, instance = await rig.asked(post())
    rig.later(500)
    instance.feed(ok())
    client.take()
    rig.later(7200)
    client.feed(post())
    assert rig.busy(client) is instance
    rig.later(500)
    instance.feed(ok())
    assert status_of(client.take()) == 200
    assert rig.outcomes() == {"served": 2}
    rig.check()
    rig.close()


def drip(rig: Rig, client: FakeTransport, data: bytes, every_s: float) -> float:
    """Byte by byte until the gateway has had enough; how long that took."""
    took = 0.0
    for byte in data:
        if client.closed or client.eof_written:
            break
        client.feed(bytes((byte,)))
        rig.later(every_s)
        took += every_s
    return took


@pytest.mark.parametrize("before", [b"", get(b"/v1/models")], ids=["first", "kept alive"])
async def test_a_head_that_drips_is_given_its_time_and_no_more(rig: Rig, before: bytes) -> None:
    """Progress does not renew it, or one byte in a while holds a connection for ever (RFC 9110
    15.5.9)."""
    client = rig.client()
    if before:
        client.feed(before)
        client.take()
    assert drip(rig, client, b"GET /" + b"x" * 500, 1) <= 12
    assert status_of(client.out) == 408
    assert rig.loop.instances == []


async def test_a_body_may_take_any_time_while_it_moves(rig: Rig) -> None:
    client, instance = await rig.asked(b"POST /u HTTP/1.1\r\nhost: g\r\ncontent-length: 20\r\n\r\n")
    assert drip(rig, client, b"x" * 20, 29) == 20 * 29
    instance.feed(ok())
    assert status_of(client.out) == 200


@pytest.mark.parametrize("path", [b"/v1/completions", b"/upload"])
async def test_a_body_that_stalls_frees_the_instance(rig: Rig, path: bytes) -> None:
    client = rig.client()
    client.feed(b"POST %s HTTP/1.1\r\nhost: g\r\ncontent-length: 20\r\n\r\nhalf" % path)
    await rig.dialled()
    rig.later(32)
    assert status_of(client.out) == 408
    assert all(instance.closed == "aborted" for instance in rig.loop.instances)
    assert rig.plane.held_bytes == 0


def test_idle_instance_connections_are_closed_before_common_servers_do_it() -> None:
    """Uvicorn closes after 5 s; whoever closes second may have a request on the way."""
    assert 0 < Timeouts().pool_idle_s < 5
    assert Timeouts().total_s == 0  # a stream that goes on is not too long


# --- what can never become a head is not waited for ---

NEVER_HEADS: Final = (
    b"GET / HTTP/1.1\nhost: g\n\n",
    b"GET /\n",
    b"GET / HTTP/1.1\r\nhost: g\n\r\n",
)


@pytest.mark.parametrize("sent", NEVER_HEADS)
async def test_a_line_of_a_request_that_ends_without_cr_is_refused_at_once(
    rig: Rig, sent: bytes
) -> None:
    """Some read it as a head that is whole (RFC 9112 2.2); we would wait for its end in vain."""
    client = rig.client()
    client.feed(sent)
    assert status_of(client.out) == 400
    assert rig.outcomes() == {"bad_request": 1}


@pytest.mark.parametrize(
    "sent", [b"HTTP/1.1 200 OK\ncontent-length: 2\n\nhi", b"HTTP/1.1 200 OK\r\nx: 1\n\r\n", b"\n"]
)
async def test_a_line_of_a_response_that_ends_without_cr_is_a_502_at_once(
    rig: Rig, sent: bytes
) -> None:
    client, instance = await rig.asked(get())
    instance.feed(sent)
    assert status_of(client.out) == 502
    assert rig.outcomes() == {"instance_error": 1}


# --- how long a client takes to send is not its instance's time ---

CHUNKED_POST: Final = (
    b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
    b'd\r\n{"model":"m"}\r\n0\r\n\r\n'
)


def sent_slowly(rig: Rig, request: bytes, took_s: float) -> FakeTransport:
    """A client whose last byte comes so much later than the others."""
    client = rig.client()
    client.feed(request[:-1])
    rig.later(took_s)
    client.feed(request[-1:])
    return client


@pytest.mark.parametrize("request_", [post(), CHUNKED_POST], ids=["counted", "chunked"])
async def test_the_clock_of_an_instance_begins_when_it_is_given_the_request(
    rig: Rig, request_: bytes
) -> None:
    """The model is in the body, so there is no instance before all of it has come."""
    client = sent_slowly(rig, request_, 9)
    await rig.dialled()
    rig.now += 250_000_000
    rig.busy(client).feed(ok())
    totals = rig.segment.slot_totals(1)
    assert totals[LATENCY_SUM_US] == totals[FIRST_BYTE_SUM_US] == 250_000


async def test_the_time_to_connect_begins_with_the_dial(rig: Rig) -> None:
    """A slow upload made a dial of a moment look like one of seconds: a healthy instance was
    suspected."""
    rig.loop.stuck = {1}
    client = sent_slowly(rig, post(), 9)
    await rig.dialled()
    rig.now += 1_000_000_000  # of two seconds
    sweep(rig.plane, rig.now)
    assert (client.out, rig.suspected) == (b"", [])
    rig.now += 1_000_000_000
    sweep(rig.plane, rig.now)
    assert code_of(client.out) == "connect_failed"


async def test_the_time_in_the_queue_begins_with_the_place_in_it() -> None:
    rig = Rig(table(1, route(version(target(1, 1, limit=1)), queue_timeout_s=5)))
    _, instance = await rig.asked(get())
    client = sent_slowly(rig, post(), 9)
    rig.now += 4_000_000_000
    sweep(rig.plane, rig.now)
    assert rig.plane.waitroom.size == 1
    rig.now += 1_000_000_000
    sweep(rig.plane, rig.now)
    assert code_of(client.out) == "saturated"
    instance.feed(ok())
    rig.check()
    rig.close()


async def test_the_time_for_the_first_byte_begins_with_the_instance() -> None:
    rig = Rig(served(first_byte_s=5))
    client = sent_slowly(rig, post(), 9)
    await rig.dialled()
    rig.now += 4_000_000_000
    sweep(rig.plane, rig.now)
    assert client.out == b""
    rig.now += 1_000_000_000
    sweep(rig.plane, rig.now)
    assert code_of(client.out) == "instance_timed_out"
    rig.close()


async def test_the_time_for_the_whole_begins_with_the_head() -> None:
    """That limit is the client's: it asked so long ago, whoever was slow."""
    rig = Rig(served(total_s=10))
    client = sent_slowly(rig, post(), 9)
    await rig.dialled()
    rig.later(1)
    assert code_of(client.out) == "instance_timed_out"
    rig.close()


# --- a connection that is ending ---


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /half HT",
        b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\nhalf",
        b"POST /u HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\nhalf",
        CHUNKED_POST[:-9],
    ],
    ids=["a head", "a held body", "a streamed body", "a chunked body"],
)
async def test_a_request_that_is_late_on_an_ending_connection_counts_once(
    rig: Rig, sent: bytes
) -> None:
    """Each sweep until the connection was lost found it late again, and counted it again."""
    client = rig.client()
    client.feed(sent)
    await rig.dialled()
    client.abort()  # its end is not told yet
    rig.later(200)
    assert sum(rig.outcomes().values()) == 1
    assert client.out == b""
    client.end()
    rig.later(200)
    assert sum(rig.outcomes().values()) == 1
