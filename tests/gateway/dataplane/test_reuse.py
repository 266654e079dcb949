"""Connections that serve again, and those that must not: to instances, and to clients."""

import re
from collections.abc import Callable
from typing import Final

import orjson
import pytest

from gateway.records import Outcome
from gateway.state.shared import ATTEMPTS, REPLAYS_FAILED, REPLAYS_SERVED
from tests.gateway.dataplane.rig import Rig, code_of, get, ok, post, status_of
from tests.gateway.dataplane.sockets import Peer, Street, on_uvloop, street
from tests.gateway.dataplane.test_refusals import BAD, SMALL
from tests.gateway.plain import route, table, target, version

REPLAYABLE: Final = get(b"/race")
POSTED: Final = post(path=b"/race")
# Refusals of requests whose framing was sound and whose body was there.
WHOLE: Final = {"unknown_model", "unknown_version", "bodies_full"}


async def warmed(met: Street) -> tuple[Peer, Peer]:
    """A client whose first request was served, and the instance connection that did it."""
    client, instance = await met.asked(get(b"/warm"))
    instance.send(ok())
    await client.answer()
    assert met.plane.pool.size == 1
    return client, instance


def attempts(rig: Rig) -> int:
    """Leases settled, however they ended, over all instances."""
    totals = [rig.segment.slot_totals(slot) for slot in range(rig.segment.layout.slots)]
    return sum(total[ATTEMPTS + outcome] for total in totals for outcome in Outcome)


# --- idle connections ---

IDLE_EVENTS: Final[dict[str, Callable[[Peer], None]]] = {
    "a close": lambda instance: instance.leave(),
    "a reset": lambda instance: instance.leave("reset"),
    "half a close": lambda instance: instance.finish(),
    "a stray response": lambda instance: instance.send(ok(b"stray")),
    "one byte": lambda instance: instance.send(b"\r"),
}


@pytest.mark.parametrize("event", IDLE_EVENTS)
@on_uvloop
async def test_what_happened_before_the_request_came_costs_it_nothing(event: str) -> None:
    """Both are in the kernel before the gateway looks again: the connection's end, and the request
    that would have gone onto it. RFC 9112 9.5; a POST must not be sent twice to find out."""
    async with street() as met:
        client, instance = await warmed(met)
        IDLE_EVENTS[event](instance)
        client.send(POSTED)
        second = await met.dialled()
        assert (await second.until(b"\r\n\r\n")).startswith(b"POST /race")
        second.send(ok(b"second"))
        assert (await client.answer()).endswith(b"second")
        if event in ("a stray response", "one byte"):
            await instance.end()
            assert b"/race" not in instance.received
        assert attempts(met.rig) == 2
        assert met.rig.outcomes() == {"served": 2}


@on_uvloop
async def test_a_connection_idle_for_longer_than_any_limit_of_a_request_serves() -> None:
    """Limits belong to requests; none is left behind on a connection that is given back."""
    async with street() as met:
        met.plane.pool.idle_ns = 0  # as pool_idle_s = 0: kept for ever
        client, instance = await warmed(met)
        met.plane.client_idle_ns = 0
        client_connection = next(iter(met.plane.clients))
        client_connection.deadline_ns = 0
        met.rig.later(3600)
        client.send(POSTED)
        assert (await instance.until(b'{"model":"m"}')).startswith(b"POST /race")
        met.rig.later(1)
        instance.send(ok(b"again"))
        assert (await client.answer()).endswith(b"again")
        assert met.rig.outcomes() == {"served": 2}


@on_uvloop
async def test_the_connection_used_last_is_used_next() -> None:
    """The others grow old and are closed, instead of all being just old enough to be closing."""
    async with street() as met:
        pairs = [await met.asked(get(b"/%d" % n)) for n in range(3)]
        for client, instance in pairs:
            instance.send(ok())
            await client.answer()
        _, last = pairs[-1]
        for _ in range(3):
            pairs[0][0].send(get(b"/next"))
            await last.until(b"GET /next")
            await last.until(b"\r\n\r\n")
            last.send(ok())
            await pairs[0][0].answer()


BODYLESS: Final[dict[str, tuple[bytes, bytes]]] = {
    # request, and a response that has no body whatever its fields say (RFC 9112 6.3)
    "HEAD": (b"HEAD /x HTTP/1.1\r\nhost: g\r\n\r\n", b"200 OK\r\ncontent-length: 5"),
    "HEAD, chunked": (
        b"HEAD /x HTTP/1.1\r\nhost: g\r\n\r\n",
        b"200 OK\r\ntransfer-encoding: chunked",
    ),
    "204": (get(), b"204 No Content"),
    "204 with a length": (get(), b"204 No Content\r\ncontent-length: 5"),
    "304": (get(), b"304 Not Modified\r\ncontent-length: 10"),
    "length 0": (get(), b"200 OK\r\ncontent-length: 0"),
}


