"""What a header line means, and what is remembered of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadFraming
from gateway.wire import lines
from gateway.wire.lines import (
    CHUNKED,
    CONNECTION,
    DROP,
    LENGTH,
    MEMO_LINES,
    NAMES_FIELDS,
    PASS,
    REQUEST_NAMES,
    RESPONSE_NAMES,
    SAYS_CLOSE,
    SAYS_KEEP,
    LineMemo,
    without_named,
)

MEANINGS = {
    b"accept: */*": PASS,
    b"X-Own:": PASS,
    b"x-latin: caf\xe9": PASS,
    b"Keep-Alive: timeout=5": DROP,
    b"TE: trailers": DROP,
    b"Upgrade: h2c": DROP,
    b"HTTP2-Settings: AAM": DROP,
    b"Forwarded: for=1": DROP,
    b"X-Forwarded-Proto: https": DROP,
    b"X_Forwarded_For: 1.2.3.4": DROP,
    b"Transfer_Encoding: chunked": DROP,
    b"my_field: 1": PASS,
    b"content-length:  42 ": LENGTH + 42,
    b"Transfer-Encoding: Chunked": CHUNKED,
    b"host: [::1]:80": lines.HOST_FIELD,
    b"host:": lines.HOST_FIELD,
    b"expect: 100-Continue": lines.CONTINUE,
    b"expect: 100-continue, 100-continue": lines.EXPECT_OTHER,
    b"Connection: close": CONNECTION + SAYS_CLOSE,
    b"Connection: Keep-Alive, X-Hop": CONNECTION + SAYS_KEEP + NAMES_FIELDS,
    b"Connection: content-length": CONNECTION,
    b"content-encoding: gzip": lines.ENCODED,
    b"content-encoding: identity": PASS,
}

REFUSED = {
    b"content-length: +5": "bad_framing",
    b"content-length: 0_5": "bad_framing",
    b"content-length:": "bad_framing",
    b"content-length: 5, 5": "bad_framing",
    b"content-length: " + b"9" * 16: "bad_framing",
    b"content-length: \xd9\xa5": "bad_framing",
    b"transfer-encoding: gzip, chunked": "coding_unknown",
    b"transfer-encoding: chunked, gzip": "bad_framing",
    b"transfer-encoding: chunked, chunked": "bad_framing",
    b"transfer-encoding:": "bad_framing",
    b"transfer-encoding : chunked": "bad_request",
    b" folded": "bad_request",
    b": no name": "bad_request",
    b"no colon": "bad_request",
    b"x[0]: 1": "bad_request",
    b"x: a\x00b": "bad_request",
    b"x: a\rb": "bad_request",
    b"host: a b": "bad_request",
    b"host: u@evil.test": "bad_request",
    b"host: a/../b": "bad_request",
}


@pytest.mark.parametrize("line", MEANINGS)
def test_a_line_means_what_the_table_says(line: bytes) -> None:
    memo = LineMemo(REQUEST_NAMES)
    assert memo.meaning(line) == MEANINGS[line]
    assert memo.meaning(line) == MEANINGS[line]  # from the memo now


@pytest.mark.parametrize("line", REFUSED)
def test_a_bad_line_is_refused_with_its_code(line: bytes) -> None:
    with pytest.raises(BadFraming) as caught:
        LineMemo(REQUEST_NAMES).meaning(line)
    assert caught.value.refusal.code == REFUSED[line]


@pytest.mark.parametrize(
    "line",
    [b"authorization: Bearer s", b"cookie: a=b", b"api-key: s", b"x-auth-token: s"],
)
def test_a_line_that_may_carry_a_credential_is_not_remembered(line: bytes) -> None:
    memo = LineMemo(REQUEST_NAMES)
    assert memo.meaning(line) == PASS
    assert len(memo) == 0


@given(st.integers(1, 3))
def test_the_memo_is_bounded_whatever_clients_send(times: int) -> None:
    memo = LineMemo(RESPONSE_NAMES)
    for number in range(MEMO_LINES + times):
        memo.meaning(b"x-unique: %d" % number)
    assert len(memo) <= MEMO_LINES


@given(st.binary(max_size=40))
def test_the_memo_changes_no_answer(line: bytes) -> None:
    memo = LineMemo(REQUEST_NAMES)

    def answer() -> object:
        try:
            return memo.meaning(line)
        except BadFraming as exc:
            return exc.refusal.code

    assert answer() == answer()


def test_connection_cannot_remove_what_frames_or_routes() -> None:
    kept = [b"Host: a", b"Content-Length: 5", b"X-Hop: 1", b"via: 1.1 x"]
    named = [b"host", b"content-length", b"x-hop", b"via"]
    assert without_named(kept, named) == [b"Host: a", b"Content-Length: 5", b"via: 1.1 x"]
