"""Heads against two other parsers on the same bytes: read alike, or a known difference.

What a head means to a proxy is told here from the fields as the reference saw them, with lists of
this file: where we forward other fields than these, or frame another way, a test fails.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
from hypothesis import given

from gateway.errors import GatewayError
from tests.gateway.wire.crooked import REQUEST_HEADS, RESPONSE_HEADS, only_head
from tests.gateway.wire.depth import looks
from tests.gateway.wire.differences import (
    ACCEPT,
    H11,
    LLHTTP,
    READ_OTHERWISE,
    REFUSE,
    REQUESTS,
    RESPONSES,
    Difference,
    row_for,
    shown,
)
from tests.gateway.wire.references import (
    Fields,
    SeenHead,
    h11_request,
    h11_response,
    llhttp_request,
    llhttp_response,
)
from tests.gateway.wire.test_heads import read, read_response

Reader = Callable[[bytes], SeenHead | None]

READS_REQUESTS: Final[dict[str, Reader]] = {LLHTTP: llhttp_request, H11: h11_request}
READS_RESPONSES: Final[dict[str, Reader]] = {LLHTTP: llhttp_response, H11: h11_response}

FRAMING: Final = {b"content-length", b"transfer-encoding"}
# Hop-by-hop whatever Connection says (RFC 9110 7.6.1, 7.8).
HOP_BY_HOP: Final = {
    *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
    b"http2-settings",
}
# What the gateway says itself, or keeps to itself.
REPLACED: Final = {
    *(b"host", b"expect", b"forwarded", b"x-forwarded-for", b"x-forwarded-proto"),
    *(b"x-forwarded-host", b"x-real-ip", b"proxy-authorization", b"x-request-id", b"x-model"),
    *(b"x-model-version", b"x-sluicegate-refused", b"x-sluicegate-error"),
}
REPLACED_BACK: Final = {
    *(b"proxy-authenticate", b"x-request-id", b"x-model-version", b"x-instance-id"),
    *(b"x-sluicegate-refused", b"x-sluicegate-error"),
}
# Passed on, but with a meaning here: a twin with underscores would be it to a CGI-like server.
READ: Final = {b"content-encoding", b"x-session-id", b"traceparent"}
READ_BACK: Final = {b"content-encoding", b"content-type", b"date"}
# Connection cannot name these away: they frame, route, or are about this very message.
STAYS: Final = {b"content-type", b"date", b"host", b"via"} | FRAMING


def onward(fields: Fields, replaced: set[bytes], meant: set[bytes]) -> list[tuple[bytes, bytes]]:
    """The fields that a proxy passes on, in order."""
    gone = HOP_BY_HOP | FRAMING | replaced
    listed = b",".join(value for name, value in fields if name == b"connection").lower()
    named = {option.strip(b" \t") for option in listed.split(b",")} - STAYS
    return [
        (name, value)
        for name, value in fields
        if name not in gone
        and name not in named
        and not (b"_" in name and name.replace(b"_", b"-") in gone | meant)
    ]


def origin(target: bytes) -> tuple[bytes, bytes]:
    """Path and authority of a target (RFC 9112 3.2.1, 3.2.2)."""
    scheme, _, rest = target.partition(b"://")
    if target.startswith(b"/") or scheme.lower() not in (b"http", b"https"):
        return target, b""
    ends = min([rest.find(mark) for mark in (b"/", b"?") if mark in rest], default=len(rest))
    path = rest[ends:]
    return (path if path.startswith(b"/") else b"/" + path), rest[:ends]


class Meaning(NamedTuple):
    """What a proxy takes from a head. `start`: method, path and host, or the status."""

    start: tuple[bytes, ...]
    length: int
    chunked: bool
    kept: list[tuple[bytes, bytes]]
    keep_alive: bool | None


def pairs(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    split = (line.partition(b":") for line in lines)
    return [(name.lower(), value.strip(b" \t")) for name, _, value in split]


def our_request(head: bytes) -> Meaning | None:
    try:
        mine = read(head)
    except GatewayError:
        return None
    start = mine.start
    line = (start.method, start.target, mine.host, b"%d" % start.minor)
    return Meaning(line, mine.length, mine.chunked, pairs(mine.kept), mine.keep_alive)


def our_response(head: bytes) -> Meaning | None:
    try:
        mine = read_response(head)
    except GatewayError:
        return None
    assert mine.line.startswith(b"HTTP/1.1 %d " % mine.status)  # our own version, always
    return Meaning(
        (b"%d" % mine.status,), mine.length, mine.chunked, pairs(mine.kept), mine.keep_alive
    )


def framing(fields: Fields) -> tuple[int, bool]:
    lengths = [value for name, value in fields if name == b"content-length"]
    coded = any(name == b"transfer-encoding" for name, _ in fields)
    return int(lengths[0]) if lengths else -1, coded


def their_request(seen: SeenHead) -> Meaning:
    method, target = seen.start
    path, authority = origin(target)
    hosts = [value for name, value in seen.fields if name == b"host"]
    line = (method, path, authority or (hosts[-1] if hosts else b""), b"%d" % seen.minor)
    kept = onward(seen.fields, REPLACED, READ)
    return Meaning(line, *framing(seen.fields), kept, seen.keep_alive)


def their_response(seen: SeenHead) -> Meaning:
    length, coded = framing(seen.fields)
    bodyless = seen.start[0][:1] == b"1" or seen.start[0] in (b"204", b"304")
    # A response that runs to its close is not kept either, but that is judged with its body.
    keep_alive = seen.keep_alive if bodyless or coded or length >= 0 else None
    kept = onward(seen.fields, REPLACED_BACK, READ_BACK)
    return Meaning(seen.start, length, coded, kept, keep_alive)


def disagreement(mine: Meaning | None, theirs: Meaning | None) -> str:
    """What we do that they do not; "" where all is alike."""
    if mine is None or theirs is None:
        return "" if mine is theirs else REFUSE if mine is None else ACCEPT
    if theirs.keep_alive is None:
        mine = mine._replace(keep_alive=None)
    return "" if mine == theirs else READ_OTHERWISE


def explain(
    head: bytes,
    rows: tuple[Difference, ...],
    reference: str,
    mine: Callable[[bytes], Meaning | None],
    theirs: Callable[[bytes], Meaning | None],
) -> list[str]:
    """The rows that it takes until both read the head alike."""
    taken: list[str] = []
    while we := disagreement(mine(head), theirs(head)):
        row = row_for(rows, reference, we, head)
        assert row is not None, f"we {we} this, and no row says why: {head!r}"
        assert len(taken) < len(rows)
        head = only_head(row.repair(head))
        taken.append(row.name)
    return taken


def reads_request(reference: str) -> Callable[[bytes], Meaning | None]:
    def reads(head: bytes) -> Meaning | None:
        seen = READS_REQUESTS[reference](head + b"\r\n\r\n")
        return None if seen is None else their_request(seen)

    return reads


def reads_response(reference: str) -> Callable[[bytes], Meaning | None]:
    def reads(head: bytes) -> Meaning | None:
        seen = READS_RESPONSES[reference](head + b"\r\n\r\n")
        return None if seen is None else their_response(seen)

    return reads


@pytest.mark.parametrize("reference", READS_REQUESTS)
@looks(3)
@given(head=REQUEST_HEADS)
def test_a_request_is_read_alike_or_the_difference_is_known(reference: str, head: bytes) -> None:
    explain(head, REQUESTS, reference, our_request, reads_request(reference))


@pytest.mark.parametrize("reference", READS_RESPONSES)
@looks(3)
@given(head=RESPONSE_HEADS)
def test_a_response_is_read_alike_or_the_difference_is_known(reference: str, head: bytes) -> None:
    explain(head, RESPONSES, reference, our_response, reads_response(reference))


@shown(REQUESTS)
def test_each_known_difference_of_requests_is_one(row: Difference, reference: str) -> None:
    reads = reads_request(reference)
    assert disagreement(our_request(row.example), reads(row.example)) == row.we
    assert explain(row.example, REQUESTS, reference, our_request, reads) == [row.name]


@shown(RESPONSES)
def test_each_known_difference_of_responses_is_one(row: Difference, reference: str) -> None:
    reads = reads_response(reference)
    assert disagreement(our_response(row.example), reads(row.example)) == row.we
    assert explain(row.example, RESPONSES, reference, our_response, reads) == [row.name]
