"""Heads as we send them: to an instance, to a client, and the answers that are our own.

Floor 1, pure.   Flow: parse -> match -> pick -> [compose] -> relay
Never both Content-Length and Transfer-Encoding, never a hop-by-hop field of the other side, always
our own HTTP version. Lines come as lists, to be joined once, with the body that is written behind.
"""

from email.utils import formatdate
from typing import Final

from gateway.errors import GatewayError, error_body
from gateway.wire.heads import RequestHead, RequestLine, ResponseHead

PSEUDONYM: Final = b"sluicegate"  # in Via, Server and Proxy-Status
VIA: Final = (b"via: 1.0 " + PSEUDONYM, b"via: 1.1 " + PSEUDONYM)  # by the client's minor version
SERVER: Final = b"server: " + PSEUDONYM
GO_ON: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE: Final = b"connection: close"
KEEP: Final = b"connection: keep-alive"  # HTTP/1.0 clients need to be told
KSERVE: Final = b"/v2/"  # begins the paths of KServe v2
ALLOW: Final = b"allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"


def ways(head: RequestHead, instance: bytes, peer: bytes) -> bytes:
    """The lines that say where to, who asked and by which way: mostly the same on one connection.

    `instance`: its address, the Host of a client that sent none (HTTP/1.0); `peer`: the client's.
    """
    host = head.host
    came_for = b"%s, %s" % (head.forwarded_for, peer) if head.forwarded_for else peer
    lines = [
        b"host: " + (host or instance),
        b"x-forwarded-for: " + came_for,
        b"x-forwarded-proto: http",
        VIA[head.start.minor],
    ]
    if host:
        lines.append(b"x-forwarded-host: " + host)
    return b"\r\n".join(lines)


def request_head(head: RequestHead, framing: bytes, way: bytes, ids: bytes) -> list[bytes]:
    """The lines of a request as an instance gets it, with the empty one and a place for the body.

    `framing`: b"" for no body; `way`: see `ways`; `ids`: the x-request-id line, and the
    traceparent line where we start the trace. Shape: joined by CRLF they are the head.
    """
    lines = [head.start.onward, way]
    lines += head.kept
    if framing:
        lines.append(framing)
    lines += (ids, b"", b"")
    return lines


def response_head(head: ResponseHead, framing: bytes, ours: bytes, date: bytes) -> list[bytes]:
    """As request_head, for a client; `ours`: lines that name request and instance."""
    lines = [head.line]
    lines += head.kept
    if not head.dated:
        lines.append(date)  # RFC 9110 6.6.1
    if framing:
        lines.append(framing)
    lines += (ours, b"", b"")
    return lines


def interim_head(head: ResponseHead) -> bytes:
    """A 1xx on its way to a client: no framing, whatever it said (RFC 9112 6.3)."""
    return b"\r\n".join([head.line, *head.kept, b"", b""])


def id_lines(client_id: bytes, trace: bytes, number: bytes) -> bytes:
    """The request's id, and a new trace of which it is the first span; b"" for the trace: none.

    Sampled (01): what an instance without a parent would have done by OpenTelemetry's default.
    Source: W3C Trace Context, section 3.2.
    """
    if not trace:
        return b"x-request-id: " + client_id
    return b"x-request-id: %s\r\ntraceparent: 00-%s%s-%s-01" % (client_id, trace, number, number)


def refusal(
    error: GatewayError, request_id: bytes, date: bytes, connection: bytes, start: RequestLine
) -> bytes:
    """A whole response of our own that tells a client why not, as its protocol spells it."""
    row = error.refusal
    body = error_body(error, request_id.decode("latin-1"), start.path[:4] == KSERVE)
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
    lines += (b"", b"" if start.method == b"HEAD" else body)
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
