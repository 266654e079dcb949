"""Where a response body ends, row by row of RFC 9112 section 6.3."""

import pytest

from gateway.wire.framing import (
    CHUNKED,
    COUNTED,
    NOTHING,
    UNTIL_CLOSE,
    response_framing,
    told_framing,
)
from tests.gateway.wire.test_heads import read_response

LENGTH = b"\r\ncontent-length: 7"
CODED = b"\r\ntransfer-encoding: chunked"

SEVEN = b"content-length: 7"
CHUNKS = b"transfer-encoding: chunked"
ROWS = [
    (b"200 OK" + LENGTH, True, NOTHING, SEVEN),
    (b"200 OK" + CODED, True, NOTHING, b""),
    (b"103 Hints" + LENGTH, False, NOTHING, SEVEN),
    (b"204 None" + LENGTH, False, NOTHING, b""),
    (b"304 Same" + LENGTH, False, NOTHING, SEVEN),
    (b"304 Same" + CODED, False, NOTHING, b""),
    (b"200 OK" + CODED, False, CHUNKED, CHUNKS),
    (b"200 OK" + LENGTH, False, COUNTED, SEVEN),
    (b"200 OK\r\ncontent-length: 0", False, NOTHING, b"content-length: 0"),
    (b"200 OK", False, UNTIL_CLOSE, b""),
]


@pytest.mark.parametrize(("head", "asked_head", "framing", "told"), ROWS)
def test_a_body_ends_where_the_rfc_says(
    head: bytes, asked_head: bool, framing: int, told: bytes
) -> None:
    response = read_response(b"HTTP/1.1 " + head)
    assert response_framing(response, asked_head) == framing
    assert told_framing(response, framing) == told
