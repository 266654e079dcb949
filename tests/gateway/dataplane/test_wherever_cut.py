"""Where TCP cuts a stream means nothing: whole, in pieces and byte by byte it is the same."""

import asyncio
import re
from typing import Final

import h11
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.dataplane.rig import Rig, ok, post
from tests.gateway.dataplane.sockets import Peer, Street, on_uvloop, street
from tests.gateway.dataplane.test_one_message import STREAMS, found_by_h11, relayed
from tests.gateway.dataplane.test_truncated import whole
from tests.gateway.plain import route, table, target, version
from tests.gateway.wire.crooked import CHUNKED, CUTS, RESPONSE_HEADS, crooked, cut
from tests.gateway.wire.depth import looks

CODE: Final = re.compile(rb"x-sluicegate-error: ([a-z_]+)|HTTP/1\.1 (200)")
# What a head is refused for. One with two faults may be refused for either: the first to be seen.
FAULTS: Final = frozenset(
    {b"bad_request", b"bad_framing", b"version_refused", b"coding_unknown", b"expectation_failed"}
)
EVENTS_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
ANSWERS: Final = st.sampled_from(
    [
        ok(b"fine", b"date: now"),
        ok(b"", b"date: now"),
        ok(b"no", b"date: now", status=b"404 Not Found"),
        EVENTS_HEAD
        + b'e\r\ndata: {"a":1}\n\r\n7\r\n\n: ping\r\n10;x\r\n\n\ndata: [DONE]\n\n\r\n0\r\n\r\n',
        EVENTS_HEAD + b'13\r\ndata: {"error": {}}\r\n2\r\n\n\n\r\n0\r\nX-Sum: 1\r\n\r\n',
        EVENTS_HEAD + b'9\r\ndata: 1\n\n\r\n15\r\n\ndata: {"error": {}}\n\r\n1\r\n\n\r\n0\r\n\r\n',
        EVENTS_HEAD + b"9\r\ndata: 1\n\n\r\nf\r\nevent: error\n\n\n\r\n0\r\n\r\n",
        b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\ndate: now\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ndate: now\r\n\r\nuntil it closes",
    ]
)
CROOKED_ANSWERS: Final = st.one_of(
    ANSWERS,
    crooked(ANSWERS),
    st.builds(lambda head, body: head + b"\r\n\r\n" + body, RESPONSE_HEADS, CHUNKED),
)


@looks(2)
@given(STREAMS, CUTS)
async def test_requests_in_pieces_are_the_requests(stream: bytes, cuts: list[int]) -> None:
    """Those that are refused too: after the same ones, for the same reason."""
    told = []
    for pieces in ([], cuts):
        rig = Rig(table(1, route(version(target(1, 1)))))
        client, sent = await relayed(rig, stream, pieces)
        codes = [code or status for code, status in CODE.findall(client.out)]
        ends = [b"fault" if code in FAULTS else code for code in codes]
        assert sum(rig.outcomes().values()) == len(ends)
        told.append((found_by_h11(b"".join(sent)), ends))
        rig.check()
        rig.close()
    assert told[0] == told[1]


@looks(2)
@given(CROOKED_ANSWERS, CUTS, st.booleans())
async def test_answers_in_pieces_are_the_answers(
    answer: bytes, cuts: list[int], in_order: bool
) -> None:
    """A complete one is the same to the byte; one that is none ends in the same outcome."""
    told = []
    for pieces in ([], cuts):
        rig = Rig(table(1, route(version(target(1, 1)))))
        client, instance = await rig.asked(post())
        for piece in cut(answer, pieces):
            if not instance.closed:
                instance.feed(piece)
        if in_order:
            instance.feed_eof()
        elif not instance.closed:
            instance.end(ConnectionResetError())
        complete = whole(client.out, b"POST") and b"x-sluicegate-error" not in client.out
        told.append((rig.outcomes(), complete, _but_date(client.out) if complete else b""))
        rig.check()
        rig.close()
    assert told[0] == told[1]


def _but_date(out: bytes) -> bytes:
    return re.sub(rb"\r\ndate: [^\r]*", b"", out)


# --- on real sockets, both sides at once ---

KEPT: Final = b"x-request-id: r\r\ntraceparent: t\r\n"  # or they would be new in each run
ASKED: Final = st.sampled_from(
    [
        b"GET /a HTTP/1.1\r\nhost: g\r\n" + KEPT + b"\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n" + KEPT + b"content-length: 13\r\n\r\n"
        b'{"model":"m"}',
        b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n"
        + KEPT
        + b"transfer-encoding: chunked\r\n\r\n"
        b'5\r\n{"mod\r\n8\r\nel":"m"}\r\n0\r\n\r\n',
        b"POST /up HTTP/1.1\r\nhost: g\r\n" + KEPT + b"transfer-encoding: chunked\r\n\r\n"
        b"3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n",
        b"PUT /up HTTP/1.1\r\nhost: g\r\n" + KEPT + b"content-length: 4\r\n\r\n\r\n\r\n",
        b"\r\n\r\nDELETE /d HTTP/1.1\r\nhost: g\r\n" + KEPT + b"\r\n",
    ]
)
KEPT_ANSWERS: Final = ANSWERS.filter(lambda answer: b"HTTP/1.0" not in answer)
EXCHANGES: Final = st.lists(st.tuples(ASKED, KEPT_ANSWERS), min_size=1, max_size=4)

LAST: Final = b"GET /last HTTP/1.1\r\nhost: g\r\nconnection: close\r\n" + KEPT + b"\r\n"


async def say(peer: Peer, message: bytes, cuts: list[int]) -> None:
    """Each piece on its own: the gateway's loop comes round between two of them."""
    for piece in cut(message, cuts):
        await peer.send_all(piece)
        await asyncio.sleep(0)


async def answer_all(met: Street, answers: list[bytes], cuts: list[int]) -> bytes:
    """One request after the other, each when it is whole; what was sent to ask."""
    instance = await met.dialled()
    reads = h11.Connection(h11.SERVER)
    for answer in answers:
        while not isinstance(event := reads.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                reads.receive_data(await instance.some())
        reads.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        reads.send(h11.EndOfMessage())
        reads.start_next_cycle()
        await say(instance, answer, cuts)
    return instance.received


async def conversation(
    exchanges: list[tuple[bytes, bytes]], cuts: list[int]
) -> tuple[bytes, bytes]:
    """What the instance and the client got, when all requests went out in one stream."""
    requests = b"".join(request for request, _ in exchanges) + LAST
    answers = [answer for _, answer in exchanges] + [ok(b"last", b"date: now")]
    async with street() as met:
        client = await met.client()
        _, got = await asyncio.gather(say(client, requests, cuts), answer_all(met, answers, cuts))
        answered = await client.rest()
        assert met.in_flight() == 0
        assert sum(met.rig.outcomes().values()) == len(answers)
        assert met.plane.held_bytes == 0
        return got, answered


@looks(0.6, shrinks=False)
@given(EXCHANGES, CUTS)
def test_a_conversation_is_the_same_however_both_sides_are_cut(
    exchanges: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    """Pipelined requests and their answers over real sockets: the same bytes on the other side."""

    @on_uvloop
    async def both() -> None:
        assert await conversation(exchanges, cuts) == await conversation(exchanges, [])

    both()
