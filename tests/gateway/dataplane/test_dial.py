"""A new connection to an instance, and why there is none."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest

from gateway.dataplane.dial import NO_FAMILY, OUR_OWN_LIMITS, family_of, unreachable
from gateway.dataplane.stages import DIALLING, SETTLED
from gateway.records import Outcome, RouteTable, Stage
from gateway.state.shared import ATTEMPTS
from tests.gateway.dataplane.rig import (
    FakeLoop,
    Rig,
    code_of,
    get,
    ok,
    post,
    status_of,
)
from tests.gateway.plain import route, table, target, version

NAME: Final = "box-7.example"


def at(host: str) -> RouteTable:
    """One instance, on port 1 of this host."""
    return table(1, route(version(replace(target(1, 1), host=host))))


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1)))))
    yield made
    made.check()
    made.close()


async def answered(rig: Rig) -> bytes:
    """What a client is told whose request needs a new connection."""
    client = rig.client()
    client.feed(post())
    await rig.dialled()
    return client.out


THEIRS: Final = (
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
)


@pytest.mark.parametrize("number", THEIRS, ids=errno.errorcode.get)
async def test_an_instance_that_is_not_there_is_a_502_that_names_it(rig: Rig, number: int) -> None:
    rig.loop.codes = {1: number}
    answer = await answered(rig)
    assert (code_of(answer), status_of(answer)) == ("connect_failed", 502)
    assert b"cannot connect to i1: %s" % os.strerror(number).encode() in answer
    assert b'"instance":"i1"' in answer
    assert b"retry-after" not in answer
    assert [suspected.slot for suspected in rig.suspected] == [1]


OURS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL)


@pytest.mark.parametrize("where", ["socket", "connect"])
@pytest.mark.parametrize("number", OURS, ids=errno.errorcode.get)
async def test_a_limit_of_this_machine_is_a_503_that_blames_nobody(
    rig: Rig, number: int, where: str
) -> None:
    def no_socket(family: int, kind: int, protocol: int) -> object:
        raise OSError(number, os.strerror(number))

    if where == "socket":
        rig.plane.new_socket = no_socket
    rig.loop.codes = {1: number}
    answer = await answered(rig)
    assert (code_of(answer), status_of(answer)) == ("leases_full", 503)
    assert os.strerror(number).encode() in answer
    assert b'"instance"' not in answer
    assert b"\r\nretry-after: 1\r\n" in answer
    assert rig.suspected == []
    assert rig.outcomes() == {"leases_full": 1}  # it was counted as cut by an operator


def test_the_limits_of_this_machine_are_all_tested() -> None:
    assert frozenset(OURS) == OUR_OWN_LIMITS


async def test_a_request_is_out_in_the_read_that_brought_it(rig: Rig) -> None:
    """Before the loop has been given the socket, and with its lease as far as that."""
    client = rig.client()
    client.feed(post())
    assert rig.loop.instances == []
    assert rig.loop.sockets[0].sent.startswith(b"POST /v1/completions")
    assert rig.loop.sockets[0].sent.endswith(b'{"model":"m"}')
    (lease,) = rig.segment.leases(0)
    assert (lease.stage, lease.connection) == (Stage.WAITING, 77)
    await rig.dialled()
    instance = rig.busy(client)
    assert instance.out == rig.loop.sockets[0].sent
    instance.feed(ok())
    assert status_of(client.out) == 200


async def test_a_failure_is_told_after_the_read_that_began_the_dial(rig: Rig) -> None:
    """Whoever places a request is not called back while it does."""
    rig.loop.refused = {1}
    client = rig.client()
    client.feed(post())
    assert client.protocol.exchange.stage == DIALLING
    await rig.dialled()
    assert client.protocol.exchange.stage == SETTLED


@pytest.mark.parametrize("takes", [0, 1, 50])
async def test_what_the_socket_does_not_take_follows_in_order(rig: Rig, takes: int) -> None:
    rig.loop.takes = takes
    client = rig.client()
    client.feed(post(b'{"model":"m"}'.ljust(40_000)))  # head and body are written one by one
    assert len(rig.loop.sockets[0].sent) == takes
    await rig.dialled()
    out = rig.busy(client).out
    assert out.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert out.partition(b"\r\n\r\n")[2] == b'{"model":"m"}'.ljust(40_000)
    rig.busy(client).feed(ok())


async def test_a_socket_that_the_loop_does_not_take_is_a_lost_connection(rig: Rig) -> None:
    rig.loop.takes_no_socket = True
    client = rig.client()
    client.feed(post())
    await rig.dialled()
    assert (code_of(client.out), status_of(client.out)) == ("instance_reset", 502)


async def test_a_handshake_that_takes_its_time_ends_well(rig: Rig) -> None:
    rig.loop.stuck = {1}
    client = rig.client()
    client.feed(post())
    await rig.dialled()
    assert rig.loop.instances == []
    rig.loop.shake_hands(0)
    await rig.dialled()
    assert rig.loop.writers == {}
    rig.busy(client).feed(ok())
    assert status_of(client.out) == 200


async def test_a_handshake_that_takes_its_time_may_fail(rig: Rig) -> None:
    rig.loop.stuck = {1}
    client = rig.client()
    client.feed(post())
    rig.loop.shake_hands(errno.EHOSTUNREACH)
    assert (code_of(client.out), status_of(client.out)) == ("connect_failed", 502)
    assert b"No route to host" in client.out
    assert rig.loop.writers == {}


async def test_who_leaves_during_the_handshake_ends_it(rig: Rig) -> None:
    rig.loop.stuck = {1}
    client = rig.client()
    client.feed(post())
    client.end()
    assert not rig.loop.sockets[0].open
    assert rig.loop.writers == {}
    assert rig.outcomes() == {"client_gone": 1}


async def test_who_leaves_before_the_loop_has_the_socket_takes_the_connection_along(
    rig: Rig,
) -> None:
    """The instance has the request already."""
    client = rig.client()
    client.feed(post())
    client.end()
    await rig.dialled()
    assert rig.loop.instances[0].closed == "aborted"
    assert rig.plane.pool.size == 0
    assert rig.outcomes() == {"client_gone": 1}


async def test_who_leaves_before_a_failure_is_told_hears_nothing_of_it(rig: Rig) -> None:
    rig.loop.refused = {1}
    client = rig.client()
    client.feed(post())
    client.end()
    await rig.dialled()
    assert rig.outcomes() == {"client_gone": 1}
    assert rig.suspected == []


async def test_a_new_connection_is_not_read_while_its_client_does_not_read(rig: Rig) -> None:
    """The loop begins to read after the connection was made, whatever was said then."""
    client = rig.client()
    client.feed(post())
    client.protocol.pause_writing()
    await rig.dialled()
    instance = rig.busy(client)
    assert not instance.reading
    client.protocol.resume_writing()
    assert instance.reading
    instance.feed(ok())


async def test_who_cannot_be_reached_in_time_is_named_too(rig: Rig) -> None:
    (one,) = rig.plane.cell.read().routes["m"].by_name["1"].targets
    error = unreachable(one, "no answer in 2 s")
    assert error.message == "cannot connect to i1: no answer in 2 s"


# --- names ---

FAMILIES: Final = {
    "127.0.0.1": socket.AF_INET,
    "::1": socket.AF_INET6,
    "fe80::1%lo": NO_FAMILY,  # the zone is for the resolver
    "127.1": NO_FAMILY,
    "localhost": NO_FAMILY,
    NAME: NO_FAMILY,
}


@pytest.mark.parametrize("host", FAMILIES)
def test_an_address_has_a_family_and_a_name_has_none(host: str) -> None:
    assert family_of(host) == FAMILIES[host]


class Resolver(FakeLoop):
    """Connects to a name, or fails in this way, or waits. `ends`: what connects is ended."""

    failure: OSError | None = None
    waits = ends = False

    async def create_connection(self, factory: Any, *address: Any, **given: Any) -> Any:
        if not given:
            assert address == (NAME, 1)
            if self.failure is not None:
                raise self.failure
            if self.waits:
                await asyncio.Event().wait()
        transport, protocol = await super().create_connection(factory, *address, **given)
        if self.ends:
            protocol.eof_received()
        return transport, protocol


@pytest.fixture
async def named() -> AsyncIterator[Rig]:
    rig = Rig(at(NAME))
    rig.use(Resolver())
    yield rig
    await rig.dialled()
    assert not rig.plane.dials
    rig.check()
    rig.close()


async def test_a_name_is_dialled_too(named: Rig) -> None:
    client, instance = await named.asked(post())
    assert named.loop.sockets == []
    instance.feed(ok())
    assert status_of(client.out) == 200
    assert named.plane.pool.size == 1


async def test_a_failure_without_a_number_says_what_it_can(named: Rig) -> None:
    """asyncio joins the failures of several addresses into one without a number."""
    loop: Any = named.loop
    loop.failure = OSError("Multiple exceptions: one, two")
    answer = await answered(named)
    assert code_of(answer) == "connect_failed"
    assert b"cannot connect to i1: Multiple exceptions: one, two" in answer


async def test_a_name_that_nobody_knows_is_a_502(named: Rig) -> None:
    loop: Any = named.loop
    loop.failure = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    answer = await answered(named)
    assert (code_of(answer), status_of(answer)) == ("connect_failed", 502)
    assert b"cannot connect to i1: Name or service not known" in answer


async def test_who_leaves_while_a_name_is_dialled_ends_the_dial(named: Rig) -> None:
    loop: Any = named.loop
    loop.waits = True
    client = named.client()
    client.feed(post())
    await named.dialled()
    (task,) = named.plane.dials
    client.end()
    await named.dialled()
    assert task.cancelled()
    assert named.outcomes() == {"client_gone": 1}


async def test_a_named_instance_that_ends_the_connection_at_once_failed_the_dial(
    named: Rig,
) -> None:
    loop: Any = named.loop
    loop.ends = True
    answer = await answered(named)
    assert (code_of(answer), status_of(answer)) == ("connect_failed", 502)
    assert b"it closed the connection at once" in answer
    assert named.loop.instances[0].out == b""


# --- an instance that accepts, and ends the connection before anything was sent ---

ENDS: Final[dict[str, bytes | OSError]] = {
    "closed": b"",
    "reset": ConnectionResetError(errno.ECONNRESET, "reset"),
    "spoke": b"2",  # of a server whose clients listen first
}


def ending(end: str, *ports: int) -> Rig:
    rig = Rig(table(1, route(version(*(target(port, port) for port in ports)))))
    rig.loop.said = {1: ENDS[end]}
    return rig


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("request_", [get(), post()], ids=["GET", "POST"])
async def test_a_connection_that_ends_before_anything_was_sent_is_a_failed_dial(
    request_: bytes, end: str
) -> None:
    """The request was written to it all the same, and its client waited for ever or was told of a
    reset: nobody had read a byte, and another instance was free."""
    rig = ending(end, 1, 2)
    for number in range(1, 5):
        client = rig.client()
        client.feed(request_)
        for _ in range(3):
            await rig.dialled()
        if not client.out:
            rig.busy(client).feed(ok())
        assert status_of(client.out) == 200
        assert rig.outcomes() == {"served": number}
    failed = rig.segment.slot_totals(1)[ATTEMPTS + Outcome.CONNECT_FAILED]
    assert failed == len(rig.suspected) > 0
    assert {suspected.slot for suspected in rig.suspected} == {1}
    assert [sock.sent for sock in rig.loop.sockets if sock.port == 1] == [b""] * failed
    rig.check()
    rig.close()


@pytest.mark.parametrize("end", ENDS)
async def test_where_it_is_the_only_instance_the_client_is_told(end: str) -> None:
    rig = ending(end, 1)
    client = rig.client()
    client.feed(post())
    for _ in range(3):
        await rig.dialled()
    assert status_of(client.out) == 502
    assert rig.outcomes() == {"connect_failed": 1}
    rig.check()
    rig.close()


async def test_one_that_ended_while_its_handshake_was_waited_for_is_a_failed_dial() -> None:
    rig = ending("closed", 1)
    rig.loop.stuck = {1}
    client = rig.client()
    client.feed(post())
    rig.loop.shake_hands(0)
    assert (status_of(client.out), rig.loop.sockets[0].sent) == (502, b"")
    assert b"it closed the connection at once" in client.out
    rig.check()
    rig.close()
