"""Heads: hand-made rows, and whole kinds of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.wire.heads import FIELDS_MAX, RequestHead, ResponseHead
from gateway.wire.lines import REQUEST_NAMES, RESPONSE_NAMES, LineMemo
from tests.gateway.wire.crooked import REQUEST_HEADS, RESPONSE_HEADS
from tests.gateway.wire.depth import looks


def read(head: bytes) -> RequestHead:
    request = RequestHead(LineMemo(REQUEST_NAMES), {})
    request.read(head)
    return request


def read_response(head: bytes) -> ResponseHead:
    response = ResponseHead(LineMemo(RESPONSE_NAMES), {})
    response.read(head)
    return response


def code_of(head: bytes) -> str:
    with pytest.raises(GatewayError) as caught:
        read(head)
    return caught.value.refusal.code


def test_what_a_proxy_must_know_of_a_request_is_read() -> None:
    head = read(
        b"POST /v1/x?q=1 HTTP/1.1\r\nHost: g\r\nContent-Length: 5\r\nX-Model: m\r\nX-A: 1\r\n"
        b"X-Model-Version: 2\r\nX-Session-Id: s\r\nX-Request-Id: r\r\nX-Forwarded-For: 9.9.9.9\r\n"
        b"traceparent: t\r\nExpect: 100-continue\r\nConnection: close, X-Hop\r\nX-Hop: 1"
    )
    assert (head.start.method, head.start.target, head.start.path) == (
        b"POST",
        b"/v1/x?q=1",
        b"/v1/x",
    )
    assert (head.host, head.length, head.model, head.version) == (b"g", 5, b"m", b"2")
    assert (head.session, head.request_id, head.forwarded_for) == (b"s", b"r", b"9.9.9.9")
    assert head.traced
    assert head.expects
    assert not head.keep_alive
    assert head.kept == [b"X-A: 1", b"X-Session-Id: s", b"traceparent: t"]


def test_nothing_of_a_request_is_left_for_the_next() -> None:
    head = RequestHead(LineMemo(REQUEST_NAMES), {})
    head.read(b"POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\nX-Model: m\r\nX: 1")
    head.read(b"GET / HTTP/1.1\r\nHost: g")
    assert (head.chunked, head.length, head.model, head.kept) == (False, -1, b"", [])


def test_a_refused_or_empty_head_is_never_taken_for_the_one_before() -> None:
    head = RequestHead(LineMemo(REQUEST_NAMES), {})
    for _ in range(2):
        for bad in (b"", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b"):
            with pytest.raises(GatewayError):
                head.read(bad)
    head.read(b"GET / HTTP/1.1\r\nHost: a\r\nX: 1")
    head.read(b"GET / HTTP/1.1\r\nHost: a\r\nX: 1")
    assert (head.host, head.kept) == (b"a", [b"X: 1"])
    head.let_go()
    assert head.kept == []
    head.read(b"GET / HTTP/1.1\r\nHost: a\r\nX: 1")
    assert (head.host, head.kept) == (b"a", [b"X: 1"])
    head.forget()
    head.read(b"GET / HTTP/1.1\r\nHost: a\r\nX: 1")
    assert (head.host, head.kept, head.keep_alive) == (b"a", [b"X: 1"], True)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"", "bad_request"),
        (b"GET /\r\nHost: a", "bad_request"),
        (b"GET / HTTP/2.0\r\nHost: a", "version_refused"),
        (b"GET / HTTP/1.10\r\nHost: a", "version_refused"),
        (b"GET / http/1.1\r\nHost: a", "bad_request"),
        (b"GET /a b HTTP/1.1\r\nHost: a", "bad_request"),
        (b"GET /a#b HTTP/1.1\r\nHost: a", "bad_request"),
        (b"GET /a\tb HTTP/1.1\r\nHost: a", "bad_request"),
        (b"GET a HTTP/1.1\r\nHost: a", "bad_request"),
        (b"GET ftp://a/ HTTP/1.1\r\nHost: a", "bad_request"),
        (b"GET http://u@a/ HTTP/1.1\r\nHost: a", "bad_request"),
        (b"GET / HTTP/1.1", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a", "bad_request"),
        (b"GET / HTTP/1.1\r\n X: 1\r\nHost: a", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n y", "bad_request"),
        (b"GET / HTTP/1.1\nHost: a", "bad_request"),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
            "bad_framing",
        ),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1", "bad_framing"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked", "bad_framing"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nExpect: teapot", "expectation_failed"),
    ],
)
def test_a_bad_head_is_refused_with_its_code(head: bytes, code: str) -> None:
    assert code_of(head) == code


def test_too_many_fields_are_too_large_a_head() -> None:
    many = b"".join(b"\r\nX: %d" % n for n in range(FIELDS_MAX))
    assert code_of(b"GET / HTTP/1.1\r\nHost: a" + many) == "head_too_large"


def test_an_absolute_target_replaces_host_and_goes_on_in_origin_form() -> None:
    head = read(b"GET HTTP://b:81?q HTTP/1.1\r\nHost: a")
    assert (head.host, head.start.onward) == (b"b:81", b"GET /?q HTTP/1.1")


def test_http_1_0_closes_unless_it_asks_to_stay() -> None:
    assert not read(b"GET / HTTP/1.0").keep_alive
    assert read(b"GET / HTTP/1.0\r\nConnection: keep-alive").keep_alive


def test_forwarded_for_lines_become_one_in_order() -> None:
    head = read(b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1\r\nX-Forwarded-For: 2, 3")
    assert head.forwarded_for == b"1, 2, 3"


def test_a_response_keeps_its_end_to_end_lines_only() -> None:
    head = read_response(
        b"HTTP/1.0 503 Busy here\r\nServer: s\r\nX-Sluicegate-Refused: full\r\nDate: d\r\n"
        b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-Instance-Id: fake\r\nContent-Length: 0\r\n"
        b"Content-Type: text/event-stream; charset=utf-8\r\nX-Sluicegate-Error: fake"
    )
    assert (head.status, head.line) == (503, b"HTTP/1.1 503 Busy here")
    assert head.kept == [
        b"Server: s",
        b"Date: d",
        b"Content-Type: text/event-stream; charset=utf-8",
    ]
    assert (head.refused, head.length, head.events, head.dated) == (b"full", 0, True, True)
    assert head.keep_alive


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"hello",
        b"HTTP/1.1 2OO OK",
        b"HTTP/2 200",
        b"HTTP/1.1 600 No",
        b"HTTP/1.1 200 a\x00b",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b",
        b"HTTP/1.1 200 OK\r\nX: a\rb",
    ],
)
def test_a_bad_response_head_is_refused(head: bytes) -> None:
    with pytest.raises(GatewayError):
        read_response(head)


# --- kinds, not single inputs ---

SPELLINGS = st.sampled_from(
    [b"Content-Length", b"content-length", b"CONTENT-LENGTH", b"Content-length"]
)
NUMBERS = st.one_of(
    st.text("0159٠٥５²½Ⅷ", max_size=20).map(str.encode),
    st.binary(max_size=6),
    st.from_regex(rb"[-+ 0-9_,;x.\t]{0,20}", fullmatch=True),
    st.integers(0, 10**17).map(lambda number: b"%d" % number),
)


def both_readings(line: bytes) -> list[RequestHead | ResponseHead | str]:
    """What the line makes of a request and of a response; or the codes of their refusals."""
    readings: list[RequestHead | ResponseHead | str] = []
    for reader, start in (
        (read, b"POST / HTTP/1.1\r\nHost: g"),
        (read_response, b"HTTP/1.1 200 OK"),
    ):
        try:
            readings.append(reader(start + b"\r\n" + line))
        except GatewayError as exc:
            readings.append(exc.refusal.code)
    return readings


@given(SPELLINGS, NUMBERS)
@example(b"Content-Length", b"9" * 15)
@example(b"Content-Length", b"9" * 16)
def test_a_length_is_ascii_digits_and_bounded_or_the_message_is_refused(
    name: bytes, value: bytes
) -> None:
    """`int` takes signs, underscores, blanks and the digits of other scripts (RFC 9110 8.6)."""
    digits = value.strip(b" \t")
    right = 1 <= len(digits) <= 15 and all(0x30 <= byte <= 0x39 for byte in digits)
    for reading in both_readings(name + b": " + value):
        if isinstance(reading, str):
            assert not right
        else:
            assert right
            assert reading.length == int(digits)


MEMBERS = st.sampled_from(
    b'chunked|CHUNKED|gzip|identity||chunked;q=1|"chunked"|xchunked|\x0bchunked|chunked\x00'.split(
        b"|"
    )
)


@given(st.lists(MEMBERS, min_size=1, max_size=3), st.sampled_from([b",", b", ", b" ,\t"]))
def test_no_coding_but_chunked_alone_is_ever_taken(members: list[bytes], comma: bytes) -> None:
    """One hop that strips a coding, or counts `chunked,` for nothing, frames another way than the
    next one (RFC 9112 6.1, 6.3)."""
    value = comma.join(members)
    right = value.strip(b" \t").lower() == b"chunked"
    for reading in both_readings(b"Transfer-Encoding: " + value):
        if isinstance(reading, str):
            assert not right
        else:
            assert right
            assert reading.chunked


OPTION_LISTS = st.lists(
    st.lists(
        st.sampled_from([b"close", b"Close", b"keep-alive", b"Keep-Alive", b"x-hop", b"upgrade"]),
        max_size=3,
    ).map(b", ".join),
    max_size=3,
)


@given(st.sampled_from([b"0", b"1"]), OPTION_LISTS)
@example(b"0", [b"close", b"keep-alive"])
def test_close_ends_a_connection_wherever_it_stands(minor: bytes, lists: list[bytes]) -> None:
    """Several Connection fields are one list, where `close` counts before all (RFC 9112 9.3)."""
    fields = b"".join(b"\r\nConnection: " + options for options in lists)
    options = b",".join(lists).lower().replace(b" ", b"").split(b",")
    stays = b"close" not in options and (minor == b"1" or b"keep-alive" in options)
    assert read(b"GET / HTTP/1." + minor + b"\r\nHost: g" + fields).keep_alive == stays
    assert read_response(b"HTTP/1." + minor + b" 200 OK" + fields).keep_alive == stays


VERSIONS = st.one_of(
    st.integers(0, 19).map(lambda number: b"HTTP/%d.%d" % divmod(number, 10)),
    st.from_regex(rb"(HTTP|http|HTTPS|HTT)?/?[0-9]{0,3}[.,]?[0-9]{0,3}", fullmatch=True),
)


@looks(2)
@given(VERSIONS)
@example(b"HTTP/1.2")
def test_only_two_versions_are_spoken_and_ours_is_said(version: bytes) -> None:
    """Whatever a side says of itself, the other is told HTTP/1.1 (RFC 9110 2.5, RFC 9112 2.3)."""
    request, response = b"GET /p " + version + b"\r\nHost: g", version + b" 200 OK"
    if version in (b"HTTP/1.0", b"HTTP/1.1"):
        assert read(request).start.onward == b"GET /p HTTP/1.1"
        assert read_response(response).line == b"HTTP/1.1 200 OK"
        return
    for reader, head in ((read, request), (read_response, response)):
        with pytest.raises(GatewayError):
            reader(head)


@looks(1.5)
@given(
    st.lists(REQUEST_HEADS, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=2, max_size=6),
)
def test_a_reader_that_has_read_others_reads_like_a_new_one(
    heads: list[bytes], order: list[int]
) -> None:
    """Memory of lines and of heads changes no answer, and nothing is left for the next one."""
    used = RequestHead(LineMemo(REQUEST_NAMES), {})
    for place in order:
        head = heads[place % len(heads)]
        assert told(used, head) == told(RequestHead(LineMemo(REQUEST_NAMES), {}), head)


@looks(1.5)
@given(
    st.lists(RESPONSE_HEADS, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=2, max_size=6),
)
def test_a_reader_of_responses_forgets_too(heads: list[bytes], order: list[int]) -> None:
    used = ResponseHead(LineMemo(RESPONSE_NAMES), {})
    for place in order:
        head = heads[place % len(heads)]
        assert told(used, head) == told(ResponseHead(LineMemo(RESPONSE_NAMES), {}), head)


def told(reader: RequestHead | ResponseHead, head: bytes) -> object:
    """All that can be asked of a head that was read; or the code of its refusal."""
    try:
        reader.read(head)
    except GatewayError as exc:
        return exc.refusal.code
    public = {name: getattr(reader, name) for name in dir(reader) if not name.startswith("_")}
    facts = {name: it for name, it in public.items() if name != "start" and not callable(it)}
    if isinstance(reader, RequestHead):
        start = reader.start
        facts["start"] = (start.method, start.target, start.path, start.minor, start.onward)
    return facts


@pytest.mark.parametrize("named", [b"traceparent", b"close, TraceParent", b"x-a,traceparent"])
def test_a_trace_that_ends_with_its_hop_is_none(named: bytes) -> None:
    """What Connection names goes no further (RFC 9110 7.6.1): then we begin the trace."""
    head = read(b"GET / HTTP/1.1\r\nhost: g\r\ntraceparent: t\r\nconnection: " + named)
    assert not head.traced
    assert head.kept == []


@pytest.mark.parametrize("status", [b"100 Continue", b"103 Hints"])
def test_an_interim_response_has_no_framing_to_contradict_itself(status: bytes) -> None:
    """Nothing follows its head, whatever it says (RFC 9112 6.3)."""
    framings = b"\r\nlink: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked"
    assert read_response(b"HTTP/1.1 " + status + framings).kept == [b"link: x"]
    with pytest.raises(GatewayError):
        read_response(b"HTTP/1.1 200 OK" + framings)
