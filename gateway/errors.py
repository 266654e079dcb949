"""Every way in which the gateway refuses a request itself, one row each.

Floor 0, pure.
REFUSALS is the table of README.md (a test holds the two together). An answer that we author carries
`x-sluicegate-error: <code>`; one that we relay never does, so a client can tell who spoke.
Foreign exceptions are translated at one seam per library, next to the call.
"""

from dataclasses import dataclass
from typing import Any, Final

import orjson


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a code means to a client. `cell` is its counter in the segment: append only."""

    code: str
    cell: int
    status: int
    reason: str  # of the status line
    kind: str  # `type` in OpenAI's error object
    proxy_error: str  # RFC 9209 section 2.3; "" where the gateway acted as an origin
    client_may: str  # "fix it" | "retry" | "retry if harmless"


def _rows(*rows: Refusal) -> dict[str, Refusal]:
    return {row.code: row for row in rows}


_INVALID: Final = "invalid_request_error"
_SERVER: Final = "server_error"
_BUSY: Final = "rate_limit_error"

REFUSALS: Final = _rows(
    Refusal("bad_request", 0, 400, "Bad Request", _INVALID, "http_request_error", "fix it"),
    Refusal("bad_framing", 1, 400, "Bad Request", _INVALID, "http_request_error", "fix it"),
    Refusal("unknown_model", 2, 404, "Not Found", _INVALID, "destination_not_found", "fix it"),
    Refusal("unknown_version", 3, 404, "Not Found", _INVALID, "destination_not_found", "fix it"),
    Refusal(
        "method_refused", 4, 405, "Method Not Allowed", _INVALID, "http_request_denied", "fix it"
    ),
    Refusal("request_timed_out", 5, 408, "Request Timeout", _INVALID, "", "retry"),
    Refusal("body_too_large", 6, 413, "Content Too Large", _INVALID, "", "fix it"),
    Refusal("encoded_body", 7, 415, "Unsupported Media Type", _INVALID, "", "fix it"),
    Refusal("expectation_failed", 8, 417, "Expectation Failed", _INVALID, "", "fix it"),
    Refusal("saturated", 9, 429, "Too Many Requests", _BUSY, "connection_limit_reached", "retry"),
    Refusal("head_too_large", 10, 431, "Request Header Fields Too Large", _INVALID, "", "fix it"),
    Refusal("coding_unknown", 11, 501, "Not Implemented", _INVALID, "", "fix it"),
    Refusal(
        "connect_failed", 12, 502, "Bad Gateway", _SERVER, "destination_ip_unroutable", "retry"
    ),
    Refusal(
        "instance_reset",
        13,
        502,
        "Bad Gateway",
        _SERVER,
        "connection_terminated",
        "retry if harmless",
    ),
    Refusal(
        "instance_bad_framing",
        14,
        502,
        "Bad Gateway",
        _SERVER,
        "http_protocol_error",
        "retry if harmless",
    ),
    Refusal(
        "no_ready_instance",
        15,
        503,
        "Service Unavailable",
        _SERVER,
        "destination_unavailable",
        "retry",
    ),
    Refusal("gateway_closing", 16, 503, "Service Unavailable", _SERVER, "", "retry"),
    Refusal("bodies_full", 17, 503, "Service Unavailable", _SERVER, "", "retry"),
    Refusal("cut", 18, 503, "Service Unavailable", _SERVER, "", "retry if harmless"),
    Refusal(
        "instance_timed_out",
        19,
        504,
        "Gateway Timeout",
        _SERVER,
        "http_response_timeout",
        "retry if harmless",
    ),
    Refusal(
        "version_refused",
        20,
        505,
        "HTTP Version Not Supported",
        _INVALID,
        "http_request_error",
        "fix it",
    ),
    Refusal("target_too_long", 21, 414, "URI Too Long", _INVALID, "", "fix it"),
    Refusal("leases_full", 22, 503, "Service Unavailable", _SERVER, "", "retry"),
    # Never sent: how a request counts whose client left before an instance was picked.
    Refusal("client_gone", 23, 499, "Client Closed Request", _INVALID, "", "retry"),
    Refusal(
        "version_blocked",
        24,
        503,
        "Service Unavailable",
        _SERVER,
        "destination_unavailable",
        "fix it",
    ),
)

REFUSALS_MAX: Final = 32  # cells kept for them in the segment


class GatewayError(Exception):
    """A refusal on its way to a client: expected, answered, never logged as a fault.

    `message` is a sentence without capital or full stop that names the thing and the number.
    `details` are further fields of the error object (model, instance, instances...).
    """

    def __init__(self, code: str, message: str, retry_after_s: int = 0, **details: object) -> None:
        super().__init__(message)
        self.refusal = REFUSALS[code]
        self.message = message
        self.retry_after_s = retry_after_s  # whole seconds, as in the field; 0: no field
        self.details = details


class BadFraming(GatewayError):
    """A client's bytes contradict themselves; the connection cannot be used after them."""

    def __init__(self, message: str, code: str = "bad_framing") -> None:
        super().__init__(code, message)


def error_body(error: GatewayError, request_id: str, kserve: bool = False) -> bytes:
    """The JSON body of a refusal in OpenAI's error shape; absent fields are left out.

    `kserve`: in the shape of KServe v2, whose clients take `error` for a text.
    """
    fields: dict[str, Any] = {
        "type": error.refusal.kind,
        "param": None,
        "code": error.refusal.code,
        "request_id": request_id,
        **error.details,
    }
    if error.retry_after_s:
        fields["retry_after_s"] = error.retry_after_s
    if kserve:
        return orjson.dumps({"error": error.message, **fields})
    return orjson.dumps({"error": {"message": error.message, **fields}})