@pytest.mark.parametrize("at_once", [True, False], ids=["with it", "later"])
@pytest.mark.parametrize("surplus", [b"", b"hello", ok(b"stray")], ids=["none", "body", "response"])
@pytest.mark.parametrize("kind", BODYLESS)
@on_uvloop
async def test_bytes_behind_a_response_without_a_body_reach_nobody(
    kind: str, surplus: bytes, at_once: bool
) -> None:
    """They are no body, and not the next answer either: they cost the connection."""
    async with street() as met:
        request, said = BODYLESS[kind]
        client, instance = await met.asked(request)
        head = b"HTTP/1.1 " + said + b"\r\n\r\n"
        instance.send(head + surplus if at_once else head)
        assert b"stray" not in await client.until(b"\r\n\r\n")
        if surplus and not at_once:
            instance.send(surplus)
        client.send(get(b"/next"))
        if surplus:
            instance = await met.dialled()
        assert (await instance.until(b"\r\n\r\n")).startswith(b"GET /next ")
        instance.send(ok(b"next"))
        assert (await client.answer()).endswith(b"\r\n\r\nnext")
        assert met.rig.outcomes() == {"served": 2}


# --- a second try is the gateway's decision, and it is counted ---


@pytest.mark.parametrize("how", ["eof", "reset"])
@pytest.mark.parametrize("request_", [REPLAYABLE, POSTED], ids=["GET", "POST"])
async def test_what_instances_were_sent_is_what_is_counted(request_: bytes, how: str) -> None:
    """No library tries again on its own: every delivery is an attempt in the ledger. RFC 9110
    9.2.2: a proxy repeats idempotent requests only."""
    rig = Rig(table(1, route(version(target(1, 1), target(2, 2)))))
    for _ in range(4):  # both instances have a used connection now
        _, instance = await rig.asked(get(b"/warm"))
        instance.feed(ok())
    client, instance = await rig.asked(request_)
    assert instance.protocol.used
    if how == "eof":
        instance.feed_eof()
    else:
        instance.end(ConnectionResetError())
    await rig.dialled()
    again = request_ is REPLAYABLE
    if again:
        rig.busy(client).feed(ok(b"repeated"))
        assert client.out.endswith(b"repeated")
    else:
        assert code_of(client.out) == "instance_reset"
    sent = b"".join(transport.out for transport in rig.loop.instances)
    assert sent.count(b" /race HTTP/1.1\r\n") == 1 + again
    assert sent.count(b" HTTP/1.1\r\n") == attempts(rig) == 5 + again
    replays = rig.segment.section_totals(1)
    assert (replays[REPLAYS_SERVED], replays[REPLAYS_FAILED]) == (again, 0)
    assert sum(rig.outcomes().values()) == 5
    rig.close()


# --- clients: after a refusal ---

ASKS_MORE: Final = get(b"/next")
NEVER: Final = get(b"/smuggled")


@pytest.mark.parametrize("code", BAD)
async def test_bytes_behind_a_refused_request_are_a_request_only_if_it_was_whole(
    code: str,
) -> None:
    """A refusal that leaves a body, or bytes of unknown meaning, on the wire ends the connection
    (RFC 9112 9.3, 9.6); where the framing was sound and complete the next request is served."""
    rig = Rig(table(1, route(version(target(1, 1)), pinnable=True), bounds=SMALL))
    client = rig.client()
    client.feed(BAD[code] + NEVER)
    await rig.dialled()
    sent = b"".join(transport.out for transport in rig.loop.instances)
    if code in WHOLE:
        assert sent.startswith(b"GET /smuggled ")
        rig.busy(client).feed(ok())
        assert client.out.endswith(b"fine")
        assert b"connection: close" not in client.out
    else:
        assert sent == b""
        assert client.out.count(b"\r\nx-sluicegate-error: ") == 1
        assert b"\r\nconnection: close\r\n" in client.out
        assert client.eof_written or client.closed
    rig.close()


