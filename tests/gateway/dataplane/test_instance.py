"""The end of each response is found wherever reads end, and a connection serves again if it can.

What the listener is told is tested with one of our own, which a compiled class does not accept; all
else with the real one, an exchange.
"""

import sys
from collections.abc import AsyncIterator
from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.instance import InstanceConnection, Listener
from gateway.native import interpreted
from gateway.records import Stage
from gateway.wire.events import EventScanner
from gateway.wire.heads import ResponseHead
from tests.gateway.dataplane.rig import FakeTransport, Rig, code_of, get, ok
from tests.gateway.plain import route, table, target, version

as_python: Final = pytest.mark.skipif(
    not interpreted(sys.modules), reason="a class of a test cannot stand for a compiled one"
)

EVENTS: Final = b'data: {"a":1}\n\ndata: {"error": {"code": 5}}\n\n'
HALVES: Final = (EVENTS[:20], EVENTS[20:])
TYPE: Final = b"content-type: text/event-stream"
CHUNKS: Final = b"".join(b"%x;of=2\r\n%s\r\n" % (len(part), part) for part in HALVES) + b"0\r\n"

CHUNKED: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked"

# name: lines of the head, body as received, body as a client gets it, content.
RESPONSES: Final[dict[str, tuple[bytes, bytes, bytes, bytes]]] = {
    "nothing by status": (b"HTTP/1.1 204 No Content", b"", b"", b""),
    "nothing by a condition": (b"HTTP/1.1 304 -\r\ncontent-length: 9", b"", b"", b""),
    "nothing by length": (b"HTTP/1.1 200 OK\r\ncontent-length: 0", b"", b"", b""),
    "counted": (b"HTTP/1.1 200 OK\r\ncontent-length: %d" % len(EVENTS), EVENTS, EVENTS, EVENTS),
    "chunked": (CHUNKED, CHUNKS + b"\r\n", CHUNKS + b"\r\n", EVENTS),
    "trailers": (CHUNKED, CHUNKS + b"x-sum: 1\r\n\r\n", CHUNKS + b"\r\n", EVENTS),
    "until close": (b"HTTP/1.1 200 OK", EVENTS, EVENTS, EVENTS),
}
BY_CLOSE: Final = "until close"
# Longer than the heads that follow it: what was searched of it says nothing of them.
INTERIM: Final = b"HTTP/1.1 103 Early Hints\r\nlink: </%s>\r\n\r\n" % (b"a" * 150)


def message(name: str) -> bytes:
    head, body, _, _ = RESPONSES[name]
    return b"%s\r\n%s\r\n\r\n%s" % (head, TYPE, body)


class Recorder(Listener):
    """Notes what it is told, and lets go of the connection at the end, as an exchange does."""

    def __init__(self, connection: InstanceConnection, dechunks: bool = False) -> None:
        self.connection = connection
        self.dechunks = dechunks
        self.told: list[str] = []
        self.out = b""
        self.received = self.content_bytes = 0
        self.owes_end = False
        self.scanner = None

    def interim(self, head: ResponseHead) -> None:
        self.told.append("interim")

    def answered(self, head: ResponseHead, framing: int) -> bool:
        self.told.append("answered")
        self.scanner = EventScanner()
        return self.dechunks

    def passed(self, out: bytes, received: int) -> None:
        self.told.append("passed")
        self.out += out
        self.received += received

    def goes_on(self) -> None:
        self.told.append("goes on")

    def ended(self, content_bytes: int, owes_end: bool) -> None:
        self.told.append("ended")
        self.content_bytes, self.owes_end = content_bytes, owes_end
        self.connection.release(True)

    def broken(self, why: str) -> None:
        self.told.append("broken")
        self.connection.abandon()

    def lost(self) -> None:
        self.told.append("lost")

    def upload_blocked(self, blocked: bool) -> None:
        self.told.append("blocked" if blocked else "unblocked")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig(table(1, route(version(target(1, 1)))))
    yield made
    made.close()


def connected(rig: Rig) -> tuple[FakeTransport, InstanceConnection]:
    connection = InstanceConnection(rig.plane, 1)
    transport = FakeTransport(connection)
    connection.connection_made(transport)
    return transport, connection


def listened(rig: Rig, dechunks: bool = False) -> tuple[FakeTransport, Recorder]:
    transport, connection = connected(rig)
    recorder = Recorder(connection, dechunks)
    connection.take(recorder, False)
    return transport, recorder


def cut_at(data: bytes, cuts: set[int]) -> list[bytes]:
    at = sorted(cut for cut in cuts if 0 < cut < len(data))
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


