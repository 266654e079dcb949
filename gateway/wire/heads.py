"""Message heads: bytes in, what a proxy must know of them out.

Floor 1, pure.   Flow: accept -> [parse] -> match
A head object belongs to a connection and is filled anew for each message, so that a request costs
no object; what is as it was in the message before is not read again. `kept` are the end-to-end
lines as received, and `framing` is the line that frames the body; everything that the next hop
needs besides (host, forwarding fields) is added by `compose`. Bytes stay bytes.
Source: RFC 9112 sections 2 to 6, RFC 9110 sections 5 and 7.
"""

import re
from typing import Final

from gateway.errors import BadFraming, GatewayError
from gateway.wire.lines import (
    CANARY,
    CHUNKED,
    CONNECTION,
    CONTINUE,
    DATE,
    ENCODED,
    EVENTS,
    EXPECT_OTHER,
    FORWARDED_FOR,
    HOST,
    HOST_FIELD,
    LENGTH,
    MODEL,
    NAMES_FIELDS,
    PASS,
    REFUSED,
    REQUEST_ID,
    SESSION,
    TOKEN,
    TRACE,
    UNKNOWN,
    VERSION,
    LineMemo,
    names_in,
    stays,
    value_of,
    without_named,
)
from gateway.wire.repeats import Repeats

FIELDS_MAX: Final = 256  # HAProxy keeps 101, Apache 100; an SDK behind three proxies sends 40
STARTS_MAX: Final = 1024  # remembered request lines
START_BYTES: Final = 256
CHUNKED_LINE: Final = b"transfer-encoding: chunked"

REQUEST_LINE: Final = re.compile(
    rb"(" + TOKEN + rb'{1,32}) ([!"$-~\x80-\xff]++) HTTP/1\.([01])'  # no `#`: fragments stay home
)
OTHER_VERSION: Final = re.compile(TOKEN + rb"+ [!-~\x80-\xff]+ HTTP/(?!1\.[01]$)[0-9]+\.[0-9]+")
ABSOLUTE: Final = re.compile(rb"https?://([^/?]*)([^?]*)(\?.*)?", re.IGNORECASE)
STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: ([^\x00-\x08\n-\x1f\x7f]*+))?")


class RequestLine:
    """A request line, judged; shared by all requests that begin with the same bytes.

    `place`: who names the model, as `routing.match` found out; negative before it has looked.
    """

    __slots__ = ("authority", "method", "minor", "onward", "path", "place", "target")

    def __init__(self, line: bytes) -> None:
        match = REQUEST_LINE.fullmatch(line)
        if match is None:
            if OTHER_VERSION.fullmatch(line):
                raise BadFraming("only HTTP/1.1 and HTTP/1.0 are spoken here", "version_refused")
            raise BadFraming("the request line is not `METHOD target HTTP/1.1`", "bad_request")
        self.method = match[1]
        self.minor = int(match[3])
        self.target, self.authority = _origin_form(match[1], match[2])
        self.path = self.target.partition(b"?")[0]
        self.onward = b"%s %s HTTP/1.1" % (self.method, self.target)
        self.place = -1


def _origin_form(method: bytes, target: bytes) -> tuple[bytes, bytes]:
    """The target as we send it on, and the authority of an absolute one (RFC 9112 3.2)."""
    if target[:1] == b"/" or (target == b"*" and method == b"OPTIONS"):
        return target, b""
    if method == b"CONNECT":
        return target, b""  # refused later, by name
    match = ABSOLUTE.fullmatch(target)
    if match is None or not match[1] or not HOST.fullmatch(match[1]):
        raise BadFraming("the request target is neither a path nor an http URL", "bad_request")
    return (match[2] or b"/") + (match[3] or b""), match[1]


