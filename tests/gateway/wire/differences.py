"""Where we and two other parsers disagree about a head, each with its reason.

This list is the whole truth: a property test fails at a disagreement that is not here, and each row
has an example that shows it. A row puts right what it is about, and nothing else: heads that are
repaired by all rows that apply must be read alike.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest

LLHTTP: Final = "llhttp"
H11: Final = "h11"
BOTH: Final = (LLHTTP, H11)
REFUSE: Final = "refuse"
ACCEPT: Final = "accept"
READ_OTHERWISE: Final = "read otherwise"
# RFC 3986 3.2.2 and 3.2.3, but for the comma: two hosts in one field are none.
HOST: Final = rb"(?:\[[0-9a-f:.]+\]|[a-z0-9._~!$&'()*+;=%-]+)"
PORT: Final = rb"(?::[0-9]{0,5})?"


Repair = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Difference:
    """We `refuse` what they accept, `accept` what they refuse, or `read otherwise`."""

    name: str
    we: str
    references: tuple[str, ...]
    repair: Repair
    why: str
    example: bytes


def each(pattern: bytes, instead: bytes) -> Repair:
    """Every place that looks like this, written otherwise. Lines begin at `^`, end before `$`."""
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return lambda head: compiled.sub(instead, head)


def field(name: bytes, bad: bytes, instead: bytes) -> Repair:
    """The value of every field of this name that looks like this; `bad` must match all of it."""
    return each(rb"^(" + name + rb":[ \t]*+)(?:" + bad + rb")[ \t]*(?=\r|\Z)", rb"\g<1>" + instead)


def other_than(good: bytes) -> bytes:
    """A pattern for whole values that are not like this."""
    return rb"(?!" + good + rb"[ \t]*(?:[\r\n]|\Z))[^\r\n]*"


def once(name: bytes) -> Repair:
    """All fields of this name but the first are taken out."""
    pattern = re.compile(rb"\r\n" + name + rb":[^\r\n]*", re.IGNORECASE)

    def repair(head: bytes) -> bytes:
        first = pattern.search(head)
        if first is None:
            return head
        return head[: first.end()] + pattern.sub(b"", head[first.end() :])

    return repair


def without(name: bytes, beside: bytes) -> Repair:
    """No field of this name where there is one of the other."""
    there = re.compile(rb"\r\n" + beside + rb":", re.IGNORECASE)
    taken = re.compile(rb"\r\n" + name + rb":[^\r\n]*", re.IGNORECASE)
    return lambda head: taken.sub(b"", head) if there.search(head) else head


def one_host(head: bytes) -> bytes:
    """A Host where none is; the first where there are several."""
    if re.search(rb"\r\nhost:", head, re.IGNORECASE) is None:
        start, line_end, fields = head.partition(b"\r\n")
        return start + b"\r\nhost: g" + line_end + fields
    return once(b"host")(head)


# About fields, in requests and in responses alike; an example is a field line here.
FIELDS: Final = (
    Difference(
        "coding",
        REFUSE,
        (LLHTTP,),
        field(rb"transfer-encoding", other_than(rb"chunked"), rb"chunked"),
        "no coding but chunked is undone or passed on here (RFC 9112 6.1: 501, or 400)",
        b"transfer-encoding: gzip, chunked",
    ),
    Difference(
        "coding and length",
        REFUSE,
        (H11,),
        without(rb"content-length", beside=rb"transfer-encoding"),
        "one hop frames by length, the next by chunks (RFC 9112 6.1, 6.3)",
        b"transfer-encoding: chunked\r\ncontent-length: 5",
    ),
    Difference(
        "length twice",
        REFUSE,
        (H11,),
        once(rb"content-length"),
        "may be refused even if equal (RFC 9112 6.3)",
        b"content-length: 5\r\ncontent-length: 5",
    ),
    Difference(
        "length as a list",
        REFUSE,
        (H11,),
        field(rb"content-length", rb"([0-9]+)[ \t]*,[^\r\n]*", rb"5"),
        "may be refused even if equal (RFC 9110 8.6)",
        b"content-length: 5, 5",
    ),
    Difference(
        "huge length",
        REFUSE,
        BOTH,
        field(rb"content-length", rb"[0-9]{16,}", rb"5"),
        "a recipient guards against overflow (RFC 9110 8.6); nobody holds a petabyte",
        b"content-length: 9999999999999999",
    ),
    Difference(
        "LF alone",
        REFUSE,
        (H11,),
        each(rb"(?<!\r)\n", rb"\r\n"),
        "a lone LF may be taken for a line's end (RFC 9112 2.2); fields hide behind it",
        b"x: 1\ny: 2",
    ),
    Difference(
        "folded line",
        REFUSE,
        (H11,),
        each(rb"\r\n[ \t]+", rb" "),
        "is refused or unfolded (RFC 9112 5.2)",
        b"x: a\r\n b",
    ),
    Difference(
        "controls in a value",
        REFUSE,
        (H11,),
        each(rb"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]", rb"."),
        "no field value has them (RFC 9110 5.5)",
        b"x: a\x7fb",
    ),
)


CODING_IN_1_0: Final = Difference(
    "coding in HTTP/1.0",
    REFUSE,
    BOTH,
    each(rb"\A([^\r\n]*HTTP/1\.)0(?=[\s\S]*^transfer-encoding:)", rb"\g<1>1"),
    "framing is faulty then (RFC 9112 6.1)",
    b"GET / HTTP/1.0\r\nhost: g\r\ntransfer-encoding: chunked",
)


TAB_BEHIND_CODING: Final = Difference(
    "tab behind a coding",
    READ_OTHERWISE,
    (LLHTTP,),
    each(rb"^(transfer-encoding:[^\r\n]*?)[ \t]*\t[ \t]*(?=\r|\Z)", rb"\1"),
    "blanks around a value are none of it (RFC 9110 5.5); llhttp takes the value for no coding",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\t",
)
CLOSE_AND_KEEP_IN_1_0: Final = Difference(
    "close and keep-alive in HTTP/1.0",
    READ_OTHERWISE,
    (LLHTTP,),
    each(rb"^(connection:[^\r\n]*)\bkeep-alive\b", rb"\1x"),
    "close counts (RFC 9112 9.3)",
    b"GET / HTTP/1.0\r\nhost: g\r\nconnection: keep-alive, close",
)


def beginning(start: bytes) -> tuple[Difference, ...]:
    """The rows about fields, with examples that begin like this."""
    return tuple(replace(row, example=start + b"\r\n" + row.example) for row in FIELDS)


REQUESTS: Final = (
    # --- we refuse, they accept -------------------------------------------------------------------
    Difference(
        "no version",
        REFUSE,
        (LLHTTP,),
        each(rb"\A(\S+ \S*)(?=[\r\n]|\Z)[\r\n]*", rb"\1 HTTP/1.1\r\n"),
        "HTTP/0.9 has neither fields nor a body (RFC 9112 2.3, 3); llhttp#877",
        b"GET /\r\nhost: g",
    ),
    Difference(
        "two blanks",
        REFUSE,
        (LLHTTP,),
        each(rb"\A([^\r\n]*?)  +", rb"\1 "),
        "one SP parts the three parts of a request line (RFC 9112 3)",
        b"GET  / HTTP/1.1\r\nhost: g",
    ),
    Difference(
        "another version",
        REFUSE,
        BOTH,
        each(rb"\A(\S+ \S* HTTP/)(?!1\.[01])[0-9]\.[0-9](?=[\r\n]|\Z)", rb"\g<1>1.1"),
        "a version that we do not speak is a 505 (RFC 9110 15.6.6)",
        b"GET / HTTP/0.9\r\nhost: g",
    ),
    Difference(
        "target",
        REFUSE,
        BOTH,
        each(rb"\A(?!OPTIONS \* )(\S+) (?!/|https?://[^/?#])\S*(?= HTTP)", rb"\1 /"),
        "neither a path nor an http URL with a host (RFC 9112 3.2, RFC 9110 4.2.4)",
        b"GET ftp://h/ HTTP/1.1\r\nhost: g",
    ),
    Difference(
        "authority of the target",
        REFUSE,
        BOTH,
        each(rb"\A(\S+ https?://)(?!" + HOST + PORT + rb"[/?# ])[^/?#\s]*", rb"\1h"),
        "an authority is a host and a port here (RFC 9110 4.2.4)",
        b"GET http://u@h/ HTTP/1.1\r\nhost: g",
    ),
    Difference(
        "fragment",
        REFUSE,
        BOTH,
        each(rb"\A(\S+ [^\s#]*)#\S*", rb"\1"),
        "no form of a target has a fragment (RFC 9112 3.2)",
        b"GET /a#b HTTP/1.1\r\nhost: g",
    ),
    Difference(
        "hosts",
        REFUSE,
        (LLHTTP,),
        one_host,
        "exactly one, or none in HTTP/1.0 (RFC 9112 3.2); h11 insists on it too",
        b"GET / HTTP/1.1\r\nx: 1",
    ),
    Difference(
        "host that is none",
        REFUSE,
        BOTH,
        field(rb"host", other_than(rb"(?:" + HOST + rb")?" + PORT), rb"g"),
        "host and port by RFC 3986 3.2.2, without userinfo (RFC 9110 7.2)",
        b"GET / HTTP/1.1\r\nhost: a b",
    ),
    Difference(
        "expectation",
        REFUSE,
        BOTH,
        field(rb"expect", other_than(rb"100-continue"), rb"100-continue"),
        "an unknown expectation may be answered with 417 (RFC 9110 10.1.1)",
        b"GET / HTTP/1.1\r\nhost: g\r\nexpect: teapot",
    ),
    CODING_IN_1_0,
    *beginning(b"GET / HTTP/1.1\r\nhost: g"),
    replace(
        TAB_BEHIND_CODING,
        we=REFUSE,
        why="with a second coding: the first is one, too (RFC 9112 7.1, RFC 9110 5.5)",
        example=b"GET / HTTP/1.1\r\nhost: g\r\n"
        b"transfer-encoding: chunked\t\r\ntransfer-encoding: chunked",
    ),
    # --- we read otherwise ------------------------------------------------------------------------
    CLOSE_AND_KEEP_IN_1_0,
    # --- we accept, they refuse -------------------------------------------------------------------
    replace(
        TAB_BEHIND_CODING,
        we=ACCEPT,
        example=b"POST / HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\t",
    ),
    Difference(
        "method",
        ACCEPT,
        (LLHTTP,),
        each(rb"\A\S+ ", rb"GET "),
        "any token is a method (RFC 9110 9.1); llhttp knows a list",
        b"FETCH / HTTP/1.1\r\nhost: g",
    ),
    Difference(
        "raw bytes in the target",
        ACCEPT,
        BOTH,
        each(rb"[\x80-\xff](?=\S* HTTP/1\.[01](?:\r|\Z))", rb"."),
        "clients send names in UTF-8; passed on as received (RFC 9110 7.7)",
        b"GET /\xe4 HTTP/1.1\r\nhost: g",
    ),
)

RESPONSES: Final = (
    # --- we refuse, they accept -------------------------------------------------------------------
    Difference(
        "another version",
        REFUSE,
        BOTH,
        each(rb"\AHTTP/(?!1\.[01])[0-9]\.[0-9]", rb"HTTP/1.1"),
        "it was asked in HTTP/1.1 (RFC 9110 2.5)",
        b"HTTP/0.9 200 OK",
    ),
    Difference(
        "status",
        REFUSE,
        BOTH,
        each(rb"\A(HTTP/1\.[01]) [06-9]([0-9]{2})", rb"\1 2\2"),
        "from 100 to 599 (RFC 9110 15)",
        b"HTTP/1.1 600 High",
    ),
    Difference(
        "reason",
        REFUSE,
        BOTH,
        each(
            rb"\A(HTTP/1\.[01] [0-9]{3}) [^\r\n]*[\x00-\x08\x0b\x0c\x0e-\x1f\x7f][^\r\n]*",
            rb"\1 OK",
        ),
        "of visible characters and blanks (RFC 9112 4)",
        b"HTTP/1.1 200 \x7f",
    ),
    replace(CODING_IN_1_0, example=b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked"),
    *beginning(b"HTTP/1.1 200 OK"),
    Difference(
        "coding twice",
        REFUSE,
        (LLHTTP,),
        once(rb"transfer-encoding"),
        "chunked is applied once (RFC 9112 7.1)",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
    ),
    # --- we read otherwise ------------------------------------------------------------------------
    TAB_BEHIND_CODING,
    replace(
        CLOSE_AND_KEEP_IN_1_0,
        example=b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\nconnection: keep-alive, close",
    ),
    # --- we accept, they refuse -------------------------------------------------------------------
    Difference(
        "two framings of an interim response",
        ACCEPT,
        (LLHTTP,),
        each(rb"(\AHTTP/1\.[01] )1([0-9]{2}[\s\S]*?)\r\ncontent-length:[^\r\n]*", rb"\g<1>1\2"),
        "a 1xx has no body whatever its fields say (RFC 9112 6.3, 1.); they are dropped",
        b"HTTP/1.1 100 Continue\r\ncontent-length: 5\r\ntransfer-encoding: chunked",
    ),
    Difference(
        "unasked switch",
        ACCEPT,
        BOTH,
        each(rb"\A(HTTP/1\.[01]) 101", rb"\1 200"),
        "refused by the reader of connections, which knows what was asked (RFC 9110 15.2.2)",
        b"HTTP/1.1 101 Switching Protocols",
    ),
)


def row_for(
    rows: tuple[Difference, ...], reference: str, we: str, head: bytes
) -> Difference | None:
    """The first row that is about something in this head."""
    for row in rows:
        if row.we == we and reference in row.references and row.repair(head) != head:
            return row
    return None


def shown(rows: tuple[Difference, ...]) -> pytest.MarkDecorator:
    cases = [(row, reference) for row in rows for reference in row.references]
    told = [f"{reference}: {row.name}" for row, reference in cases]
    return pytest.mark.parametrize(("row", "reference"), cases, ids=told)