def tell(rig: Rig, name: str, interims: int, cuts: set[int], dechunks: bool = False) -> Recorder:
    """Told of one response in these reads; all that must hold of what was told."""
    sent = INTERIM * interims + message(name)
    transport, recorder = listened(rig, dechunks)
    for read in cut_at(sent, cuts):
        transport.feed(read)
    if name == BY_CLOSE:
        transport.feed_eof()
    told = recorder.told
    answered = told.index("answered")
    assert told[:answered] == ["interim"] * interims
    assert told[answered + 1] == "passed"
    assert told[-1] == "ended"
    head_ends = len(INTERIM) * interims + message(name).index(b"\r\n\r\n") + 4
    read_ends = min(cut for cut in (*cuts, len(sent)) if cut >= head_ends)
    later = read_ends < len(sent) or name == BY_CLOSE
    assert told[answered + 2 : answered + 3] == ["goes on" if later else "ended"]
    assert set(told[answered + 3 :]) <= {"passed", "ended"}
    assert (told.count("answered"), told.count("ended")) == (1, 1)
    _, _, passed, content = RESPONSES[name]
    assert recorder.content_bytes == len(content)
    if dechunks:
        assert recorder.out == content
    else:
        assert recorder.out + b"\r\n" * recorder.owes_end == passed
        assert recorder.received == len(recorder.out)
    assert recorder.scanner is not None
    assert recorder.scanner.answered == recorder.scanner.failed == bool(content)
    return recorder


@as_python
@pytest.mark.parametrize("name", RESPONSES)
async def test_a_response_in_two_reads_is_told_in_order_wherever_the_first_ends(
    rig: Rig, name: str
) -> None:
    for interims in (0, 1):
        for cut in range(1, len(INTERIM) * interims + len(message(name)) + 1):
            tell(rig, name, interims, {cut})


@as_python
@given(
    st.sampled_from(sorted(RESPONSES)),
    st.integers(0, 2),
    st.sets(st.integers(1, 600), max_size=30),
    st.booleans(),
)
async def test_a_response_is_told_in_order_however_it_is_read(
    name: str, interims: int, cuts: set[int], dechunks: bool
) -> None:
    rig = Rig(table(1, route(version(target(1, 1)))))
    sent = len(INTERIM) * interims + len(message(name))
    recorder = tell(rig, name, interims, {c for c in cuts if c < sent}, dechunks)
    assert rig.plane.pool.size == (name != BY_CLOSE)
    assert recorder.connection.used == (name != BY_CLOSE)
    rig.close()


@as_python
async def test_nothing_is_left_of_the_responses_before(rig: Rig) -> None:
    """Of another framing each, in every order of two."""
    for names in product(sorted(set(RESPONSES) - {BY_CLOSE}), repeat=2):
        transport, connection = connected(rig)
        for name in names:
            recorder = Recorder(connection)
            connection.take(recorder, False)
            transport.feed(message(name))
            assert recorder.told == ["answered", "passed", "ended"]
            assert recorder.content_bytes == len(RESPONSES[name][3])
            assert rig.plane.pool.checkout(1, rig.now) is connection


@as_python
async def test_an_answer_to_head_ends_with_its_head(rig: Rig) -> None:
    transport, connection = connected(rig)
    recorder = Recorder(connection)
    connection.take(recorder, True)
    transport.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
    assert recorder.told == ["answered", "passed", "ended"]
    assert recorder.content_bytes == 0
    assert rig.plane.pool.size == 1


@as_python
@pytest.mark.parametrize("name", RESPONSES)
async def test_a_connection_that_is_lost_is_no_end_of_a_response(rig: Rig, name: str) -> None:
    """A reset is none of one without a length either; an end in order is, for that one only."""
    sent = message(name)
    head_ends = sent.index(b"\r\n\r\n") + 4
    for in_order, cut in product((False, True), range(len(sent))):
        transport, recorder = listened(rig)
        transport.feed(sent[:cut])
        if in_order:
            transport.feed_eof()
        transport.end(None if in_order else ConnectionResetError())
        whole = in_order and name == BY_CLOSE and cut >= head_ends
        assert recorder.told[-1] == ("ended" if whole else "lost")
        assert recorder.told.count("ended") + recorder.told.count("lost") == 1


@as_python
async def test_a_listener_that_leaves_with_the_head_is_told_nothing_more(rig: Rig) -> None:
    """So does an exchange that takes the answer for a refusal."""

    class Leaver(Recorder):
        def answered(self, head: ResponseHead, framing: int) -> bool:
            self.connection.abandon()
            return super().answered(head, framing)

    for name in RESPONSES:
        transport, connection = connected(rig)
        leaver = Leaver(connection)
        connection.take(leaver, False)
        transport.feed(message(name))
        transport.end()
        assert leaver.told == ["answered"]
        assert transport.closed == "aborted"


@as_python
async def test_back_pressure_is_told_while_somebody_listens(rig: Rig) -> None:
    transport, recorder = listened(rig)
    connection = recorder.connection
    connection.pause_writing()
    connection.resume_writing()
    assert recorder.told == ["blocked", "unblocked"]
    transport.feed(message("counted"))
    connection.pause_writing()
    connection.resume_writing()
    assert recorder.told[-1] == "ended"


