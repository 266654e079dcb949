"""Heads as we send them: to an instance, to a client, and the answers that are our own.

Floor 1, pure.   Flow: parse -> match -> pick -> [compose] -> relay
Never both Content-Length and Transfer-Encoding, never a hop-by-hop field of the other side, always
our own HTTP version. Lines that are the same for every request are made once per connection.
"""

from email.utils import formatdate
from typing import Final

from gateway.errors import GatewayError, error_body
from gateway.wire.heads import RequestHead, ResponseHead

PSEUDONYM: Final = b"sluicegate"  # in Via, Server and Proxy-Status
VIA: Final = (b"via: 1.0 " + PSEUDONYM, b"via: 1.1 " + PSEUDONYM)  # by the client's minor version
SERVER: Final = b"server: " + PSEUDONYM
GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE: Final = b"connection: close"
KEEP: Final = b"connection: keep-alive"  # HTTP/1.0 clients need to be told
CHUNKED_LINE: Final = b"transfer-encoding: chunked"
ALLOW: Final = b"allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


def framing_line(head: RequestHead, held_bytes: int) -> bytes:
    """The one framing line of a request on its way to an instance; b"" for no body at all.

    `held_bytes`: the length of a body that is here whole, -1 for one that streams.
    """
    if held_bytes >= 0:
        return b"content-length: %d" % held_bytes
    if head.chunked:
        return CHUNKED_LINE
    return b"content-length: %d" % head.length if head.length >= 0 else b""


def request_head(
    head: RequestHead, instance: bytes, peer: bytes, framing: bytes, ids: bytes
) -> bytes:
    """The head of a request as an instance gets it.

    `instance`: its address, the Host of a client that sent none (HTTP/1.0); `peer`: the client's
    address; `ids`: the x-request-id line, and the traceparent line where we start the trace.
    """
    start = head.start
    host = head.host
    forwarded = b"%s, %s" % (head.forwarded_for, peer) if head.forwarded_for else peer
    lines = [
        start.onward,
        b"host: " + (host or instance),
        *head.kept,
        b"x-forwarded-for: " + forwarded,
        b"x-forwarded-proto: http",
        ids,
        VIA[start.minor],
    ]
    if host:
        lines.append(b"x-forwarded-host: " + host)
    if framing:
        lines.append(framing)
    lines += (b"", b"")
    return b"\r\n".join(lines)


def response_head(head: ResponseHead, framing: bytes, ours: bytes, date: bytes) -> bytes:
    """The head of a response as a client gets it; `ours`: lines that name request and instance."""
    lines = [head.line, *head.kept, ours]
    if not head.dated:
        lines.append(date)  # RFC 9110 6.6.1
    if framing:
        lines.append(framing)
    lines += (b"", b"")
    return b"\r\n".join(lines)


def interim_head(head: ResponseHead) -> bytes:
    """A 1xx on its way to a client: no framing, whatever it said (RFC 9112 6.3)."""
    return b"\r\n".join([head.line, *head.kept, b"", b""])


def trace_line(trace: bytes, number: bytes) -> bytes:
    """A new trace of which this request is the first span.

    Sampled (01): what an instance without a parent would have done by OpenTelemetry's default.
    Source: W3C Trace Context, section 3.2.
    """
    return b"traceparent: 00-%s%s-%s-01" % (trace, number, number)


def refusal(
    error: GatewayError, request_id: bytes, date: bytes, connection: bytes, bodyless: bool
) -> bytes:
    """A whole response of our own that tells a client why not."""
    row = error.refusal
    body = error_body(error, request_id.decode("latin-1"))
    lines = [
        b"HTTP/1.1 %d %s" % (row.status, row.reason.encode()),
        date,
        SERVER,
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"x-request-id: " + request_id,
        b"x-sluicegate-error: " + row.code.encode(),
    ]
    if row.proxy_error:
        lines.append(b"proxy-status: %s; error=%s" % (PSEUDONYM, row.proxy_error.encode()))
    if error.retry_after_s:
        lines.append(b"retry-after: %d" % error.retry_after_s)
    if row.status == 405:
        lines.append(ALLOW)
    if connection:
        lines.append(connection)
    lines += (b"", b"" if bodyless else body)
    return b"\r\n".join(lines)


def own_answer(
    body: bytes, request_id: bytes, date: bytes, connection: bytes, bodyless: bool
) -> bytes:
    """A whole 200 of our own with a JSON body."""
    lines = [
        b"HTTP/1.1 200 OK",
        date,
        SERVER,
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"x-request-id: " + request_id,
    ]
    if connection:
        lines.append(connection)
    lines += (b"", b"" if bodyless else body)
    return b"\r\n".join(lines)


def date_line(wall_s: float) -> bytes:
    """The Date field for this second."""
    return b"date: " + formatdate(wall_s, usegmt=True).encode()
