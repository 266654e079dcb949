"""Where a response body ends.

Floor 1, pure.   Source: RFC 9112 section 6.3, steps numbered as there.
"""

from typing import Final

from gateway.wire.heads import ResponseHead

NOTHING: Final = 0
COUNTED: Final = 1
CHUNKED: Final = 2
UNTIL_CLOSE: Final = 3


def response_framing(head: ResponseHead, asked_head: bool) -> int:
    """How to tell that the body is complete; contradictions were refused with the head."""
    # 1. These never have a body, whatever their fields say.
    if asked_head or head.status < 200 or head.status == 204 or head.status == 304:
        return NOTHING
    # 2. CONNECT is refused before it gets here.
    # 3.-5. Both at once, unknown codings and unusable lengths never leave the parser.
    if head.chunked:
        return CHUNKED
    # 6.
    if head.length >= 0:
        return COUNTED if head.length else NOTHING
    # 8. Nothing said: the body runs to the close.
    return UNTIL_CLOSE


def told_framing(head: ResponseHead, framing: int) -> bytes:
    """The framing line that a client of HTTP/1.1 is given, b"" for none.

    An answer to HEAD and a 304 say what the body would be; a 204 says nothing (RFC 9110 8.6).
    """
    if framing == NOTHING and (head.status == 204 or head.chunked):
        return b""
    return head.framing
