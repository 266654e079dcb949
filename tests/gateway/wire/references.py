"""What two other parsers make of the same bytes: llhttp, which Node and aiohttp use, and h11.

A reading is None where the parser refuses. llhttp is strict here (no leniency flag is set).
"""

from dataclasses import dataclass
from typing import Any, Final

import h11
import httptools

Fields = tuple[tuple[bytes, bytes], ...]

HEAD_MAX: Final = 1 << 20  # no head of a test is larger


@dataclass(frozen=True, slots=True)
class SeenHead:
    """A head as a reference read it. Shape: `start` is method and target, or status."""

    start: tuple[bytes, ...]
    minor: int
    fields: Fields  # names in lower case, values without blanks around
    keep_alive: bool | None  # None: it does not say


@dataclass(frozen=True, slots=True)
class SeenBody:
    """A chunked body as a reference read it: its content, and what follows it."""

    content: bytes
    rest: bytes


class Callbacks:
    """What llhttp tells while it reads."""

    def __init__(self) -> None:
        self.parser: Any = None
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.head: SeenHead | None = None
        self.content = b""
        self.over = False

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:  # later ones are trailers
            self.fields.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        parser = self.parser
        if isinstance(parser, httptools.HttpRequestParser):
            start: tuple[bytes, ...] = (parser.get_method(), self.target)
        else:
            start = (b"%d" % parser.get_status_code(),)
        minor = int(parser.get_http_version().partition(".")[2])
        keep_alive = parser.should_keep_alive()
        self.head = SeenHead(start, minor, tuple(self.fields), keep_alive)

    def on_body(self, part: bytes) -> None:
        self.content += part

    def on_message_complete(self) -> None:
        self.over = True


def llhttp_request(head: bytes) -> SeenHead | None:
    """A request's head, with the empty line that ends it."""
    return _llhttp(httptools.HttpRequestParser, head)


def llhttp_response(head: bytes) -> SeenHead | None:
    return _llhttp(httptools.HttpResponseParser, head)


def _llhttp(kind: Any, raw: bytes) -> SeenHead | None:
    seen = Callbacks()
    seen.parser = parser = kind(seen)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # it leaves at an offer to switch protocols; the head is read
    except httptools.HttpParserError:
        return None
    return seen.head


def h11_request(head: bytes) -> SeenHead | None:
    event = _h11(h11.Connection(h11.SERVER, HEAD_MAX), head)
    if not isinstance(event, h11.Request):
        return None
    return SeenHead((event.method, event.target), _minor(event), _fields(event), None)


def h11_response(head: bytes) -> SeenHead | None:
    asks = h11.Connection(h11.CLIENT, HEAD_MAX)
    asks.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    asks.send(h11.EndOfMessage())
    event = _h11(asks, head)
    if not isinstance(event, h11.Response | h11.InformationalResponse):
        return None
    return SeenHead((b"%d" % event.status_code,), _minor(event), _fields(event), None)


def _h11(connection: h11.Connection, raw: bytes) -> object:
    connection.receive_data(raw)
    try:
        return connection.next_event()
    except h11.RemoteProtocolError:
        return None


def _minor(event: Any) -> int:
    return int(event.http_version.partition(b".")[2])


def _fields(event: Any) -> Fields:
    return tuple((bytes(name), bytes(value)) for name, value in event.headers)


CHUNKED_HEAD: Final = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


def llhttp_chunked(raw: bytes) -> SeenBody | None:
    """The body, or None where it is refused or not whole."""
    seen = Callbacks()
    seen.parser = parser = httptools.HttpRequestParser(seen)
    parser.feed_data(CHUNKED_HEAD)
    try:
        for at in range(len(raw)):  # byte by byte, to see where it ends
            parser.feed_data(raw[at : at + 1])
            if seen.over:
                return SeenBody(seen.content, raw[at + 1 :])
    except httptools.HttpParserError:
        pass
    return None


def h11_chunked(raw: bytes) -> SeenBody | None:
    reads = h11.Connection(h11.SERVER, HEAD_MAX)
    reads.receive_data(CHUNKED_HEAD + raw)
    reads.next_event()
    content = b""
    try:
        while isinstance(event := reads.next_event(), h11.Data):
            content += bytes(event.data)
    except h11.RemoteProtocolError:
        return None
    return SeenBody(content, reads.trailing_data[0]) if type(event) is h11.EndOfMessage else None