class RequestHead(Repeats):
    """The head of one client connection's current request."""

    __slots__ = (
        "_starts",
        "canary",
        "chunked",
        "encoded",
        "expects",
        "forwarded_for",
        "host",
        "keep_alive",
        "model",
        "request_id",
        "session",
        "start",
        "traced",
        "version",
    )

    def __init__(self, memo: LineMemo, starts: dict[bytes, RequestLine]) -> None:
        super().__init__(memo)
        self._starts = starts
        self.start = _NO_LINE
        self._clear()

    def _clear(self) -> None:
        self.kept = []
        self.length = -1
        self.framing = b""
        self.chunked = self.expects = self.encoded = self.traced = False
        self.keep_alive = True
        self.host = self.request_id = self.model = self.version = b""
        self.session = self.canary = self.forwarded_for = b""

    def forget(self) -> None:
        """Stand for a head that could not be read: nothing is known, and nothing follows."""
        self.start = _NO_LINE
        self.forget_lines()
        self._clear()
        self.keep_alive = False

    def let_go(self) -> None:
        """Hold no lines any more: they were sent on, and a long stream should cost little."""
        self.forget_lines()

    def read(self, head: bytes) -> None:
        """Fill this from a head, without the empty line that ended it.

        Raises: GatewayError; what is filled until then must not be used.
        Cost: a comparison for the same head as before, little more for one that is nearly the same
        (see `repeats`); else a lookup for each line. Credentials are known again in this way only.
        """
        before = self._read
        if before and (head == before or (self._fixed and self.renewed(head))):
            return
        self._read = self._fixed = b""
        lines = head.split(b"\r\n")
        self._clear()
        start = self._starts.get(lines[0])
        self.start = start = start if start is not None else self._begin(lines[0])
        if len(lines) > FIELDS_MAX + 1:
            raise BadFraming(f"more than {FIELDS_MAX} header fields", "head_too_large")
        kept = self.kept
        memo = self._memo
        seen = memo.seen
        hosts = said = 0
        named: list[bytes] = []
        for i in range(1, len(lines)):
            line = lines[i]
            meaning = seen.get(line, UNKNOWN)
            if meaning == UNKNOWN:
                meaning = memo.judge(line)
            if meaning == PASS:
                kept.append(line)
            elif meaning >= LENGTH:
                if self.length >= 0:
                    raise BadFraming("content-length twice")
                self.length = meaning - LENGTH
                self.framing = line
            elif meaning >= CONNECTION:
                said |= meaning - CONNECTION
                if meaning & NAMES_FIELDS:
                    named += names_in(value_of(line))
            elif meaning == HOST_FIELD:
                hosts += 1
                self.host = value_of(line)
            else:
                self._special(meaning, line)
        self.keep_alive = stays(said, start.minor)
        if named:
            self.kept = without_named(kept, named)
            self.traced = self.traced and b"traceparent" not in named
        if self.chunked and (self.length >= 0 or start.minor == 0):
            raise BadFraming("content-length or HTTP/1.0 together with transfer-encoding")
        if hosts > 1 or (hosts == 0 and start.minor == 1):
            raise BadFraming("not exactly one host", "bad_request")
        if start.authority:
            self.host = start.authority
        self.learn(before, head, lines)

    def said(self, meaning: int, value: bytes) -> None:
        if meaning == REQUEST_ID:
            self.request_id = value
        elif meaning == FORWARDED_FOR:
            self.forwarded_for = value

    def _begin(self, line: bytes) -> RequestLine:
        start = RequestLine(line)
        if len(line) <= START_BYTES and b"?" not in line:  # a query may carry a key
            if len(self._starts) >= STARTS_MAX:
                self._starts.clear()
            self._starts[line] = start
        return start

    def _special(self, meaning: int, line: bytes) -> None:
        """Fields that say something to us."""
        if meaning == CHUNKED:
            if self.chunked:
                raise BadFraming("transfer-encoding twice")
            self.chunked = True
            self.framing = CHUNKED_LINE
        elif meaning == CONTINUE:
            self.expects = self.start.minor == 1  # RFC 9110 10.1.1: ignored in HTTP/1.0
        elif meaning == EXPECT_OTHER:
            raise GatewayError("expectation_failed", "only 100-continue can be expected here")
        elif meaning == REQUEST_ID:
            self.request_id = self.request_id or value_of(line)
        elif meaning == MODEL:
            self.model = value_of(line)
        elif meaning == VERSION:
            self.version = value_of(line)
        elif meaning == SESSION:
            self.session = value_of(line)
            self.kept.append(line)
        elif meaning == CANARY:
            self.canary = value_of(line).lower()
            self.kept.append(line)
        elif meaning == FORWARDED_FOR:
            value = value_of(line)
            self.forwarded_for = (
                b"%s, %s" % (self.forwarded_for, value) if self.forwarded_for else value
            )
        elif meaning in (TRACE, ENCODED):
            self.kept.append(line)
            if meaning == TRACE:
                self.traced = True
            else:
                self.encoded = True


