"""Messages that are nearly right: a grammar of good ones, and small damage.

One slip in an otherwise good message is what finds two parsers that disagree; noise is refused by
both at its first byte.
"""

from itertools import pairwise
from typing import Final

from hypothesis import strategies as st

Bytes = st.SearchStrategy[bytes]


def mostly(good: bytes, odd: bytes, *more: bytes) -> Bytes:
    """One of the good ones, parted by bars; once in twenty times an odd one, or one of `more`.

    So a message has one fault or two, not ten.
    """
    rare = [*odd.split(b"|"), *more]
    return st.sampled_from(good.split(b"|") * (19 * len(rare) // (good.count(b"|") + 1)) + rare)


METHODS: Final = mostly(b"GET|POST|PUT|HEAD|OPTIONS", b"M-SEARCH|get|PRI")
TARGETS: Final = mostly(
    b"/|/v1/completions|/a?b=%20c|/a/../b;c|//a/.%2f|/%zz{}'\"|/a?b?c|http://h/p?q|HTTP://h:81",
    b"?|*|http://h?q|http://u@h/|http:///p|ftp://h/|h:80|/a#b|/\xe4\xbd\xa0|a|",
)
VERSIONS: Final = mostly(
    b" HTTP/1.1| HTTP/1.1| HTTP/1.0", b" HTTP/0.9| HTTP/2.0| HTTP/1.2| HTTP/1.10| HTTP/1| http/1.1|"
)
RESPONSE_VERSIONS: Final = mostly(
    b"HTTP/1.1|HTTP/1.1|HTTP/1.0", b"HTTP/2|HTTP/1.2|HTTP/0.9|http/1.1|HTTP/1|ICY"
)
STATUSES: Final = mostly(
    b"200 OK|404 Not Found|100 Continue|103 Early Hints|204 None|304 Same|503 Busy \xe9|599 ",
    b"200|099 Low|600 High|20 OK|2000 OK|200\tOK|20\xb2 OK",
)
LENGTHS: Final = mostly(
    b"0|5|42|005|999999999999999",
    b"+5|-5|0x5|0_5|5 5|5, 5|5,6|5;|5.||9999999999999999|18446744073709551621",
    *(digit.encode() for digit in "٥²５"),  # digits to Python, and to nobody else
)
CODINGS: Final = mostly(
    b"chunked|Chunked",
    b"gzip, chunked|chunked, gzip|chunked,|,chunked|chunked;q=1|gzip,chunked|identity|xchunked|"
    b'chunked, chunked|\x0bchunked|"chunked"|',
)
OPTIONS: Final = mostly(
    b"close|keep-alive|Keep-Alive, x-a|X-B,x-a|close , keep-alive|upgrade|content-length|host, x-b",
    b"|,,close|a b",
)
HOSTS: Final = mostly(b"g|g:80|[::1]:8080|", b"a b|u@h|a/b|a,b|g:|g:port|\xe4")
EXPECTATIONS: Final = mostly(b"100-continue|100-Continue", b"teapot|100-continue, x")
TEXTS: Final = mostly(b'1|a b|a\tb||caf\xe9|a,b;q="x y"|\xff', b"a\x00b|a\x7fb|a\x0bb")
OTHERS: Final = mostly(
    b"X-A|x-b|Accept|Cookie|X_C|X_Forwarded_For|Transfer_Encoding|TE|Keep-Alive|Trailer|Upgrade|"
    b"HTTP2-Settings|Date|Content-Encoding|X-Request-Id|X-Forwarded-For|Forwarded|Content-Type|"
    b"X-Model|X-Model-Version|X-Session-Id|Via|Proxy-Connection|Proxy-Authorization|x!#$%&'*+.^`~",
    b"X B|X-\xe4||X[0]| X",
)
COLONS: Final = mostly(b": |:|:\t ", b" : |\t:")
ENDS: Final = st.sampled_from([b"", b"", b"", b" ", b"\t "])


def _field(names: Bytes, values: Bytes) -> Bytes:
    return st.tuples(names, COLONS, values, ENDS).map(b"".join)


_OTHER: Final = _field(OTHERS, TEXTS)
FIELD: Final = st.one_of(
    *[_OTHER] * 5,
    *[_field(st.just(b"Connection"), OPTIONS)] * 2,
    _field(st.sampled_from([b"Content-Length", b"content-length"]), LENGTHS),
    _field(st.sampled_from([b"Transfer-Encoding", b"TRANSFER-ENCODING"]), CODINGS),
    _field(st.just(b"Expect"), EXPECTATIONS),
)
HOST: Final = st.one_of(
    *[_field(st.just(b"Host"), HOSTS).map(lambda line: [line])] * 9, st.just([])
)

# --- damage ---------------------------------------------------------------------------------------

PIECES: Final = st.one_of(
    mostly(
        b'\r|\n|\r\n|\r\n |\r\n\t|\x00| |\t|:|,|;|_|+|-|0|"|#|@', b"\x0b|\x7f|\x85|\xff|\xd9\xa5"
    ),
    st.binary(min_size=1, max_size=3),
)
PLACES: Final = st.integers(0, 1 << 16)
INSERT, DELETE, REPLACE, DOUBLE, DOUBLE_LINE, LINE_END = range(6)
SLIPS: Final = st.tuples(st.integers(INSERT, LINE_END), PLACES, PIECES)
LINE_ENDS: Final = (b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n ")


def damaged(raw: bytes, slips: list[tuple[int, int, bytes]]) -> bytes:
    """The bytes after some slips of the pen."""
    for kind, place, piece in slips:
        at = place % (len(raw) + 1)
        if kind == INSERT:
            raw = raw[:at] + piece + raw[at:]
        elif kind == DELETE:
            raw = raw[:at] + raw[at + 1 :]
        elif kind == REPLACE:
            raw = raw[:at] + piece + raw[at + 1 :]
        elif kind == DOUBLE:
            raw = raw[: at + 4] + raw[at:]
        elif kind == DOUBLE_LINE:
            lines = raw.split(b"\r\n")
            lines.insert(at % (len(lines) + 1), lines[place % len(lines)])
            raw = b"\r\n".join(lines)
        else:
            ends = [n for n in range(len(raw)) if raw[n : n + 2] == b"\r\n"]
            if ends:
                at = ends[place % len(ends)]
                raw = raw[:at] + LINE_ENDS[place % len(LINE_ENDS)] + raw[at + 2 :]
    return raw


def crooked(whole: Bytes, slips_max: int = 2) -> Bytes:
    """The same with up to so many slips."""
    return st.builds(damaged, whole, st.one_of(st.just([]), st.lists(SLIPS, max_size=slips_max)))


def _head(start: Bytes, first: st.SearchStrategy[list[bytes]]) -> Bytes:
    """Lines as a reader of heads gets them: no empty one before, inside or behind."""
    lines = st.builds(
        lambda begin, host, fields: b"\r\n".join([begin, *host, *fields]),
        start,
        first,
        st.lists(FIELD, max_size=4),
    )
    return crooked(lines).map(only_head)


def only_head(raw: bytes) -> bytes:
    """What a reader of heads gets of these bytes: up to the empty line."""
    return (raw.lstrip(b"\r\n") + b"\r\n\r\n").partition(b"\r\n\r\n")[0]


REQUEST_START: Final = st.builds(
    lambda method, target, version: method + b" " + target + version, METHODS, TARGETS, VERSIONS
)
STATUS_LINE: Final = st.builds(
    lambda version, status: version + b" " + status, RESPONSE_VERSIONS, STATUSES
)
REQUEST_HEADS: Final = _head(REQUEST_START, HOST)
RESPONSE_HEADS: Final = _head(STATUS_LINE, st.just([]))


# --- cuts -----------------------------------------------------------------------------------------

CUTS: Final = st.one_of(
    st.lists(PLACES, max_size=8),
    st.just([-1]),  # byte by byte
)


def cut(whole: bytes, cuts: list[int]) -> list[bytes]:
    """The bytes as TCP may deliver them; joined they are the same. Empty pieces never come."""
    if cuts == [-1]:
        return [whole[n : n + 1] for n in range(len(whole))]
    at = sorted({0, len(whole), *(place % (len(whole) + 1) for place in cuts)})
    return [whole[a:b] for a, b in pairwise(at)]


# --- chunked bodies -------------------------------------------------------------------------------

SIZES: Final = mostly(b"%x|%X|0%x|000%x", b"+%x|-%x|0x%x|%x | %x|%x_0|%x\t|0000000000000000%x|%x,")
EXTENSIONS: Final = mostly(
    b'||;a|;a=b|;a="b c";d', b'; a| ;a|;|;a\x00|;a\x7f|;\xff|;a\tb|;a="b|;=|;a=b=c'
)
DATA: Final = st.one_of(
    st.binary(min_size=1, max_size=20), st.sampled_from([b"\r\n", b"0\r\n\r\n"])
)
CHUNK: Final = st.builds(
    lambda size, extension, content, end: size % len(content) + extension + b"\r\n" + content + end,
    SIZES,
    EXTENSIONS,
    DATA,
    mostly(b"\r\n", b"\n|\r||\r\r\n|XX| \r\n"),
)
LAST: Final = mostly(b"0\r\n|00\r\n|0;a=b\r\n", b"0\n|-0\r\n|0 \r\n|\r\n")
TRAILERS: Final = st.lists(FIELD.map(lambda line: line + b"\r\n"), max_size=2).map(b"".join)
CHUNKED: Final = st.builds(
    lambda chunks, last, trailers: b"".join(chunks) + last + trailers + b"\r\n",
    st.lists(CHUNK, max_size=3),
    LAST,
    st.one_of(st.just(b""), TRAILERS),
)
CHUNKED_BODIES: Final = st.builds(bytes.__add__, crooked(CHUNKED), st.sampled_from([b"", b"GET /"]))
