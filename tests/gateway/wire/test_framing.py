"""Where a response body ends, row by row of RFC 9112 section 6.3."""

import pytest

from gateway.wire.framing import (
    CHUNKED,
    COUNTED,
    NOTHING,
    UNTIL_CLOSE,
    response_framing,
    told_length,
)
from tests.gateway.wire.test_heads import read_response

LENGTH = b"\r\ncontent-length: 7"
CODED = b"\r\ntransfer-encoding: chunked"

ROWS = [
    (b"200 OK" + LENGTH, True, NOTHING, 7),
    (b"200 OK" + CODED, True, NOTHING, -1),
    (b"103 Hints" + LENGTH, False, NOTHING, 7),
    (b"204 None" + LENGTH, False, NOTHING, -1),
    (b"304 Same" + LENGTH, False, NOTHING, 7),
    (b"304 Same" + CODED, False, NOTHING, -1),
    (b"200 OK" + CODED, False, CHUNKED, -1),
    (b"200 OK" + LENGTH, False, COUNTED, 7),
    (b"200 OK\r\ncontent-length: 0", False, NOTHING, 0),
    (b"200 OK", False, UNTIL_CLOSE, -1),
]


@pytest.mark.parametrize(("head", "asked_head", "framing", "told"), ROWS)
def test_a_body_ends_where_the_rfc_says(
    head: bytes, asked_head: bool, framing: int, told: int
) -> None:
    response = read_response(b"HTTP/1.1 " + head)
    assert response_framing(response, asked_head) == framing
    assert told_length(response, framing) == told