FAILURES: Final[dict[str, bytes]] = {
    # how an instance fails a request, as the bytes it says before it closes
    "without a word": b"",
    "in its head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "with rubbish": b"hello\r\n\r\n",
    "with an interim response": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("request_", [REPLAYABLE, POSTED], ids=["GET", "POST"])
@on_uvloop
async def test_an_instance_that_fails_before_its_answer_is_a_502_and_the_client_may_go_on(
    request_: bytes, how: str
) -> None:
    """Never a 200 with an empty body, and no second delivery on a connection that was fresh."""
    async with street() as met:
        client, instance = await met.asked(request_)
        if FAILURES[how]:
            instance.send(FAILURES[how])
        instance.leave()
        if how == "with an interim response":
            assert await client.until(b"\r\n\r\n") == FAILURES[how]
        answer = await client.answer()
        assert status_of(answer) == 502
        error = orjson.loads(answer.partition(b"\r\n\r\n")[2])["error"]
        assert error["code"] == code_of(answer) != ""
        assert attempts(met.rig) == 1
        client.send(ASKS_MORE)
        second = await met.dialled()
        assert (await second.until(b"\r\n\r\n")).startswith(b"GET /next ")
        second.send(ok(b"next"))
        assert (await client.answer()).endswith(b"next")


# --- an answer before the whole request ---


@pytest.mark.parametrize("status", [b"200 OK", b"413 Content Too Large"])
@on_uvloop
async def test_an_early_answer_is_whole_and_ends_both_connections(status: bytes) -> None:
    """The client may still be sending; closing at once would reset the connection and lose it the
    answer. The instance's connection has half a request on it (RFC 9112 9.3, 9.6)."""
    async with street() as met:
        head = b"POST /up HTTP/1.1\r\nhost: g\r\ncontent-length: 4000000\r\n\r\n"
        client, instance = await met.asked(head)
        instance.send(ok(b"early", status=status))
        for _ in range(4):
            await client.send_all(b"x" * 100_000)
        assert (await client.rest()).endswith(b"\r\n\r\nearly")
        await instance.end()
        assert met.plane.pool.size == 0
        assert b"\r\nconnection: close\r\n" in client.received
        other, second = await met.asked(ASKS_MORE)
        second.send(ok())
        assert (await other.answer()).endswith(b"fine")
        assert met.rig.outcomes() == {"served": 2}


@on_uvloop
async def test_a_refusal_by_an_instance_that_stops_reading_reaches_the_client() -> None:
    """It says 413 and closes with our bytes unread: its kernel resets the connection, and our next
    write fails before the answer is read."""
    async with street() as met:
        head = b"POST /up HTTP/1.1\r\nhost: g\r\ncontent-length: 4000000\r\n\r\n"
        client, instance = await met.asked(head)
        client.send(b"x" * 10_000)
        await instance.until(b"x" * 1000)
        instance.send(ok(b"too large", b"connection: close", status=b"413 Content Too Large"))
        client.send(b"x" * 10_000)
        instance.leave()
        client.send(b"x" * 10_000)
        answer = await client.rest()
        assert status_of(answer) == 413
        assert answer.endswith(b"too large")
        assert met.in_flight() == 0


@on_uvloop
async def test_an_expectation_that_an_instance_does_not_meet_is_answered_not_waited_for() -> None:
    """RFC 9110 10.1.1: a final status may come before the body, and no body after it."""
    async with street() as met:
        client = await met.client()
        expects = (
            b"POST /up HTTP/1.1\r\nhost: g\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n"
        )
        client.send(expects)
        instance = await met.dialled()
        assert re.search(rb"\r\nexpect:", await instance.until(b"\r\n\r\n")) is None
        instance.send(ok(b"no", status=b"401 Unauthorized"))
        answer = await client.rest()
        final = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert status_of(final) == 401
        assert final.endswith(b"\r\n\r\nno")
        assert met.in_flight() == 0


@on_uvloop
async def test_an_interim_response_with_both_framings_costs_nothing() -> None:
    """It has no body, so there is nothing to be in two minds about: it passes without them."""
    async with street() as met:
        client, instance = await met.asked(get(b"/1"))
        both = b"content-length: 5\r\ntransfer-encoding: chunked\r\n"
        instance.send(b"HTTP/1.1 103 Hints\r\nlink: x\r\n" + both + b"\r\n" + ok(b"one"))
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n"
        assert (await client.answer()).endswith(b"\r\n\r\none")
        client.send(get(b"/2"))
        assert (await instance.until(b"\r\n\r\n")).startswith(b"GET /2 ")
        instance.send(ok(b"two"))
        assert (await client.answer()).endswith(b"\r\n\r\ntwo")
        assert met.rig.outcomes() == {"served": 2}
