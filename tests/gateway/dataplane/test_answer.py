"""What a client is told of how an answer ends, and how the answer counts."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.answer import Answer
from gateway.records import Outcome
from gateway.wire.framing import UNTIL_CLOSE, response_framing
from gateway.wire.heads import RequestHead, ResponseHead
from gateway.wire.lines import REQUEST_NAMES, RESPONSE_NAMES, LineMemo

OURS: Final = b"x-request-id: 7"
DATE: Final = b"date: today"
COUNTED: Final = b"content-length: 4"
CHUNKED: Final = b"transfer-encoding: chunked"
CLOSE: Final = b"connection: close"
KEEP: Final = b"connection: keep-alive"
STREAM: Final = b"content-type: text/event-stream"
ENDS: Final = (b"content-length", b"transfer-encoding", b"connection")
FRAMINGS: Final = st.sampled_from([b"", COUNTED, CHUNKED, b"content-length: 0"])
STATUSES: Final = st.sampled_from([200, 201, 204, 304, 404, 500, 503])


def asked(method: bytes, minor: int) -> RequestHead:
    head = RequestHead(LineMemo(REQUEST_NAMES), {})
    head.read(b"%s /x HTTP/1.%d\r\nhost: g" % (method, minor))
    return head


def responded(status: int, *lines: bytes) -> ResponseHead:
    head = ResponseHead(LineMemo(RESPONSE_NAMES), {})
    head.read(b"\r\n".join([b"HTTP/1.1 %d -" % status, *(line for line in lines if line)]))
    return head


def begun(
    head: ResponseHead, method: bytes = b"GET", minor: int = 1, may_keep: bool = True
) -> tuple[Answer, set[bytes]]:
    """An answer, and those lines of its head that say how it ends."""
    answer = Answer()
    framing = response_framing(head, method == b"HEAD")
    answer.begin(head, framing, asked(method, minor), may_keep, OURS, DATE)
    lines = b"\r\n".join(answer.out).split(b"\r\n")  # some come together
    said = {line for line in lines if line.split(b":")[0] in ENDS}
    return answer, said


@pytest.mark.parametrize(
    ("framing", "minor", "may_keep", "lines"),
    [
        (COUNTED, 1, True, {COUNTED}),
        (COUNTED, 1, False, {COUNTED, CLOSE}),
        (COUNTED, 0, True, {COUNTED, KEEP}),
        (COUNTED, 0, False, {COUNTED, CLOSE}),
        (CHUNKED, 1, True, {CHUNKED}),
        (CHUNKED, 1, False, {CHUNKED, CLOSE}),
        (CHUNKED, 0, True, {CLOSE}),
        (CHUNKED, 0, False, {CLOSE}),
        (b"", 1, True, {CLOSE}),
        (b"", 1, False, {CLOSE}),
        (b"", 0, True, {CLOSE}),
        (b"", 0, False, {CLOSE}),
    ],
)
def test_a_client_is_told_how_the_body_ends_and_whether_the_connection_stays(
    framing: bytes, minor: int, may_keep: bool, lines: set[bytes]
) -> None:
    answer, said = begun(responded(200, framing), minor=minor, may_keep=may_keep)
    assert said == lines
    assert answer.keep == (CLOSE not in lines)
    assert answer.dechunks == (framing == CHUNKED and minor == 0)


@pytest.mark.parametrize("minor", [0, 1])
@pytest.mark.parametrize(
    ("method", "status", "framing", "lines"),
    [
        (b"HEAD", 200, COUNTED, {COUNTED}),
        (b"HEAD", 200, CHUNKED, set()),
        (b"HEAD", 200, b"", set()),
        (b"GET", 304, COUNTED, {COUNTED}),
        (b"GET", 304, b"", set()),
        (b"GET", 204, COUNTED, set()),
        (b"GET", 204, b"", set()),
        (b"GET", 200, b"content-length: 0", {b"content-length: 0"}),
    ],
)
def test_an_answer_without_a_body_keeps_the_connection_whatever_its_length_says(
    method: bytes, status: int, framing: bytes, lines: set[bytes], minor: int
) -> None:
    answer, said = begun(responded(status, framing), method, minor)
    assert said == (lines if minor else {*lines, KEEP})
    assert answer.keep
    assert not answer.dechunks
    assert not answer.hides_a_cut()


@given(
    st.sampled_from([b"GET", b"HEAD", b"POST"]),
    st.integers(0, 1),
    st.booleans(),
    STATUSES,
    FRAMINGS,
    st.booleans(),
)
def test_an_end_can_be_found_or_is_the_connection_s(
    method: bytes, minor: int, may_keep: bool, status: int, framing: bytes, dated: bool
) -> None:
    head = responded(status, framing, STREAM, b"date: then" if dated else b"")
    answer, said = begun(head, method, minor, may_keep)
    lengths = {line for line in said if line.startswith(b"content-length")}
    bodyless = method == b"HEAD" or status in (204, 304)
    assert not (lengths and CHUNKED in said)
    assert not (CHUNKED in said and minor == 0)
    assert (CLOSE in said) == (not answer.keep)
    assert (KEEP in said) == (answer.keep and minor == 0)
    if answer.keep:
        assert may_keep
        assert bodyless or lengths or CHUNKED in said
    assert answer.hides_a_cut() == (not bodyless and not lengths and CHUNKED not in said)
    dates = [line for line in answer.out if line.startswith(b"date")]
    assert dates == [b"date: then" if dated else DATE]


def test_head_and_first_bytes_are_one_piece_and_leave_the_next_answer_alone() -> None:
    """The head object keeps its lines, since most responses of a connection are alike."""
    head, request = responded(200, COUNTED, b"x-a: 1"), asked(b"GET", 1)
    answer = Answer()
    pieces = []
    for body in (b"1234", b"", b"5678"):
        answer.begin(head, response_framing(head, False), request, True, OURS, DATE)
        pieces.append(answer.behind_head(body))
        assert not answer.out
    lines = [b"HTTP/1.1 200 -", b"x-a: 1", DATE, COUNTED, OURS, b"", b""]
    assert pieces == [b"\r\n".join(lines) + body for body in (b"1234", b"", b"5678")]


# --- how it counts ---

SAID: Final = b'data: {"a":1}\n\n'
DONE: Final = b"data: [DONE]\n\n"
FAILED: Final = b'data: {"error": {"code": 5}}\n\n'


@pytest.mark.parametrize("generates", [False, True])
@pytest.mark.parametrize(
    ("status", "events", "content", "outcome", "generating"),
    [
        (200, False, b"x", Outcome.SERVED, Outcome.SERVED),
        (200, False, b"", Outcome.SERVED, Outcome.EMPTY),
        (204, False, b"", Outcome.SERVED, Outcome.EMPTY),
        (299, False, b"", Outcome.SERVED, Outcome.EMPTY),
        (304, False, b"", Outcome.SERVED, Outcome.SERVED),
        (404, False, b"", Outcome.SERVED, Outcome.SERVED),
        (499, False, b"x", Outcome.SERVED, Outcome.SERVED),
        (500, False, b"x", Outcome.INSTANCE_ERROR, Outcome.INSTANCE_ERROR),
        (599, True, SAID, Outcome.INSTANCE_ERROR, Outcome.INSTANCE_ERROR),
        (200, True, SAID + DONE, Outcome.SERVED, Outcome.SERVED),
        (200, True, DONE, Outcome.SERVED, Outcome.EMPTY),
        (200, True, b"", Outcome.SERVED, Outcome.EMPTY),
        (200, True, b": still here\n\n", Outcome.SERVED, Outcome.EMPTY),
        (200, True, SAID + FAILED, Outcome.INSTANCE_ERROR, Outcome.INSTANCE_ERROR),
        (200, True, FAILED.rstrip(), Outcome.INSTANCE_ERROR, Outcome.INSTANCE_ERROR),
        (200, False, FAILED, Outcome.SERVED, Outcome.SERVED),
        (400, True, FAILED, Outcome.SERVED, Outcome.SERVED),
    ],
)
def test_a_whole_answer_counts_by_its_status_and_what_it_carried(
    status: int,
    events: bool,
    content: bytes,
    outcome: Outcome,
    generating: Outcome,
    generates: bool,
) -> None:
    answer, _ = begun(responded(status, STREAM if events else b"", CHUNKED))
    if answer.scanner is not None:
        answer.scanner.feed(content)
    assert answer.judged(len(content), generates) == (generating if generates else outcome)


def test_what_the_last_answer_showed_is_not_held_against_the_next() -> None:
    answer = Answer()
    request = asked(b"GET", 1)
    for head, outcome in (
        (responded(200, STREAM, COUNTED), Outcome.INSTANCE_ERROR),
        (responded(200, COUNTED), Outcome.SERVED),
        (responded(200, STREAM, COUNTED), Outcome.SERVED),
        (responded(200, STREAM, b"content-encoding: gzip", COUNTED), Outcome.SERVED),
    ):
        answer.begin(head, response_framing(head, False), request, True, OURS, DATE)
        if answer.scanner is not None:
            answer.scanner.feed(FAILED if outcome is Outcome.INSTANCE_ERROR else SAID)
        assert answer.judged(4, True) == outcome
    assert answer.scanner is None  # what is compressed cannot be looked at


def test_an_answer_of_unknown_length_shows_a_cut_only_by_a_reset() -> None:
    for framing, minor, hides in (
        (COUNTED, 1, False),
        (CHUNKED, 1, False),
        (CHUNKED, 0, True),
        (b"", 1, True),
    ):
        head = responded(200, framing)
        assert begun(head, minor=minor)[0].hides_a_cut() == hides
        assert (response_framing(head, False) == UNTIL_CLOSE) == (framing == b"")
