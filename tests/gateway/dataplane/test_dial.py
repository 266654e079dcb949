"""A new connection to an instance, and why there is none."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from gateway.dataplane.dial import OUR_OWN_LIMITS, dial, no_delay, unreachable
from gateway.dataplane.instance import InstanceConnection
from gateway.dataplane.plane import Plane
from gateway.errors import GatewayError
from gateway.records import Outcome
from gateway.routing.compiled import CompiledTarget
from gateway.state.shared import ATTEMPTS
from tests.gateway.dataplane.rig import FakeLoop, FakeTransport, Rig, get, ok, post, status_of
from tests.gateway.dataplane.sockets import on_uvloop
from tests.gateway.plain import route, table, target, version

NO_DELAY: Final = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Refusing:
    """A loop on which every dial fails in this way."""

    def __init__(self, failure: OSError) -> None:
        self._failure = failure

    async def create_connection(self, factory: object, host: str, port: int) -> object:
        raise self._failure


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1)))))
    yield made
    made.close()


def target_at(rig: Rig, port: int) -> CompiledTarget:
    """The plane's only target, on this port of this machine."""
    rig.publish(table(2, route(version(target(1, port)))))
    return rig.plane.cell.read().routes["m"].by_name["1"].targets[0]


async def failure(rig: Rig, exc: OSError) -> GatewayError:
    loop: Any = Refusing(exc)
    rig.plane.loop = loop
    with pytest.raises(GatewayError) as caught:
        await dial(rig.plane, target_at(rig, 1))
    return caught.value


THEIRS: Final = (
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
)


@pytest.mark.parametrize("number", THEIRS, ids=errno.errorcode.get)
async def test_an_instance_that_is_not_there_is_a_502_that_names_it(rig: Rig, number: int) -> None:
    error = await failure(rig, OSError(number, os.strerror(number)))
    assert (error.refusal.code, error.refusal.status) == ("connect_failed", 502)
    assert error.message == f"cannot connect to i1: {os.strerror(number)}"
    assert error.details == {"instance": "i1"}
    assert error.retry_after_s == 0


OURS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL)


@pytest.mark.parametrize("number", OURS, ids=errno.errorcode.get)
async def test_a_limit_of_this_machine_is_a_503_that_blames_nobody(rig: Rig, number: int) -> None:
    error = await failure(rig, OSError(number, os.strerror(number)))
    assert (error.refusal.code, error.refusal.status) == ("leases_full", 503)
    assert os.strerror(number) in error.message
    assert error.details == {}
    assert error.retry_after_s == 1


def test_the_limits_of_this_machine_are_all_tested() -> None:
    assert frozenset(OURS) == OUR_OWN_LIMITS


async def test_a_failure_without_a_number_says_what_it_can(rig: Rig) -> None:
    """asyncio joins the failures of several addresses into one without a number."""
    error = await failure(rig, OSError("Multiple exceptions: one, two"))
    assert error.message == "cannot connect to i1: Multiple exceptions: one, two"
    assert error.refusal.code == "connect_failed"


async def test_a_dial_that_was_cancelled_stays_cancelled(rig: Rig) -> None:
    rig.loop.stuck = {1}
    task = asyncio.ensure_future(dial(rig.plane, target_at(rig, 1)))
    await rig.dialled()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- on real sockets ---


def real() -> tuple[Rig, Plane]:
    rig = Rig(table(1, route(version(target(1, 1)))))
    rig.plane.loop = asyncio.get_running_loop()
    return rig, rig.plane


@on_uvloop
async def test_a_port_without_a_listener_refuses() -> None:
    rig, plane = real()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # ours, so that nobody else listens there
        with pytest.raises(GatewayError) as caught:
            await dial(plane, target_at(rig, bound.getsockname()[1]))
    assert caught.value.refusal.code == "connect_failed"
    assert "refused" in caught.value.message
    rig.close()


@on_uvloop
async def test_a_connection_belongs_to_its_slot_and_sends_small_writes_at_once() -> None:
    rig, plane = real()
    with socket.create_server(("127.0.0.1", 0)) as door:
        connection = await dial(plane, target_at(rig, door.getsockname()[1]))
        accepted, (_, port) = door.accept()
        assert isinstance(connection, InstanceConnection)
        assert (connection.slot, connection.port, connection.used) == (1, port, False)
        sock = connection.transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        connection.abandon()
        accepted.close()
    rig.close()


async def test_the_option_is_set_whatever_the_loop_does_by_itself(rig: Rig) -> None:
    connection = await dial(rig.plane, target_at(rig, 1))
    assert connection.transport.socket.options == [NO_DELAY]


@pytest.mark.parametrize(
    ("family", "options"),
    [(socket.AF_INET, [NO_DELAY]), (socket.AF_INET6, [NO_DELAY]), (socket.AF_UNIX, [])],
)
def test_what_is_no_tcp_has_no_such_option(
    family: socket.AddressFamily, options: list[object]
) -> None:
    transport: Any = FakeTransport(None)
    transport.socket.family = family
    no_delay(transport)
    assert transport.socket.options == options
    transport.socket = None  # as of a transport that is gone already
    no_delay(transport)


async def test_who_cannot_be_reached_in_time_is_named_too(rig: Rig) -> None:
    error = unreachable(target_at(rig, 1), "no answer in 2 s")
    assert error.message == "cannot connect to i1: no answer in 2 s"


# --- an instance that accepts, and ends the connection before anything was sent ---


class Ending(FakeLoop):
    """What connects to port 1 has been ended by the other side before its dial returns."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self._end = end

    async def create_connection(self, factory: Any, host: str, port: int) -> Any:
        transport, protocol = await super().create_connection(factory, host, port)
        if port == 1 and self._end == "closed":
            protocol.eof_received()  # aborts; the loss is told a round later
            self._loop.call_soon(lambda: self._loop.call_soon(transport.end))
        elif port == 1:
            transport.end(ConnectionResetError())
        return transport, protocol


def ending(end: str, *ports: int) -> Rig:
    rig = Rig(table(1, route(version(*(target(port, port) for port in ports)))))
    loop: Any = Ending(end)
    rig.plane.loop = rig.loop = loop
    return rig


@pytest.mark.parametrize("end", ["closed", "reset"])
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
    rig.check()
    rig.close()


@pytest.mark.parametrize("end", ["closed", "reset"])
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
