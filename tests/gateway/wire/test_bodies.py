"""The reader of request bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.wire.bodies import BodyReader
from tests.gateway.wire.crooked import CUTS, cut
from tests.gateway.wire.test_heads import read


@given(st.binary(max_size=50), st.binary(max_size=9), CUTS)
def test_a_counted_body_takes_its_bytes_and_no_more(
    body: bytes, after: bytes, cuts: list[int]
) -> None:
    reader = BodyReader()
    reader.begin(read(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d" % len(body)), False, 99)
    taken = left = b""
    for piece in cut(body + after, cuts):
        used = 0 if reader.done else reader.feed(piece)
        taken += piece[:used]
        left += piece[used:]
    assert (taken, left, reader.done) == (body, after, True)


def test_a_request_without_framing_has_no_body() -> None:
    reader = BodyReader()
    reader.begin(read(b"GET / HTTP/1.1\r\nhost: a"), False, 0)
    assert reader.done


def test_collected_chunks_are_content_and_streamed_ones_are_raw() -> None:
    head = read(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked")
    raw = b"2\r\nhi\r\n0\r\nX: 1\r\n\r\n"
    reader = BodyReader()
    reader.begin(head, True, 2)
    assert (reader.feed(raw), reader.part, reader.size) == (len(raw), b"hi", 2)
    reader.begin(head, False, 2)
    assert reader.feed(raw) == len(raw)
    assert reader.part == b"2\r\nhi\r\n0\r\n\r\n"


def test_content_is_bounded_however_it_is_framed() -> None:
    reader = BodyReader()
    with pytest.raises(GatewayError):
        reader.begin(read(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3"), False, 2)
    reader.begin(read(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked"), False, 2)
    reader.feed(b"2\r\nhi\r\n")
    with pytest.raises(GatewayError) as caught:
        reader.feed(b"1\r\n")
    assert caught.value.refusal.code == "body_too_large"