NO_RESPONSE: Final = {
    "a switch of protocols": b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\n\r\n",
    "another protocol": b"SSH-2.0-x\r\n\r\n",
    "a line without cr": b"HTTP/1.1 200 OK\n",
    "two framings": b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    "a head without end": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
}


@pytest.mark.parametrize("name", NO_RESPONSE)
async def test_what_is_no_response_is_a_502_and_ends_the_connection(rig: Rig, name: str) -> None:
    client, instance = await rig.asked(get())
    instance.feed(INTERIM + NO_RESPONSE[name])
    assert client.out.startswith(INTERIM)
    assert code_of(client.out[len(INTERIM) :]) == "instance_bad_framing"
    assert instance.closed == "aborted"
    assert rig.outcomes() == {"instance_error": 1}


# --- and serves again, or not ---


@pytest.mark.parametrize("name", sorted(set(RESPONSES) - {BY_CLOSE}))
@pytest.mark.parametrize(
    "surplus", [b"\r", b"\r\n", ok(b"stray")], ids=["a byte", "a line", "one more"]
)
async def test_bytes_behind_the_end_cost_the_connection(
    rig: Rig, name: str, surplus: bytes
) -> None:
    client, instance = await rig.asked(get())
    instance.feed(message(name) + surplus)
    assert b"stray" not in client.out
    assert not client.closed
    assert instance.closed == "closed"
    assert rig.plane.pool.size == 0


@pytest.mark.parametrize("name", sorted(set(RESPONSES) - {BY_CLOSE}))
@pytest.mark.parametrize(
    "said", [b"\r", ok(b"stray"), b"", None], ids=["byte", "more", "eof", "reset"]
)
async def test_an_idle_connection_that_does_anything_leaves_the_pool(
    rig: Rig, name: str, said: bytes | None
) -> None:
    _, instance = await rig.asked(get())
    instance.feed(message(name))
    assert rig.plane.pool.size == 1
    if said:
        instance.feed(said)
    elif said is None:
        instance.end(ConnectionResetError())
    else:
        instance.feed_eof()
    assert instance.closed
    assert rig.plane.pool.size == 0
    instance.end()  # late news of it changes nothing
    assert rig.plane.pool.size == 0


GOOD: Final = (True,) * 5


@pytest.mark.parametrize("stays", list(product((True, False), repeat=5)), ids=str)
async def test_only_what_is_complete_and_wanted_is_kept(
    rig: Rig, stays: tuple[bool, bool, bool, bool, bool]
) -> None:
    says_so, complete, named, serving, open_still = stays
    length = b"content-length: %d" % (2 if complete else 3)
    request = b"POST /x HTTP/1.1\r\nhost: g\r\n" + length + b"\r\n\r\nab"
    _, instance = await rig.asked(request)
    if not named:
        rig.publish(table(2, route(version(target(2, 2)))))
    rig.plane.closing = not serving
    if not open_still:
        instance.closed = "closed"
    response = ok(b"fine") if says_so else ok(b"fine", b"connection: close")
    instance.protocol.data_received(response)
    assert rig.plane.pool.size == (stays == GOOD)
    assert instance.protocol.used == (stays == GOOD)
    if stays == GOOD:
        assert not instance.closed
    elif open_still:
        assert instance.closed == ("closed" if complete else "aborted")
    rig.check()


async def test_a_connection_that_was_held_is_read_again_when_it_is_idle(rig: Rig) -> None:
    """Else nobody would see the instance close it."""
    client, instance = await rig.asked(get())
    client.full = True
    instance.feed(message("counted")[:-1])
    assert not instance.reading
    instance.protocol.data_received(message("counted")[-1:])  # was in the loop's hands already
    assert instance.reading
    assert rig.plane.pool.size == 1
    instance.protocol.pause(True)  # nobody holds what nobody uses
    assert instance.reading


@pytest.mark.parametrize("name", RESPONSES)
async def test_a_response_streams_if_it_is_not_complete_with_its_head(rig: Rig, name: str) -> None:
    """Whoever looks on sees its stage; a response that came whole costs no such note."""
    sent = message(name)
    head_ends = sent.index(b"\r\n\r\n") + 4
    for cut in range(1, len(sent)):
        client, instance = await rig.asked(get())
        instance.feed(sent[:cut])
        stages = [record.stage for record in rig.segment.leases(0)]
        assert stages == [Stage.STREAMING if cut >= head_ends else Stage.WAITING]
        instance.feed(sent[cut:])
        if name == BY_CLOSE:
            instance.feed_eof()
        assert list(rig.segment.leases(0)) == []
        client.end()
        rig.check()


async def test_a_connection_knows_its_own_end(rig: Rig) -> None:
    _, connection = connected(rig)
    assert (connection.slot, connection.port, connection.used) == (1, 77, False)


async def test_one_that_never_opened_can_be_given_up(rig: Rig) -> None:
    InstanceConnection(rig.plane, 1).abandon()
    assert rig.plane.pool.size == 0