_NO_LINE: Final = RequestLine(b"GET / HTTP/1.1")  # before the first request of a connection


class ResponseHead(Repeats):
    """The head of one instance connection's current response."""

    __slots__ = (
        "_starts",
        "chunked",
        "dated",
        "encoded",
        "events",
        "keep_alive",
        "line",
        "refused",
        "status",
    )

    def __init__(self, memo: LineMemo, starts: dict[bytes, tuple[int, int, bytes]]) -> None:
        super().__init__(memo)
        self._starts = starts
        self.status = 0
        self.line = b""
        self._clear()

    def _clear(self) -> None:
        self.kept = []
        self.length = -1
        self.framing = b""
        self.chunked = self.events = self.encoded = self.dated = False
        self.keep_alive = True
        self.refused = b""

    def read(self, head: bytes) -> None:
        """As RequestHead.read, for a response."""
        before = self._read
        if before and (head == before or (self._fixed and self.renewed(head))):
            return
        self._read = self._fixed = b""
        lines = head.split(b"\r\n")
        self._clear()
        start = self._starts.get(lines[0])
        if start is None:
            start = self._begin(lines[0])
        self.status, minor, self.line = start
        if len(lines) > FIELDS_MAX + 1:
            raise BadFraming(f"more than {FIELDS_MAX} header fields")
        kept = self.kept
        memo = self._memo
        seen = memo.seen
        said = 0
        named: list[bytes] = []
        for i in range(1, len(lines)):
            line = lines[i]
            meaning = seen.get(line, UNKNOWN)
            if meaning == UNKNOWN:
                meaning = memo.judge(line)
            if meaning == PASS:
                kept.append(line)
            elif meaning == DATE:
                kept.append(line)
                self.dated = True
            elif meaning >= LENGTH:
                if self.length >= 0:
                    raise BadFraming("content-length twice")
                self.length = meaning - LENGTH
                self.framing = line
            elif meaning >= CONNECTION:
                said |= meaning - CONNECTION
                if meaning & NAMES_FIELDS:
                    named += names_in(value_of(line))
            else:
                self._special(meaning, line)
        self.keep_alive = stays(said, minor)
        if named:
            self.kept = without_named(kept, named)
        # A 1xx has no body and no framing, whatever it says (RFC 9112 6.3).
        if self.chunked and self.status >= 200 and (self.length >= 0 or minor == 0):
            raise BadFraming("content-length or HTTP/1.0 together with transfer-encoding")
        self.learn(before, head, lines)

    def _begin(self, line: bytes) -> tuple[int, int, bytes]:
        match = STATUS_LINE.fullmatch(line)
        if match is None:
            raise BadFraming("the status line is not `HTTP/1.1 NNN reason`")
        start = (int(match[2]), int(match[1]), b"HTTP/1.1 %s %s" % (match[2], match[3] or b""))
        if len(line) <= START_BYTES:
            if len(self._starts) >= STARTS_MAX:
                self._starts.clear()
            self._starts[line] = start
        return start

    def _special(self, meaning: int, line: bytes) -> None:
        if meaning == CHUNKED:
            if self.chunked:
                raise BadFraming("transfer-encoding twice")
            self.chunked = True
            self.framing = CHUNKED_LINE
        elif meaning == EVENTS:
            self.events = True
            self.kept.append(line)
        elif meaning == ENCODED:
            self.encoded = True
            self.kept.append(line)
        elif meaning == REFUSED:
            self.refused = value_of(line)
