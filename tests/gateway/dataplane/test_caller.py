"""A client connection's own end: told once, closed or cut, and its way described truly."""

import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.caller import (
    HEAD,
    HELD_BODY,
    LINGER_NS,
    NOTHING,
    OVER,
    RESET,
    REST,
    STREAMED_BODY,
    Caller,
)
from gateway.wire.compose import ways
from gateway.wire.heads import RequestHead
from gateway.wire.lines import REQUEST_NAMES, LineMemo
from tests.gateway.dataplane.rig import NS, FakeTransport, Rig
from tests.gateway.plain import TIMEOUTS, route, table, target, version

READINGS: Final = (HEAD, HELD_BODY, STREAMED_BODY, NOTHING, REST, OVER)
PEER: Final = b"10.0.0.9"


class Noting(FakeTransport):
    """Notes what it is told of reading."""

    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[str] = []

    def pause_reading(self) -> None:
        super().pause_reading()
        self.told.append("pause")

    def resume_reading(self) -> None:
        super().resume_reading()
        self.told.append("resume")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1)))))
    yield made
    made.close()


def called(rig: Rig) -> tuple[Caller, Noting]:
    caller, transport = Caller(rig.plane), Noting()
    caller.transport = transport
    caller.peer = PEER
    return caller, transport


# --- its way ---


def asked(host: bytes | None, minor: int, came_for: bytes | None) -> RequestHead:
    lines = [b"GET / HTTP/1.%d" % minor]
    if host is not None:
        lines.append(b"host: " + host)
    if came_for is not None:
        lines.append(b"x-forwarded-for: " + came_for)
    head = RequestHead(LineMemo(REQUEST_NAMES), {})
    head.read(b"\r\n".join(lines))
    return head


@st.composite
def heads(draw: st.DrawFn) -> tuple[bytes | None, int, bytes | None]:
    minor = draw(st.integers(0, 1))
    hosts = [b"a.example", b"b.example:80", b""]
    host = draw(st.sampled_from([*hosts, None] if minor == 0 else hosts))
    return host, minor, draw(st.sampled_from([None, None, b"1.2.3.4", b"1.2.3.4, 5.6.7.8", b""]))


@given(st.lists(st.tuples(heads(), st.sampled_from([b"127.0.0.1:1", b"[::1]:2"])), max_size=12))
async def test_a_way_is_that_of_its_own_request_whatever_was_asked_before(
    requests: list[tuple[tuple[bytes | None, int, bytes | None], bytes]],
) -> None:
    rig = Rig(table(1, route(version(target(1, 1)))))
    caller, _ = called(rig)
    for (host, minor, came_for), instance in requests:
        lines = caller.way(asked(host, minor, came_for), instance).split(b"\r\n")
        assert lines[0] == b"host: " + (host or instance)
        assert lines[1] == b"x-forwarded-for: " + (b"%s, " % came_for if came_for else b"") + PEER
        assert (b"via: 1.%d sluicegate" % minor) in lines
        assert [line for line in lines if line.startswith(b"x-forwarded-host")] == (
            [b"x-forwarded-host: " + host] if host else []
        )
    rig.close()


async def test_a_way_is_made_again_only_for_another_host(rig: Rig) -> None:
    caller, _ = called(rig)
    first = caller.way(asked(b"a", 1, None), b"i:1")
    assert caller.way(asked(b"a", 1, None), b"i:2") is first
    for other in (asked(b"a", 0, None), asked(b"a", 1, b"1.2.3.4"), asked(None, 0, None)):
        assert caller.way(other, b"i:1") == ways(other, b"i:1", PEER) != first
    assert caller.way(asked(b"a", 1, None), b"i:1") is first
    second = caller.way(asked(b"b", 1, None), b"i:1")
    assert second != first
    assert caller.way(asked(b"a", 1, None), b"i:1") == first


# --- its reading ---


@given(st.lists(st.booleans()), st.booleans())
async def test_a_transport_is_told_of_changes_only(holds: list[bool], closing: bool) -> None:
    """asyncio's own transports raise when they are told twice, uvloop's do not."""
    rig = Rig(table(1, route(version(target(1, 1)))))
    caller, transport = called(rig)
    before = False
    changes = []
    for held in holds:
        caller.hold_reading(held)
        assert transport.reading == (not held)
        if held != before:
            changes.append("pause" if held else "resume")
        before = held
    assert transport.told == changes
    if closing:
        transport.close()
        caller.hold_reading(not before)
        assert transport.told == changes
    rig.close()


@pytest.mark.parametrize("reading", READINGS)
async def test_an_upload_is_held_only_while_there_is_one(rig: Rig, reading: int) -> None:
    caller, transport = called(rig)
    caller.reading = reading
    caller.hold_upload(True)
    assert transport.reading == (reading != STREAMED_BODY)
    caller.hold_upload(False)
    assert transport.reading


# --- its end ---


async def test_a_cut_that_could_hide_is_a_reset(rig: Rig) -> None:
    caller, transport = called(rig)
    caller.pending = b"the next request"
    caller.cut(True)
    assert transport.socket.options == [(socket.SOL_SOCKET, socket.SO_LINGER, RESET)]
    assert transport.closed == "aborted"
    assert (caller.reading, caller.pending) == (OVER, b"")


async def test_a_cut_that_shows_lets_out_what_was_written(rig: Rig) -> None:
    caller, transport = called(rig)
    rig.now += 5 * NS  # since the plane looked last
    caller.pending = b"the next request"
    caller.cut(False)
    assert transport.socket.options == []
    assert transport.closed == "closed"
    assert (caller.reading, caller.pending) == (OVER, b"")
    assert caller.deadline_ns == rig.now + LINGER_NS


async def test_a_reset_reaches_the_other_end_as_one(rig: Rig) -> None:
    """The option that `cut` sets does what it is set for."""
    door = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(door.getsockname())
    ours, _ = door.accept()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    ours.close()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    client.close()
    door.close()


async def test_a_close_has_the_time_of_an_idle_client_and_a_linger_a_moment(rig: Rig) -> None:
    caller, transport = called(rig)
    caller.close()
    assert (caller.reading, transport.closed) == (OVER, "closed")
    assert caller.deadline_ns == rig.now + 75 * NS

    caller, transport = called(rig)
    caller.hold_reading(True)
    caller.pending = b"more"
    caller.linger()
    assert (caller.reading, caller.pending) == (REST, b"")
    assert transport.eof_written
    assert transport.reading  # what it still sends has to be read, or it is reset
    assert not transport.closed
    assert caller.deadline_ns == rig.now + LINGER_NS


@given(st.floats(0, 1e6))
async def test_no_limit_is_no_deadline(limit_s: float) -> None:
    rig = Rig(table(1, route(version(target(1, 1)))))
    caller, _ = called(rig)
    caller.deadline_ns = 1
    caller.due_in(limit_s)
    assert caller.deadline_ns == (rig.plane.now + int(limit_s * NS) if limit_s else 0)
    rig.close()


async def test_without_a_limit_a_closing_client_has_no_deadline() -> None:
    none = replace(TIMEOUTS, client_idle_s=0)
    rig = Rig(table(1, route(version(target(1, 1))), timeouts=none))
    caller, transport = called(rig)
    caller.close()
    assert (caller.deadline_ns, transport.closed) == (0, "closed")
    rig.close()
